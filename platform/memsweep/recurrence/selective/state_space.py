"""Selective state-space layers in compiled code, from the input to the answer.

    h_t = exp(-Delta_t r) h_{t-1} + Delta_t B_t x_t,   y_t = R (C_t . h_t + d x_t),   Delta_t = softplus(z_t + b)

with z, B, x and C linear maps of the input u. Maps, step size, decay, recurrence and readout are one pass over a few
sequences at a time. States never go to memory but for those between two chunks of steps, from which the way back
computes the others once more. Torch takes some hundred passes over series of states.

Letters: N replicas, B batch, T time, F features, H heads, D channels, S states of a channel, M = D S, W = H + S + D + S
maps of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows

CHUNK = 16
"""Steps between two states that are kept for the way back; those between are computed once more."""
_VECTOR = 64
"""Bytes of the widest vector of any processor: sequences fill whole ones."""
_WEIGHTS = ("step", "input", "candidate", "output", "bias", "rate", "skip", "readout")


class CompiledStateSpace(Kernel):
    """The layer without autograd. The numbers of one replica depend neither on the others nor on threads."""

    function = "state_space"  # StateSpaceCall of state_space.cpp
    numbers = ("backward", "models", "batch", "horizon", "features", "heads", "channels", "states", "chunk")
    tensors = (
        *("read", "given", "step", "input", "candidate", "output", "bias", "rate", "skip", "readout"),
        *("kept", "answers", "of_read", *(f"of_{name}" for name in _WEIGHTS)),
    )

    @classmethod
    def fitting(cls, x_NBTF: Tensor) -> Self | None:
        """The layer for numbers of this type and place; None where plain torch computes instead."""
        return cls.load(x_NBTF.dtype) if x_NBTF.device.type == "cpu" else None

    def answers(self, x_NBTF: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """y, ``[N, B, T, F]``; differentiable once.

        Args:
            x_NBTF: u.
            weights: maps ``step`` ``[N, H, F]``, ``input`` and ``output`` ``[N, S, F]``, ``candidate`` ``[N, D, F]``;
                ``bias`` b ``[N, H]``, ``rate`` r ``[N, M]``, ``skip`` d ``[N, D]``, ``readout`` R ``[N, F, D]``.
        """
        found: Tensor = _Run.apply(self, x_NBTF, *(weights[name] for name in _WEIGHTS))
        return found

    def kept(self, x_NBTF: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        """Room for the maps and for a state of every chunk, of sequences that fill whole vectors."""
        models, batch, horizon, _ = x_NBTF.shape
        maps = sum(given[name].shape[1] for name in ("step", "input", "candidate", "output"))
        numbers = horizon * maps + -(-horizon // CHUNK) * given["rate"].shape[1]
        lanes = _VECTOR // x_NBTF.element_size()
        return x_NBTF.new_empty(models, -(-batch // lanes), numbers, lanes)

    def call(self, named: dict[str, Tensor], backward: bool) -> None:
        """Fills ``answers`` and what is ``kept``, or the gradients."""
        tensors = readable(named, named["read"].dtype)
        _, batch, horizon, features = tensors["read"].shape
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            backward=backward,
            batch=batch,
            horizon=horizon,
            features=features,
            heads=tensors["step"].shape[1],
            channels=tensors["candidate"].shape[1],
            states=tensors["input"].shape[1],
            chunk=CHUNK,
        )


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compiled: CompiledStateSpace, x_NBTF: Tensor, *weights: Tensor) -> Tensor:
        given = {"read": x_NBTF, **dict(zip(_WEIGHTS, weights, strict=True))}
        answers_NBTF = torch.empty_like(x_NBTF, memory_format=torch.contiguous_format)
        kept = {"kept": compiled.kept(x_NBTF, given)} if any(ctx.needs_input_grad) else {}
        compiled.call({**given, **kept, "answers": answers_NBTF}, backward=False)
        ctx.compiled = compiled
        ctx.save_for_backward(*given.values(), *kept.values())
        return answers_NBTF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        given = dict(zip(("read", *_WEIGHTS, "kept"), ctx.saved_tensors, strict=True))
        found = {
            f"of_{name}": torch.empty_like(given[name], memory_format=torch.contiguous_format)
            for name in ("read", *_WEIGHTS)
        }
        ctx.compiled.call({**given, **found, "given": outer[0]}, backward=True)
        return None, *found.values()
