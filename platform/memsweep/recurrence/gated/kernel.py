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
    """The states and their gradient, for which the gates of each step are kept.

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    function = "gated"  # GatedCall of gated.cpp
    numbers = ("cells", "backward", "models", "batch", "horizon", "features", "width", "steps")
    tensors = (
        *("matrix", "encoder", "bias", "recalled", "x", "given", "states", "kept", "carried", "of_x"),
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

    def states(self, given: _Named, kept: _Named | None = None) -> Tensor:
        """``[N, B, T, M]``, a new tensor, from input and weights; ``kept`` gets what ``gradients`` needs besides."""
        x_NBTF, width = _read(given)
        states_NBTM = x_NBTF.new_empty(*x_NBTF.shape[:3], width)
        self._run({**given, **(kept or {}), "states": states_NBTM})
        return states_NBTM

    def room(self, given: _Named) -> _Named:
        """For the gates of each step, and what is carried into each part of the sequences (h, or c and h)."""
        x_NBTF, width = _read(given)
        models, batch, horizon, _ = x_NBTF.shape
        parts, each = -(-horizon // _steps(width)), 2 if given["recalled"] is None else 1
        return {
            "kept": x_NBTF.new_empty(models, batch, horizon, 4 * width),
            "carried": x_NBTF.new_empty(models, parts, each, batch, width),
        }

    def gradients(self, given: _Named, kept: _Named, grad_NBTM: Tensor, of_x: bool) -> _Named:
        """By weights, and by the input where that is wanted."""
        found = {
            name: None if tensor is None else torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for name, tensor in given.items()
            if name != "x"
        }
        found["x"] = grad_NBTM.new_empty(_read(given)[0].shape) if of_x else None
        wanted = {f"of_{name}": tensor for name, tensor in found.items()}
        self._run({**given, **kept, **wanted, "given": grad_NBTM})
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
        kept = compiled.room(given)
        ctx.compiled = compiled
        ctx.save_for_backward(*tensors, *kept.values())
        return compiled.states(given, kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        *tensors, gates, carried = ctx.saved_tensors
        given = dict(zip(_NAMES, tensors, strict=True))
        kept = {"kept": gates, "carried": carried}
        found = ctx.compiled.gradients(given, kept, outer[0], of_x=ctx.needs_input_grad[1])
        return None, *(found.get(name) for name in _NAMES)
