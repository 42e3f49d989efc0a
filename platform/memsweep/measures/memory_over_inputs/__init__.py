"""Memory over inputs: ``derivatives`` measures it, ``section`` reports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep.config.core.fields import setting
from memsweep.registry import register_measure
from memsweep.stability.optional import Effort, Measure

if TYPE_CHECKING:
    from memsweep.models.base import Model, Weights


@register_measure("memory_over_inputs")
class MemoryOverInputs(Measure):
    """How the last output depends on each earlier input, for typical sequences and for the largest of some."""

    table = "memory_over_inputs"
    columns: ClassVar[Mapping[str, str]] = {
        "lag": "int64",
        "median": "float64",
        "high": "float64",
        "largest": "float64",
    }
    needs_derivatives = True
    section = "memsweep.measures.memory_over_inputs.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How the memory of a trained model over inputs is measured: how its last output depends on each earlier
        input.
        """

        sequences: int = setting(
            32, "test sequences of each seed at which derivatives of the last output are taken", at_least=1
        )

    @classmethod
    def in_short(cls, *, steps: bool, ids: bool) -> tuple[str, ...]:
        return () if ids else (f"perturbation.memory_over_inputs={{sequences: {cls.Config().sequences}}}",)

    @classmethod
    def cost(cls, asked: Config, effort: Effort) -> float:
        """A gradient of a sequence for each output."""
        trial = effort.trial
        return 0.0 if trial.has_closed_form else 3 * asked.sequences / trial.perturbation.test_size

    def rows(self, model: Model, weights: Weights, row: int) -> Iterable[Mapping[str, Any]]:
        from memsweep.measures.memory_over_inputs.derivatives import memory_rows
        from memsweep.streams import TEST, Stream

        stream, seed = Stream(self.subject.config.training.data_seed, TEST), self.subject.pack.replicas[row].seed
        return memory_rows(model, weights, self.subject.task_loss.draw(stream, seed, self.asked.sequences).inputs)
