"""Models that go step by step, with a say in what is kept of their states.

Letters: N models, K copies, B batch, T time, M width, F features, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from memsweep.models.base import Model, Weights, as_layer
from memsweep.models.contracts import default_dtype
from memsweep.models.deep.unit import DeepModel, Recurrence, State, Unit
from memsweep.models.module.model import Module
from memsweep.models.module.steps import Stepping, first_state
from memsweep.recurrence.activations import activation_named
from memsweep.recurrence.layer import Layer
from memsweep.rules.base import learning

Keep = Callable[[str, Tensor], Tensor]
"""What is kept of the states after a step, by their name: ``[N, K, B, ...] -> [N, K, B, ...]``, real."""
Run = Callable[[Keep, int], Tensor]
"""Outputs ``[N, K, B, T, O]`` of K copies of models; what is kept of their states after a step goes into the next."""


def run_of(model: Model, weights: Weights, inputs: Tensor) -> Run:
    """How models go step by step.

    The readout of a single layer sees what is kept. A deep model and a module store it for the next step, and answer
    from the state before it is stored.

    Args:
        model: one recurrent layer, a deep model, or a module with a step form.
        weights: ``[N, *shape]``.
        inputs: ``[B, T, I]``, or of a module that reads ids ``[B, T]``.
    """
    if isinstance(model, DeepModel):
        return partial(_stack_outputs, model, weights, inputs)
    if isinstance(model, Module):
        return partial(_module_outputs, model, weights, inputs)
    single = as_layer(model)
    assert single is not None, "please report this: states of a model without a step form were to be rounded"
    return partial(layer_outputs, single.layer(weights), inputs)


class _Stepped(Recurrence):
    """Layers that run by their units' steps."""

    def __init__(self, keep: Keep, copies: int) -> None:
        self._keep, self._copies = keep, copies

    def answers(self, layer: int, unit: Unit, weights: Weights, x_NBTF: Tensor) -> Tensor:
        state: State | None = None
        answers = []
        for x_NBF in x_NBTF.unbind(2):
            answer_NBF, after = unit.step(weights, x_NBF, state)
            state = {name: self._kept(f"{layer}.{name}", value) for name, value in after.items()}
            answers.append(answer_NBF)
        return torch.stack(answers, 2)

    def _kept(self, name: str, value: Tensor) -> Tensor:
        if not (value.is_floating_point() or value.is_complex()):  # a count of steps
            return value
        real = torch.view_as_real(value) if value.is_complex() else value
        kept = self._keep(name, real.unflatten(0, (-1, self._copies))).flatten(0, 1)
        return torch.view_as_complex(kept.contiguous()) if value.is_complex() else kept


def _stack_outputs(model: DeepModel, weights: Weights, inputs: Tensor, keep: Keep, copies: int) -> Tensor:
    copied = {name: value.unsqueeze(1).expand(-1, copies, *value.shape[1:]) for name, value in weights.items()}
    with learning(model, _Stepped(keep, copies)):
        return model.outputs(copied, inputs)


def _module_outputs(model: Module, weights: Weights, inputs: Tensor, keep: Keep, copies: int) -> Tensor:
    """The copies of a replica are one batch; a state's dimension of that size is the batch."""
    stepping, rows = Stepping(model.module), copies * len(inputs)
    repeated, outputs = inputs.repeat(copies, *[1] * (inputs.ndim - 1)), []
    for place in range(len(next(iter(weights.values())))):
        own = model.state_of({name: value[place] for name, value in weights.items()})
        given = {f"module.{name}": value.to(inputs.device) for name, value in own.items()}
        with default_dtype(next(iter(weights.values())).dtype):
            state, answers = first_state(model.module, rows), []
            for x in repeated.unbind(1):
                answer, after = torch.func.functional_call(stepping, given, (x, state))
                state = _kept_leaves(after, rows, copies, partial(_of_replica, keep, place))
                answers.append(answer)
        outputs.append(torch.stack(answers, 1).unflatten(0, (copies, -1)))
    return torch.stack(outputs)


def _of_replica(keep: Keep, place: int, leaf: int, states_KB: Tensor) -> Tensor:
    return keep(f"{place}.{leaf}", states_KB.unsqueeze(0)).squeeze(0)


def _kept_leaves(state: Any, rows: int, copies: int, keep: Callable[[int, Tensor], Tensor]) -> Any:
    leaves, tree = tree_flatten(state)
    kept = []
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and rows in leaf.shape:
            batch = leaf.shape.index(rows)
            leaf = keep(number, leaf.movedim(batch, 0).unflatten(0, (copies, -1))).flatten(0, 1).movedim(0, batch)
        kept.append(leaf)
    return tree_unflatten(kept, tree)


def layer_outputs(layer: Layer, inputs_BTI: Tensor, keep: Keep, copies: int) -> Tensor:
    """Outputs ``[N, K, B, T, O]`` of K copies of layers, step by step, which read what is kept of their states.

    Args:
        layer: of N models.
        inputs_BTI: the same for all of them.
        keep: is called after every step.
        copies: K.
    """
    batch, horizon, _ = inputs_BTI.shape
    states_NKBM = inputs_BTI.new_zeros(layer.models, copies, batch, layer.width)
    outputs_NKBTO = inputs_BTI.new_empty(layer.models, copies, batch, horizon, layer.outputs)
    for time in range(horizon):
        drive_NBM = torch.einsum("nmi,bi->nbm", layer.encoder, inputs_BTI[:, time]) + layer.bias.unsqueeze(1)
        added = _coupled(layer.matrix, states_NKBM) + drive_NBM.unsqueeze(1)
        activation_named(layer.activation).apply_(added)
        states_NKBM = keep("states", layer.leak * states_NKBM + layer.gain * added)
        seen = states_NKBM.clone()
        activation_named(layer.output).apply_(seen)
        outputs_NKBTO[:, :, :, time] = torch.einsum("nkbm,nom->nkbo", seen, layer.readout) + layer.offset[:, None, None]
    return outputs_NKBTO


def _coupled(matrix: Tensor, states_NKBM: Tensor) -> Tensor:
    """A h for diagonals ``[N, M]`` and matrices ``[N, M, M]``."""
    if matrix.ndim == 2:
        return matrix[:, None, None] * states_NKBM
    return (states_NKBM.flatten(1, 2) @ matrix.mT).unflatten(1, states_NKBM.shape[1:3])
