"""The compiled matrix states: answers, the state at the end, and their gradient.

Letters: X leading dimension (replicas, sequences and heads), T time, K size of keys and queries, V size of values.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows

CHUNK = 32
"""Steps between two states that are kept for the way back; those between are computed once more."""


class CompiledMatrix(Kernel):
    """S_t = S_{t-1} (diag(a_t) - r_t e_t') + v_t k_t' and y_t = s S_t q_t, one step after the other.

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    function = "matrix"  # MatrixCall of matrix.cpp
    numbers = ("backward", "items", "horizon", "keys", "values", "decays", "chunk", "kept")
    reals = ("scale",)
    _given = ("query", "key", "value", "decay", "read", "erased")
    tensors = (*_given, "given", "given_left", "states", "answers", *(f"of_{name}" for name in _given), "of_start")

    @classmethod
    def fitting(cls, query_XTK: Tensor) -> Self | None:
        """The recurrence for numbers of this type and place; None where plain torch computes instead."""
        return cls.load(query_XTK.dtype) if query_XTK.device.type == "cpu" else None

    def answers(
        self,
        query_XTK: Tensor,
        key_XTK: Tensor,
        value_XTV: Tensor,
        decay: Tensor | None,
        read_XTK: Tensor | None,
        erased_XTK: Tensor | None,
        start_XVK: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        """y, ``[X, T, V]``, and the state after the last step, ``[X, V, K]``; differentiable once.

        Args:
            query_XTK: q.
            key_XTK: k.
            value_XTV: v.
            decay: a, ``[X, T, 1]`` or ``[X, T, K]``; None: 1.
            read_XTK: r; None: nothing is erased.
            erased_XTK: e; None: k.
            start_XVK: the state before the first step; None: zero.
            scale: s.
        """
        # the kernel always starts from a state: zeros stand for none
        if start_XVK is None:
            start_XVK = value_XTV.new_zeros(len(value_XTV), value_XTV.shape[2], key_XTK.shape[2])
        found: tuple[Tensor, Tensor] = _Run.apply(
            self, scale, query_XTK, key_XTK, value_XTV, decay, read_XTK, erased_XTK, start_XVK
        )
        return found

    def call(self, named: dict[str, Tensor | None], scale: float, backward: bool) -> None:
        """Fills the tensors that are found, and those of states (or of gradients)."""
        query, value, decay, states = (named[name] for name in ("query", "value", "decay", "states"))
        assert query is not None
        assert value is not None
        assert states is not None
        tensors = readable(named, query.dtype)
        self.run(
            tensors,
            shares_of_rows(tensors, "items"),
            backward=backward,
            horizon=query.shape[1],
            keys=query.shape[2],
            values=value.shape[2],
            decays=0 if decay is None else decay.shape[2],
            chunk=CHUNK,
            kept=states.shape[1] - 1,
            scale=scale,
        )

    @classmethod
    def named(cls, tensors: tuple[Tensor | None, ...]) -> dict[str, Tensor | None]:
        """The tensors that are given, by field."""
        return dict(zip(cls._given, tensors, strict=True))


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compiled: CompiledMatrix, scale: float, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        given, start_XVK = compiled.named(tensors[:-1]), tensors[-1]
        value_XTV = given["value"]
        assert value_XTV is not None
        assert start_XVK is not None
        answers_XTV = torch.empty_like(value_XTV, memory_format=torch.contiguous_format)
        # for the way back a state of every chunk, from which the steps between are computed again; else the last alone
        kept = -(-value_XTV.shape[1] // CHUNK) if any(ctx.needs_input_grad) else 1
        states = start_XVK.new_empty(len(start_XVK), 1 + kept, *start_XVK.shape[1:])
        states[:, 0] = start_XVK
        compiled.call({**given, "states": states, "answers": answers_XTV}, scale, backward=False)
        ctx.compiled, ctx.scale = compiled, scale
        ctx.save_for_backward(*given.values(), states)
        return answers_XTV, states[:, -1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        *saved, states = ctx.saved_tensors
        given = ctx.compiled.named(saved)
        found = {
            f"of_{name}": None if tensor is None else torch.empty_like(tensor, memory_format=torch.contiguous_format)
            for name, tensor in {**given, "start": states[:, 0]}.items()
        }
        arriving = {"given": outer[0], "given_left": outer[1]}
        ctx.compiled.call({**given, **found, **arriving, "states": states}, ctx.scale, backward=True)
        return None, None, *found.values()
