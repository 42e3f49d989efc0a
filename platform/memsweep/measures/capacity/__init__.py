"""Capacity: how many numbers a model keeps of its past, as far as later outputs show them.

Of a linear model this is known in closed form, from its Hankel singular values (``linear``, ``truncation``). Of any
other it is the numerical rank of a block of its derivatives, at some inputs. ``maps`` measures it, ``moved`` rounds and
pushes the weights, ``sizes`` counts what is kept, ``section`` reports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from memsweep.config.core.fields import setting
from memsweep.registry import register_measure
from memsweep.stability.optional import Effort, Measure, Subject

if TYPE_CHECKING:
    from memsweep.models.base import Model, Weights
    from memsweep.stability.optional import Measured


@register_measure("capacity")
class Capacity(Measure):
    """How many numbers of the past later outputs show, by singular values.

    The task's first metric has companions of other names: those of rounded and of moved weights.
    """

    table = "singular_values"
    columns: ClassVar[Mapping[str, str]] = {"map": "string", "index": "int64", "value": "float64"}
    needs_derivatives = True
    section = "memsweep.measures.capacity.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How the capacity of a trained model is measured: how many numbers of the past its later outputs show."""

        sequences: int = setting(
            5,
            "test sequences of each seed at which derivatives are taken; sizes are medians over them, of an even "
            "number the lower one. A linear model does not depend on them",
            at_least=1,
        )
        bits: tuple[int, ...] | None = setting(
            None,
            "the block, and the task's metric, again with all weights rounded to symmetric integers of so many "
            "bits (2^bits - 1 values), one scale for each tensor",
            at_least=2,
            at_most=24,
            added=True,
        )
        radii: tuple[float, ...] | None = setting(
            None,
            "the block again within this radius, entrywise: with every weight moved by it, up or down by chance (drawn "
            "from perturbation.seed and the replica's seed); and the lowest size of these weights, the trained ones "
            "and the worst push that a search finds, and the task's metric at that push",
            above=0.0,
            added=True,
        )

    def __init__(self, asked: Config, subject: Subject) -> None:
        super().__init__(asked, subject)
        from memsweep.measures.capacity.moved import MovedWeights

        self.moved = MovedWeights.of(subject, asked.bits or (), asked.radii or ())

    @classmethod
    def cost(cls, asked: Config, effort: Effort) -> float:
        """A search for each radius and, of other than linear models, a gradient for each step behind the middle."""
        from memsweep.stability.block import STEPS

        pushes, trial = len(asked.radii or ()), effort.trial
        total = pushes * effort.search("all", 2)
        if not trial.has_closed_form:
            blocks = 1 + len(asked.bits or ()) + 2 * pushes
            steps = min(STEPS, effort.horizon / 2)
            total += 3 * blocks * asked.sequences * steps / trial.perturbation.test_size
        return total

    def extended(self, measured: Measured) -> Measured:
        return super().extended(self.moved.with_metrics(measured))

    def rows(self, model: Model, weights: Weights, row: int) -> Iterable[Mapping[str, Any]]:
        from memsweep.measures.capacity.maps import map_rows
        from memsweep.streams import TEST, Stream

        stream, seed = Stream(self.subject.config.training.data_seed, TEST), self.subject.pack.replicas[row].seed
        inputs = self.subject.task_loss.draw(stream, seed, self.asked.sequences).inputs
        return map_rows(model, weights, inputs, self.moved.of_replica(row))
