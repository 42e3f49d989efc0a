"""What a learning rule is."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor

from memsweep import registry
from memsweep.models.base import Model
from memsweep.models.deep.base import DeepModel
from memsweep.models.deep.unit import Parts, Recurrence, Unit


class Rule(ABC):
    """A way to compute the gradient of the layers of a deep model; stateless.

    Attributes:
        forward: it goes forward in time, step by step (``memsweep.rules.stepping``); otherwise it needs the whole
            sequence.
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

    def traced(self, unit: Unit) -> frozenset[str]:
        """Parts of a unit whose sensitivities are carried from step to step; of the others, one step counts."""
        return frozenset()

    @classmethod
    def refusal(cls, model: type[Model], config: Any) -> str | None:
        """Why a model cannot learn by this rule, ending without a full stop; None where it can."""
        if not cls.forward:
            return None
        if not issubclass(model, DeepModel):
            return f"the model {config.name} has no recurrent unit for which rules are defined (residual_stack has)"
        if cls.exact and not registry.get(registry.UNIT, config.unit.name).elementwise:
            return (
                f"it carries exact sensitivities, and in the unit {config.unit.name} every state feels all others, so "
                "that there would be width times as many of them as weights"
            )
        return model.rule_refusal(config)


def holding_still(parts: Parts, names: Iterable[str]) -> dict[str, Tensor]:
    """The parts, those of these names as constants."""
    still = set(names)
    return {name: part.detach() if name in still else part for name, part in parts.items()}


@contextmanager
def learning(model: DeepModel, recurrence: Recurrence) -> Iterator[None]:
    """While the context lasts, the layers of the model run over time as ``recurrence`` says."""
    usual, model.recurrence = model.recurrence, recurrence
    try:
        yield
    finally:
        model.recurrence = usual
