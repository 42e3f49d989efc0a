"""Computes a rule's gradient of whole sequences, by autograd: states with unchanged values and the rule's derivatives.

The value of a state does not depend on the rule. Its derivatives come from two places (``grafted``):

- one step, from the states before it as constants: errors reach the layer below, and parts that are not traced learn;
- the carried sensitivities: traced parts learn through all steps, while inputs are constants. Time runs backward here,
  as in backpropagation, but within one layer: sum_t delta_t e_t is the same number either way, and the sensitivities
  e_t, which have the shape of the weights for every step, are never stored. The price is memory that grows with the
  sequence.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep import registry
from memsweep.models.base import Model, Weights
from memsweep.models.deep.unit import DeepModel, OnlineUnit, Parts, Recurrence, Unit, before
from memsweep.recurrence.varying import varying_scan
from memsweep.rules.base import Rule, detached, learning


def learning_by(rule: str, model: Model) -> AbstractContextManager[None]:
    """While the context lasts, gradients of the model's outputs are those of a rule, given by its registered name."""
    instance: Rule = registry.get(registry.RULE, rule)()
    if not instance.forward:
        return nullcontext()
    assert isinstance(model, DeepModel), "please report this: a rule for a model that has no units"
    return learning(model, Batched(instance))


class Batched(Recurrence):
    """The recurrence of models that learn by a rule, over whole sequences."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def answers(self, layer: int, unit: Unit, weights: Weights, x_NBTF: Tensor) -> Tensor:
        assert isinstance(unit, OnlineUnit), "please report this: a rule for a unit that says no derivatives"
        return unit.answers(weights, self.states(layer, unit, unit.parts(weights), x_NBTF), x_NBTF)

    def states(self, layer: int, unit: OnlineUnit, parts: Parts, x_NBTF: Tensor) -> Tensor:
        """States of a layer, ``[N, B, T, M]``, with the derivatives of the rule."""
        del layer
        traced = self.rule.traced(unit)
        if traced and unit.elementwise:
            # carrying a step's whole Jacobian is the same as backpropagation through this layer's time
            carried_NBTM = unit.states(detached(parts, unit.part_names - traced), x_NBTF.detach())
            states_NBTM = carried_NBTM.detach()
        else:
            with torch.no_grad():
                # values alone: the derivatives of the rule are grafted on below
                states_NBTM = unit.states(parts, x_NBTF)
            if not self.rule.trains_layers:
                return states_NBTM
            carried_NBTM = self._carried(unit, parts, traced, x_NBTF.detach(), states_NBTM) if traced else states_NBTM
        # traced parts are constants here: they learn by what is carried, and count once
        step_NBTM = unit.advance(detached(parts, traced), x_NBTF, before(states_NBTM), self.rule.recurrent)
        return grafted(states_NBTM, step_NBTM, carried_NBTM)

    def features(self, x_NBTF: Tensor) -> Tensor:
        return x_NBTF if self.rule.trains_layers else x_NBTF.detach()

    def _carried(
        self, unit: OnlineUnit, parts: Parts, traced: frozenset[str], x_NBTF: Tensor, states_NBTM: Tensor
    ) -> Tensor:
        """A tensor with the derivative sum_s D_t ... D_{s+1} df_s/dparts; its value is not used.

        D is the diagonal of a step's Jacobian.
        """
        own, earlier = detached(parts, unit.part_names - traced), before(states_NBTM)
        with torch.no_grad():
            # D multiplies the sensitivities as a number: the rule has no derivative of it
            slope_NBTM = unit.slope(parts, x_NBTF, earlier)
        return varying_scan(slope_NBTM, unit.advance(own, x_NBTF, earlier))


def grafted(value: Tensor, *sources: Tensor) -> Tensor:
    """The value as it is, bit by bit, with the sum of the derivatives of tensors of its shape; differentiable once."""
    result: Tensor = _Grafted.apply(value, *sources)
    return result


class _Grafted(torch.autograd.Function):
    """Identity on its first argument, forward; the same gradient to all others, backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *sources: Tensor) -> Tensor:
        del ctx, sources
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(grad if needed else None for needed in ctx.needs_input_grad[1:])
