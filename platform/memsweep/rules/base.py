"""The base class of learning rules, and how a model learns by one."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from memsweep import registry
from memsweep.errors import one_of
from memsweep.models.base import Model
from memsweep.models.deep.unit import DeepModel, OnlineUnit, Parts, Recurrence
from memsweep.models.registered import fitting_rules

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


class Rule(ABC):
    """A way to compute the gradient of the layers of a deep model; stateless.

    Attributes:
        forward: it could go forward in time, step by step; otherwise it needs the whole sequence.
        recurrent: the derivative of one step by the recurrent weights is part of the gradient.
        exact: sensitivities are carried exactly, which elementwise recurrences alone allow at the cost of their
            weights; otherwise the diagonal of a step's Jacobian stands for all of it.
        trains_layers: the gradient goes below the readout at all.
    """

    Config: ClassVar[type]
    forward: ClassVar[bool] = True
    recurrent: ClassVar[bool] = True
    exact: ClassVar[bool] = False
    trains_layers: ClassVar[bool] = True

    def traced(self, unit: OnlineUnit) -> frozenset[str]:
        """The parts of a unit whose sensitivities are carried from step to step; none by default.

        The other parts learn from single steps.
        """
        return frozenset()

    @classmethod
    def refusal(cls, model: type[Model], config: Any) -> str | None:
        """Why a model cannot learn by this rule, ending without a full stop; None where it can."""
        if not cls.forward:
            return None
        if not issubclass(model, DeepModel):
            return f"the model {config.name} has no recurrent unit for which rules are defined (residual_stack has)"
        unit = registry.get(registry.UNIT, config.unit.name)
        if not issubclass(unit, OnlineUnit):
            return (
                f"the unit {config.unit.name} does not give the derivatives of its steps, by which rules go forward in "
                f"time. Units that do: {one_of(online_units())}"
            )
        if cls.exact and not unit.elementwise:
            return (
                f"it carries exact sensitivities, and in the unit {config.unit.name} every state feels all others, so "
                "that there would be width times as many of them as weights"
            )
        return model.rule_refusal(config)

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        """Why a trial cannot be trained by this rule, a sentence without a full stop each; nothing where it can."""
        model, training = registry.get(registry.MODEL, trial.model.name), trial.training
        if reason := cls.refusal(model, trial.model):
            able = one_of(fitting_rules(model, trial.model))
            yield f"training.rule is {training.rule}, but {reason}. Rules for this model: {able}"
        by_pattern = (("parameter_groups weight_decay", each.weight_decay) for each in training.parameter_groups)
        moving = [f"training.{name} {value:g}" for name, value in (*training.shrinking(), *by_pattern) if value]
        if moving and not cls.trains_layers:
            yield (
                f"training.rule is {training.rule}, by which layers keep their initial weights, but "
                f"{' and '.join(moving)} would move them: set 0"
            )
        if cls.forward and trial.has_closed_form and training.objective == "population":
            yield (
                f"training.objective is population, but the rule {training.rule} goes through sequences step by step: "
                "use minibatch, or the rule bptt"
            )


def online_units() -> list[str]:
    """Names of the units that rules can train forward in time."""
    units = registry.names(registry.UNIT)
    return [name for name in units if issubclass(registry.get(registry.UNIT, name), OnlineUnit)]


def detached(parts: Parts, names: Iterable[str]) -> dict[str, Tensor]:
    """The parts, with the named ones as constants."""
    constant = set(names)
    return {name: part.detach() if name in constant else part for name, part in parts.items()}


@contextmanager
def learning(model: DeepModel, recurrence: Recurrence) -> Iterator[None]:
    """While the context lasts, the layers of the model run over time as ``recurrence`` says."""
    usual, model.recurrence = model.recurrence, recurrence
    try:
        yield
    finally:
        model.recurrence = usual
