"""Computes a rule's gradient step by step, in memory that does not grow with the length of the sequence.

No study trains by it: it is the reference of ``memsweep.rules.batched`` in the tests, and a row of the memory table.

For each layer and sequence three things are kept: the state, and for every part that the rule traces the sensitivity
of each state to its own row of that part, e_t = df(x_t, h_{t-1})/dpart + D_t e_{t-1}. Of an LRU under ``online_full``
that is O(M) for the eigenvalues, O(M) for the gains and O(M F) for the encoder; of any unit, no more than its weights.
The errors of the states come from autograd through the graph of a single step, which is freed before the next.

Letters: see memsweep.models.deep.unit; I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep import registry
from memsweep.errors import one_of
from memsweep.models.base import Weights
from memsweep.models.deep.unit import DeepModel, OnlineUnit, Parts, rest
from memsweep.rules.base import Rule, detached, learning
from memsweep.rules.batched import Batched


class Online:
    """Models that go along one batch of sequences, and the gradient of what they have lost so far.

    Gradients are those of the whole sequences by the same rule (``memsweep.rules.batched``), as long as the weights
    stand still.

    Args:
        model: that computes.
        weights: stacked, ``[N, ..., *shape]``, taken as they are now.
        rule: registered name of a rule that goes forward in time.

    Raises:
        ValueError: the rule does not go forward in time, or does not fit the model.
        KeyError: no rule has this name.
    """

    def __init__(self, model: DeepModel, weights: Weights, rule: str) -> None:
        reason = refusal(rule, model)
        if reason is not None:
            able = [name for name in registry.names(registry.RULE) if refusal(name, model) is None]
            raise ValueError(
                f"the rule {rule} cannot learn step by step here: {reason}. Rules that can: {one_of(able)}"
            )
        self._model = model
        self._weights = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        self._gradient = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        self._recurrence = Stepping(registry.get(registry.RULE, rule)())
        self._shape: torch.Size | None = None

    def step(self, x_BI: Tensor, loss_of: Callable[[Tensor], Tensor]) -> Tensor:
        """Read the next step of every sequence, and add to the gradient what its loss says.

        Args:
            x_BI: ``[B, I]``, with the same B at all steps.
            loss_of: the losses of this step, ``[N, ...]``, from the outputs ``[N, ..., B, 1, O]``; the gradient is
                that of their sum over the steps.

        Returns:
            The losses of this step, ``[N, ...]``.

        Raises:
            ValueError: not one step of the sequences that the first step began.
        """
        self._shape = self._shape or x_BI.shape
        if x_BI.ndim != 2 or x_BI.shape != self._shape:
            raise ValueError(
                f"a step must be [B, I] with the same B at all steps, got {list(x_BI.shape)} after "
                f"{list(self._shape)}: begin other sequences with another Online"
            )
        after = self._recurrence.copy()  # what raises on the way has read nothing
        with torch.enable_grad(), learning(self._model, after):
            loss = loss_of(self._model.outputs(self._weights, x_BI.unsqueeze(1)))
        if loss.requires_grad:  # at steps without a target it need not
            named = self._weights
            found = torch.autograd.grad(loss.sum(), list(named.values()), allow_unused=True)
            for name, value in zip(named, found, strict=True):
                if value is not None:
                    self._gradient[name] += value
        self._recurrence = after
        return loss.detach()

    def gradient(self) -> dict[str, Tensor]:
        """Of the losses of all steps until now, a copy, by the weights' names."""
        return {name: value.clone() for name, value in self._gradient.items()}


def refusal(rule: str, model: DeepModel) -> str | None:
    """Why a model cannot go along a sequence by a rule, given by its registered name; None where it can."""
    found: type[Rule] = registry.get(registry.RULE, rule)
    if not found.forward:
        return "it needs the whole sequence before it can go back"
    return found.refusal(type(model), model.config)


@dataclass(frozen=True)
class _Past:
    """The steps before, as a layer keeps them: states ``[N, B, M]``, and traces ``[N, B, M, ...]`` by part."""

    states: Tensor
    traces: dict[str, Tensor]


class Stepping(Batched):
    """The recurrence of models that learn by a rule and read one step (T = 1) at each call of ``outputs``.

    Args:
        rule: that goes forward in time.
    """

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._pasts: dict[int, _Past] = {}
        self._sum: Tensor | None = None
        self._averaged = 0

    def copy(self) -> Stepping:
        """A copy that goes on from here without moving this one: no tensor is ever changed in its place."""
        found = Stepping(self.rule)
        found._pasts, found._sum, found._averaged = dict(self._pasts), self._sum, self._averaged
        return found

    def states(self, layer: int, unit: OnlineUnit, parts: Parts, x_NBTF: Tensor) -> Tensor:
        traced = {name: part for name, part in parts.items() if name in self.rule.traced(unit)}
        past = self._pasts.get(layer)
        before_NBTM = rest(unit, parts, x_NBTF) if past is None else past.states.unsqueeze(2)
        step_NBTM = unit.advance(detached(parts, traced), x_NBTF, before_NBTM, self.rule.recurrent)
        if not self.rule.trains_layers:
            step_NBTM = step_NBTM.detach()
        traces = {}
        if traced:
            with torch.no_grad():
                traces = self._traces(unit, parts, frozenset(traced), x_NBTF, before_NBTM, past)
            step_NBTM = with_traces(step_NBTM.squeeze(2), traced, traces).unsqueeze(2)
        self._pasts[layer] = _Past(step_NBTM.detach().squeeze(2), traces)
        return step_NBTM

    def average(self, x_NBTF: Tensor) -> Tensor:
        now = x_NBTF.detach()
        self._sum = now if self._sum is None else self._sum + now
        self._averaged += 1
        return self._sum / self._averaged

    @staticmethod
    def _traces(
        unit: OnlineUnit, parts: Parts, traced: frozenset[str], x_NBTF: Tensor, before_NBTM: Tensor, past: _Past | None
    ) -> dict[str, Tensor]:
        found = unit.immediate(parts, x_NBTF.squeeze(2), before_NBTM.squeeze(2))
        if past is None:
            return {name: found[name] for name in traced}
        slope_NBM = unit.slope(parts, x_NBTF, before_NBTM).squeeze(2)
        return {
            name: torch.addcmul(found[name], slope_NBM.reshape(*slope_NBM.shape, *[1] * (found[name].ndim - 3)), trace)
            for name, trace in past.traces.items()
        }


def with_traces(states_NBM: Tensor, parts: Mapping[str, Tensor], traces: Mapping[str, Tensor]) -> Tensor:
    """The states, with derivatives of their own and by some parts besides; differentiable once.

    The sensitivity e of a state by a part gives the part's gradient sum_b conj(e) delta in torch's convention, where
    delta is the gradient of the state; a real part takes the real share of that.

    Args:
        states_NBM: ``[N, B, M]``; their own derivatives stay.
        parts: by name, ``[N, M, ...]``.
        traces: sensitivities of the states by each of these parts, ``[N, B, M, ...]``, constants.
    """
    result: Tensor = _WithTraces.apply(states_NBM, [traces[name] for name in parts], *parts.values())
    return result


class _WithTraces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states_NBM: Tensor, traces: list[Tensor], *parts: Tensor) -> Tensor:
        ctx.real = [not part.is_complex() for part in parts]
        ctx.save_for_backward(*traces)
        return states_NBM.view_as(states_NBM)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta_NBM: Tensor) -> tuple[Any, ...]:
        grads = []
        for trace, real in zip(ctx.saved_tensors, ctx.real, strict=True):
            grad = torch.einsum("nbm,nbm...->nm...", delta_NBM, trace.conj())
            grads.append(grad.real if real else grad)
        return delta_NBM, None, *grads
