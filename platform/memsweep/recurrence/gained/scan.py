"""Recurrences whose steps have gains of their own, and activations with a threshold: see ``gained_scan``.

The gradient is written by hand. Let g_t be the gradient of h_t through everything, l_t what of it arrives from outside,
and f'_t the derivative of a step's answer by its pre-activation a_t. Time runs backward as

    g_{t-1} = l_{t-1} + V' e_t,    e_t = f'_t g_t = dL/dx_t,    dL/dV = sum_t e_t h_{t-1}' .

An implementation computes these: ``compiled.gained_calls`` on a processor, whose numbers depend neither on the other
models of a stack nor on threads, and ``gained_plain`` elsewhere. Either is tested against a plain loop.

Letters: N leading dimension (replicas and copies), B batch, T time, M width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.gained_calls import compiled_gained
from memsweep.recurrence.gained.plain import PlainGained
from memsweep.recurrence.gained.step import Cell, Pulled, check_cell, gains_of_steps, parts, slopes

__all__ = ["Cell", "cell_slopes", "gained_scan"]


class Implementation(Protocol):
    """The recurrence without autograd; the cell's gains are those of the steps, ``[N, T]``."""

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """States ``[N, B, T, M]``, a new tensor; and the pre-activations, where they are to be kept for ``pulled``."""

    def pulled(
        self, grad_NBTM: Tensor, inner_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, wanted: frozenset[str]
    ) -> Pulled:
        """Gradients, by those of the states and by the pre-activations.

        Args:
            grad_NBTM: gradients of the states.
            inner_NBTM: pre-activations.
            matrix_NMM, cell: as for ``states``.
            wanted: of ``threshold``, ``gains`` and ``before``.
        """

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        """The matrix's gradient, sum over b and t of e_t h_{t-1}', ``[N, M, M]``; e: the gradients of the drive."""


def gained_scan(drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None = None) -> Tensor:
    """States of h_t = f_t(x_t + V h_{t-1}), where the cell says what f_t is; differentiable once.

    Differentiable by drive, matrix, threshold, gains and the state before. At corners of an activation its derivative
    is that of memsweep.recurrence.gained.step.

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
    return slopes(a_N1BM, cell, gains_N1, parts(a_N1BM, cell, gains_N1)).squeeze(1)


def _check(drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None) -> None:
    if drive_NBTM.ndim != 4 or drive_NBTM.is_complex():
        raise ValueError(f"a drive is real, [N, B, T, M], got {list(drive_NBTM.shape)} of {drive_NBTM.dtype}")
    leading, batch, _, width = drive_NBTM.shape
    wanted = {"matrix": (matrix_NMM, [leading, width, width]), "state before": (before_NBM, [leading, batch, width])}
    for what, (tensor, shape) in wanted.items():
        if tensor is None:
            continue
        if list(tensor.shape) != shape:
            raise ValueError(f"a drive {list(drive_NBTM.shape)} needs a {what} {shape}, got {list(tensor.shape)}")
        if tensor.dtype != drive_NBTM.dtype:
            raise ValueError(f"the {what} must have the drive's dtype, {drive_NBTM.dtype}, got {tensor.dtype}")
    check_cell(cell, leading, width, drive_NBTM.dtype)


def _implementation(drive: Tensor) -> Implementation:
    found = compiled_gained(drive.dtype) if drive.device.type == "cpu" else None
    return found or PlainGained()


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
        wanted = frozenset(name for name, is_so in zip(("threshold", "gains", "before"), others, strict=True) if is_so)
        cell = replace(ctx.cell, threshold=threshold_NM, gains=gains_NT)
        implementation = _implementation(inner_NBTM)
        found = implementation.pulled(outer[0], inner_NBTM, matrix_NMM, cell, wanted)
        products = implementation.products(found.drive, states_NBTM, before_NBM) if of_matrix else None
        return None, found.drive, products, found.threshold, found.gains, found.before
