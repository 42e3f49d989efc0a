"""The compiled gated layers, GRU and LSTM: states and their gradient.

Letters: N leading dimension (replicas and copies), B batch, T time, F features of the input, M width, G = 3 M (GRU) or
4 M (LSTM).
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows

_NAMES = ("x", "encoder", "bias", "matrix", "recalled")
_Named = dict[str, Tensor | None]


class CompiledGated(Kernel):
    """The states and their gradient. Backward runs forward once more; of the states, one in some steps is kept for it.

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    function = "gated"  # GatedCall of gated.cpp
    numbers = ("cells", "backward", "models", "batch", "horizon", "features", "width", "steps")
    tensors = (
        *("matrix", "encoder", "bias", "recalled", "x", "given", "states", "carried", "of_x"),
        *("of_matrix", "of_encoder", "of_bias", "of_recalled"),
    )

    @classmethod
    def fitting(cls, x_NBTF: Tensor) -> Self | None:
        """The layers for numbers of this type and place; None where plain torch computes instead."""
        on_processor = x_NBTF.device.type == "cpu" and not x_NBTF.is_complex()
        return cls.load(x_NBTF.dtype) if on_processor else None

    def layer(
        self,
        x_NBTF: Tensor,
        encoder_NGF: Tensor,
        bias_NG: Tensor,
        matrix_NGM: Tensor,
        recalled_NM: Tensor | None = None,
    ) -> Tensor:
        """States ``[N, B, T, M]``, differentiable once: of a GRU, or without what it recalls besides of an LSTM."""
        tensors = (x_NBTF, encoder_NGF, bias_NG, matrix_NGM, recalled_NM)
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
            states: Tensor = _Layer.apply(self, *tensors)
            return states
        return self.states(dict(zip(_NAMES, tensors, strict=True)))

    def states(self, given: _Named, carried: Tensor | None = None) -> Tensor:
        """``[N, B, T, M]``, a new tensor, from input and weights; ``carried`` gets what ``gradients`` needs of them."""
        x_NBTF, width = _read(given)
        states_NBTM = x_NBTF.new_empty(*x_NBTF.shape[:3], width)
        self._run({**given, "states": states_NBTM, "carried": carried})
        return states_NBTM

    def carried(self, given: _Named) -> Tensor:
        """Room for what is carried into every part of the sequences, ``[N, parts, 1 or 2, B, M]``."""
        x_NBTF, width = _read(given)
        models, batch, horizon, _ = x_NBTF.shape
        parts, each = -(-horizon // _steps(width)), 2 if given["recalled"] is None else 1
        return x_NBTF.new_empty(models, parts, each, batch, width)

    def gradients(self, given: _Named, carried: Tensor, grad_NBTM: Tensor, of_x: bool) -> _Named:
        """By weights, and by the input where that is wanted."""
        found = {
            name: None if tensor is None else torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for name, tensor in given.items()
            if name != "x" or of_x
        }
        wanted = {f"of_{name}": tensor for name, tensor in found.items()}
        self._run({**given, **wanted, "carried": carried, "given": grad_NBTM})
        return found

    def _run(self, named: _Named) -> None:
        x_NBTF, width = _read(named)
        tensors = readable(named, x_NBTF.dtype)
        _, batch, horizon, features = x_NBTF.shape
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            cells="recalled" not in tensors,
            backward="given" in named,
            batch=batch,
            horizon=horizon,
            features=features,
            width=width,
            steps=_steps(width),
        )


def _read(given: _Named) -> tuple[Tensor, int]:
    """The input, and the width."""
    x_NBTF, matrix_NGM = given["x"], given["matrix"]
    assert x_NBTF is not None
    assert matrix_NGM is not None
    return x_NBTF, matrix_NGM.shape[2]


def _steps(width: int) -> int:
    """How many steps are gone at a time: as many as stay in the cache, by the width alone."""
    return max(8, 1024 // width)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compiled: CompiledGated, *tensors: Tensor | None) -> Tensor:
        given = dict(zip(_NAMES, tensors, strict=True))
        carried = compiled.carried(given)
        ctx.compiled = compiled
        ctx.save_for_backward(carried, *tensors)
        return compiled.states(given, carried)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        carried, *tensors = ctx.saved_tensors
        given = dict(zip(_NAMES, tensors, strict=True))
        found = ctx.compiled.gradients(given, carried, outer[0], of_x=ctx.needs_input_grad[1])
        return None, *(found.get(name) for name in _NAMES)
