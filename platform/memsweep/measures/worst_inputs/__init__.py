"""The error over weights and inputs: ``search`` finds it, ``section`` reports it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep import registry
from memsweep.config.core.fields import setting
from memsweep.registry import register_measure
from memsweep.stability.optional import Effort, Measure

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.models.base import Model, Weights


@register_measure("worst_inputs")
class WorstInputs(Measure):
    """The largest error of the last output over weights in the balls and bounded inputs, a lower bound by search.

    The target must be a linear functional, which is known at all inputs.
    """

    table = "worst_inputs"
    columns: ClassVar[Mapping[str, str]] = {
        "ball": "string",
        "norm": "string",
        "bound": "float64",
        "radius": "float64",
        "error": "float64",
        "zero_error": "float64",
    }
    needs_derivatives = True
    section = "memsweep.measures.worst_inputs.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How the perturbation error over weights and inputs is measured: the largest error of the last output
        found.
        """

        radii: tuple[float, ...] = setting(
            (0.01, 0.03, 0.1), "radii of the balls (perturbation.balls); radius 0 is always added", above=0.0
        )
        bound: float = setting(
            1.0, "largest size of every input, in standard deviations of the inputs of a test sequence", above=0.0
        )

        def problems(self) -> Iterable[str]:
            if not self.radii or len(set(self.radii)) != len(self.radii):
                yield f"radii must be one or more, each once, got {', '.join(map(str, self.radii)) or 'none'}"

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        yield from super().problems(trial)
        if not trial.perturbation.balls:
            yield "worst_inputs is set, but balls names no weights that move: name recurrent, weights or all"
        if not registry.get(registry.TASK, trial.task.name).knows_population:
            yield (
                f"perturbation.worst_inputs is set, but the target of the task {trial.task.name} is not a linear "
                "functional of its inputs, which is known at all inputs: leave it out"
            )

    @classmethod
    def cost(cls, asked: Config, effort: Effort) -> float:
        """Each copy of a search in one ball runs on the inputs of all copies."""
        from memsweep.measures.worst_inputs.ascent import CORNERS, UNMOVED

        moved, radii = effort.trial.perturbation, len(asked.radii)
        climb, copies = 4 * (moved.ascent_steps + 1), 5 + moved.starts  # an evaluation beside every gradient
        if effort.trial.has_closed_form:
            return len(moved.balls) * climb * (UNMOVED + 2.0 * copies * radii)
        moves = 2 * copies * (climb * copies + CORNERS) * radii
        return len(moved.balls) * (climb * UNMOVED**2 + CORNERS + moves) / moved.test_size

    def rows(self, model: Model, weights: Weights, row: int) -> Iterable[Mapping[str, Any]]:
        from memsweep.measures.worst_inputs.search import worst_rows

        return worst_rows(self.subject, self.asked, row)
