"""The capacity of states: how much of the targets their best linear readout explains.

The capacity for one target is the share of its variance that a linear readout of the states explains at most, and the
capacity of the states is the sum over targets (Dambre et al. 2012). Where the targets are the inputs of k = 1, 2, ...
steps ago, each share is a squared correlation, and their sum is Jaeger's memory capacity (2001). It is at most the
number of independent states. ``fit`` finds it by least squares, ``section`` reports it.
"""

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


@register_measure("linear_readout")
class LinearReadout(Measure):
    """How much of the targets the best linear readout of the trained states explains, beside the trained readout.

    By least squares; of white noise repeated after delays it is Jaeger's memory capacity.
    """

    table = "linear_readout"
    columns: ClassVar[Mapping[str, str]] = {"best": "float64", "trained": "float64", "states": "int64"}
    grows: ClassVar[Mapping[str, str]] = {
        "best": "capacity by the best linear readout (least squares)",
        "trained": "capacity by the trained readout",
    }
    section = "memsweep.measures.linear_readout.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How the best linear readout of the trained states is found."""

        sequences: int = setting(
            512,
            "test sequences of each seed from whose states the targets are fitted; shares of variance are corrected "
            "for the number of states, and are nan where there are no more steps than states",
            at_least=1,
        )

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        from memsweep.data.task import Task

        task = registry.get(registry.TASK, trial.task.name)
        if task.squared_weights is Task.squared_weights:
            yield (
                f"perturbation.linear_readout is set, but the loss of the task {trial.task.name} is no squared error "
                "of numbers, which least squares would fit: leave it out"
            )
        why = [] if _has_modes(trial) else registry.get(registry.MODEL, trial.model.name).problems_of_states(trial)
        for each in why:
            yield f"perturbation.linear_readout reads states, but {each}: leave it out"

    @classmethod
    def problems_without_steps(cls, asked: Config, module: str) -> Iterator[str]:
        yield (
            f"perturbation.linear_readout reads states, but {module} has no method step(x, state) that gives "
            "(y, state): write one, or leave it out"
        )

    @classmethod
    def cost(cls, asked: Config, effort: Effort) -> float:
        """An evaluation of the sequences."""
        return asked.sequences / effort.trial.perturbation.test_size

    def rows(self, model: Model, weights: Weights, row: int) -> Iterable[Mapping[str, Any]]:
        from memsweep.measures.linear_readout.fit import capacity
        from memsweep.streams import TEST, Stream

        replica = self.subject.pack.ensemble.replicas[row]
        task, stream = self.subject.tasks[replica.trial], Stream(self.subject.config.training.data_seed, TEST)
        return [capacity(model, weights, task, task.draw(stream, replica.seed, self.asked.sequences))._asdict()]


def _has_modes(trial: TrialConfig) -> bool:
    """Whether the model of a trial is a sum of modes, such as lru, whose states follow from its weights."""
    from memsweep.measures.linear_readout.fit import modes_of
    from memsweep.models.base import Signature

    part, task = registry.get(registry.MODEL, trial.model.name), registry.get(registry.TASK, trial.task.name)
    if not part.traits(trial.model).separate_modes:
        return False
    made = task(trial.task)
    model = part(trial.model, Signature(made.inputs, made.outputs, made.horizon))
    weights = {name: value.detach().unsqueeze(0) for name, value in model.named_parameters()}
    return made.inputs == 1 and modes_of(model, weights) is not None
