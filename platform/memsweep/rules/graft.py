"""Derivatives of one's own choice on a value that is given: what a learning rule does to states.

Letters: see memsweep.models.deep.unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def grafted(value: Tensor, *sources: Tensor) -> Tensor:
    """The value as it is, bit by bit, with the sum of the derivatives of tensors of its shape; differentiable once."""
    found: Tensor = _Grafted.apply(value, *sources)
    return found


def with_traces(states_NBM: Tensor, parts: Mapping[str, Tensor], traces: Mapping[str, Tensor]) -> Tensor:
    """The states, with derivatives of their own and by some parts besides; differentiable once.

    The sensitivity e of a state by a part gives the part's gradient sum_b conj(e) delta in torch's convention, where
    delta is the gradient of the state; a real part takes the real share of that.

    Args:
        states_NBM: ``[N, B, M]``; their own derivatives stay.
        parts: by name, ``[N, M, ...]``.
        traces: sensitivities of the states by each of these parts, ``[N, B, M, ...]``, constants.
    """
    found: Tensor = _WithTraces.apply(states_NBM, [traces[name] for name in parts], *parts.values())
    return found


class _Grafted(torch.autograd.Function):
    """Identity on its first argument, forward; the same gradient to all others, backward."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *sources: Tensor) -> Tensor:
        del ctx, sources
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(grad if wanted else None for wanted in ctx.needs_input_grad[1:])


class _WithTraces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states_NBM: Tensor, traces: list[Tensor], *parts: Tensor) -> Tensor:
        ctx.real = [not part.is_complex() for part in parts]
        ctx.save_for_backward(*traces)
        return states_NBM.view_as(states_NBM)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta_NBM: Tensor) -> tuple[Any, ...]:
        pulled = []
        for trace, real in zip(ctx.saved_tensors, ctx.real, strict=True):
            found = torch.einsum("nbm,nbm...->nm...", delta_NBM, trace.conj())
            pulled.append(found.real if real else found)
        return delta_NBM, None, *pulled
