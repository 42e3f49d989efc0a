"""Recurrences whose steps have gains of their own, and activations with a threshold: see ``gained_scan``.

The gradient is written by hand. Let g_t be the gradient of h_t through everything, l_t what of it arrives from outside,
and f'_t the derivative of a step's answer by its pre-activation a_t. Time runs backward as

    g_{t-1} = l_{t-1} + V' e_t,    e_t = f'_t g_t = dL/dx_t,    dL/dV = sum_t e_t h_{t-1}' .

On a processor compiled code computes these (``compiled.gained_calls``), whose numbers depend neither on the other
models of a stack nor on threads. On a GPU, or where nothing can be compiled, plain torch does (``PlainGained``). Either
is tested against a plain loop.

Letters: N leading dimension (replicas and copies), B batch, T time, S some steps, M width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.cell import (
    Cell,
    CellGradients,
    check_cell,
    evaluate,
    gain_slopes,
    gains_of_steps,
    slopes,
    threshold_slopes,
)
from memsweep.recurrence.compiled.gained_calls import CompiledGained

_AT_ONCE = 2**18
"""Numbers for which slopes are computed at once: they stay in the cache until their steps come."""


class Implementation(Protocol):
    """The recurrence without autograd; the cell's gains are those of the steps, ``[N, T]``."""

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """States ``[N, B, T, M]``, a new tensor; with ``keep`` also the pre-activations, which ``gradients`` needs."""

    def gradients(
        self, grad_NBTM: Tensor, inner_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, required: frozenset[str]
    ) -> CellGradients:
        """Gradients, by those of the states and by the pre-activations.

        Args:
            grad_NBTM: gradients of the states.
            inner_NBTM: pre-activations.
            matrix_NMM, cell: as for ``states``.
            required: of ``threshold``, ``gains`` and ``before``.
        """

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        """The matrix's gradient, sum over b and t of e_t h_{t-1}', ``[N, M, M]``; e: the gradients of the drive."""


def gained_scan(drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None = None) -> Tensor:
    """States of h_t = f_t(x_t + V h_{t-1}), where the cell says what f_t is; differentiable once.

    Differentiable by drive, matrix, threshold, gains and the state before. At corners of an activation its derivative
    is that of memsweep.recurrence.cell.

    Args:
        drive_NBTM: x, ``[N, B, T, M]``, real.
        matrix_NMM: V, ``[N, M, M]``, applied as V h.
        cell: f; where a sequence is longer than its gains, the last one goes on.
        before_NBM: h_{-1}, ``[N, B, M]``; None: zeros.

    Returns:
        States ``[N, B, T, M]``, contiguous.

    Raises:
        ValueError: an unknown activation, or shapes or dtypes that do not fit.
    """
    _check(drive_NBTM, matrix_NMM, cell, before_NBM)
    horizon = drive_NBTM.shape[2]
    if not horizon:
        return drive_NBTM.clone()
    gains_NT = None if cell.gains is None else gains_of_steps(cell.gains, horizon)
    tensors = drive_NBTM, matrix_NMM, cell.threshold, gains_NT, before_NBM
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        states_NBTM: Tensor = _Gained.apply(cell, *tensors)
        return states_NBTM
    with torch.no_grad():
        of_steps = replace(cell, gains=gains_NT)
        return _implementation(drive_NBTM).states(drive_NBTM, matrix_NMM, of_steps, before_NBM, keep=False)[0]


def cell_slopes(pre_activations_NBM: Tensor, cell: Cell, step: int) -> Tensor:
    """dh_t / da_t of one step, ``[N, B, M]``: a step's Jacobian by the state before is this times the rows of V.

    Args:
        pre_activations_NBM: a_t, ``[N, B, M]``.
        cell: what a step does.
        step: t, from 0; beyond the gains the last one goes on.

    Raises:
        ValueError: an unknown activation, or shapes or dtypes that do not fit.
    """
    leading, _, width = pre_activations_NBM.shape
    check_cell(cell, leading, width, pre_activations_NBM.dtype)
    gains_N1 = None if cell.gains is None else gains_of_steps(cell.gains, step + 1)[:, step:]
    a_N1BM = pre_activations_NBM.unsqueeze(1)
    return slopes(a_N1BM, cell, gains_N1, evaluate(a_N1BM, cell, gains_N1)).squeeze(1)


def _check(drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None) -> None:
    if drive_NBTM.ndim != 4 or drive_NBTM.is_complex():
        raise ValueError(f"a drive is real, [N, B, T, M], got {list(drive_NBTM.shape)} of {drive_NBTM.dtype}")
    leading, batch, _, width = drive_NBTM.shape
    expected = {"matrix": (matrix_NMM, [leading, width, width]), "state before": (before_NBM, [leading, batch, width])}
    for what, (tensor, shape) in expected.items():
        if tensor is None:
            continue
        if list(tensor.shape) != shape:
            raise ValueError(f"a drive {list(drive_NBTM.shape)} needs a {what} {shape}, got {list(tensor.shape)}")
        if tensor.dtype != drive_NBTM.dtype:
            raise ValueError(f"the {what} must have the drive's dtype, {drive_NBTM.dtype}, got {tensor.dtype}")
    check_cell(cell, leading, width, drive_NBTM.dtype)


def _implementation(drive: Tensor) -> Implementation:
    compiled = CompiledGained.load(drive.dtype) if drive.device.type == "cpu" else None
    return compiled or PlainGained()


class PlainGained:
    """``Implementation`` in plain torch, step after step.

    Both directions go in place through series that lie time before batch, ``[N, T, B, M]``: a step is one product
    and the cell's function. Slopes do not depend on later steps, so they are computed for many steps at once.
    """

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        leading, batch, horizon, width = drive_NBTM.shape
        inner_NTBM = drive_NBTM.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        states_NTBM = torch.empty_like(inner_NTBM) if keep else inner_NTBM
        transposed_NMM = matrix_NMM.mT.contiguous()
        state_NBM = drive_NBTM.new_zeros(leading, batch, width) if before_NBM is None else before_NBM
        for step in range(horizon):
            a_NBM = inner_NTBM[:, step]
            if step or before_NBM is not None:
                a_NBM.baddbmm_(state_NBM, transposed_NMM)
            gains_N1 = None if cell.gains is None else cell.gains[:, step : step + 1]
            state_NBM = states_NTBM[:, step]
            state_NBM.copy_(evaluate(a_NBM.unsqueeze(1), cell, gains_N1).states.squeeze(1))
        return states_NTBM.transpose(1, 2).contiguous(), inner_NTBM.transpose(1, 2) if keep else None

    def gradients(
        self, grad_NBTM: Tensor, inner_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, required: frozenset[str]
    ) -> CellGradients:
        leading, batch, horizon, width = grad_NBTM.shape
        grads_NTBM = grad_NBTM.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        inner_NTBM = inner_NBTM.transpose(1, 2)
        of_threshold_NM = grad_NBTM.new_zeros(leading, width) if "threshold" in required else None
        of_gains_NT = grad_NBTM.new_empty(leading, horizon) if "gains" in required else None
        of_before_NBM = grad_NBTM.new_zeros(leading, batch, width) if "before" in required else None
        size = max(1, _AT_ONCE // max(1, leading * batch * width))
        for last in range(horizon, 0, -size):
            first = max(0, last - size)
            chosen = slice(first, last)
            a_NSBM = inner_NTBM[:, chosen]
            gains_NS = None if cell.gains is None else cell.gains[:, chosen]
            value = evaluate(a_NSBM, cell, gains_NS)
            slopes_NSBM = slopes(a_NSBM, cell, gains_NS, value)
            arriving_NSBM = torch.empty_like(slopes_NSBM) if {"threshold", "gains"} & required else None
            # grads_NTBM is overwritten in place: g_t arrives complete at its step, and becomes e_t = f'_t g_t
            for step in range(last - 1, first - 1, -1):
                grad_NBM = grads_NTBM[:, step]
                if arriving_NSBM is not None:
                    arriving_NSBM[:, step - first] = grad_NBM
                grad_NBM.mul_(slopes_NSBM[:, step - first])
                target_NBM = grads_NTBM[:, step - 1] if step else of_before_NBM
                if target_NBM is not None:
                    target_NBM.baddbmm_(grad_NBM, matrix_NMM)
            if arriving_NSBM is not None and of_threshold_NM is not None:
                of_threshold_NM += (arriving_NSBM * threshold_slopes(value)).sum((1, 2))
            if arriving_NSBM is not None and of_gains_NT is not None:
                of_gains_NT[:, chosen] = (arriving_NSBM * gain_slopes(a_NSBM, cell, value)).sum((2, 3))
        return CellGradients(grads_NTBM.transpose(1, 2).contiguous(), of_threshold_NM, of_gains_NT, of_before_NBM)

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        later_NKM, earlier_NKM = errors_NBTM[:, :, 1:].flatten(1, 2), states_NBTM[:, :, :-1].flatten(1, 2)
        products_NMM = later_NKM.mT @ earlier_NKM
        return products_NMM if before_NBM is None else products_NMM.baddbmm_(errors_NBTM[:, :, 0].mT, before_NBM)


class _Gained(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cell: Cell,
        drive_NBTM: Tensor,
        matrix_NMM: Tensor,
        threshold_NM: Tensor | None,
        gains_NT: Tensor | None,
        before_NBM: Tensor | None,
    ) -> Tensor:
        ctx.cell = replace(cell, threshold=None, gains=None)
        of_steps = replace(cell, gains=gains_NT)
        states_NBTM, inner_NBTM = _implementation(drive_NBTM).states(
            drive_NBTM, matrix_NMM, of_steps, before_NBM, keep=True
        )
        ctx.save_for_backward(inner_NBTM, states_NBTM, matrix_NMM, threshold_NM, gains_NT, before_NBM)
        return states_NBTM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        inner_NBTM, states_NBTM, matrix_NMM, threshold_NM, gains_NT, before_NBM = ctx.saved_tensors
        _, _, of_matrix, *others = ctx.needs_input_grad
        names = ("threshold", "gains", "before")
        required = frozenset(name for name, needed in zip(names, others, strict=True) if needed)
        cell = replace(ctx.cell, threshold=threshold_NM, gains=gains_NT)
        implementation = _implementation(inner_NBTM)
        result = implementation.gradients(outer[0], inner_NBTM, matrix_NMM, cell, required)
        products = implementation.products(result.drive, states_NBTM, before_NBM) if of_matrix else None
        return None, result.drive, products, result.threshold, result.gains, result.before
