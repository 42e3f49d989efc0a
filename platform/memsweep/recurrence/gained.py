"""Recurrences whose steps have gains of their own, and activations with a threshold: see ``gained_scan``.

The gradient is written by hand. Let g_t be the gradient of h_t through everything, l_t what of it arrives from outside,
and f'_t the derivative of a step's answer by its pre-activation a_t. Time runs backward as

    g_{t-1} = l_{t-1} + V' e_t,    e_t = f'_t g_t = dL/dx_t,    dL/dV = sum_t e_t h_{t-1}' .

On a processor compiled code computes these (``CompiledGained``), whose numbers depend neither on the other
models of a stack nor on threads. On a GPU, or where nothing can be compiled, plain torch does (``PlainGained``). Either
is tested against a plain loop.

Letters: N leading dimension (replicas and copies), B batch, T time, S some steps, M width.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.activations import CODES
from memsweep.recurrence.cell import (
    MODRELU,
    Cell,
    CellGradients,
    check_cell,
    evaluate,
    gain_slopes,
    gains_of_steps,
    slopes,
    threshold_slopes,
)
from memsweep.recurrence.compiled.library import Kernel, readable
from memsweep.recurrence.layer import require_fit

_CODES = CODES | {MODRELU: len(CODES)}
_PLAIN, _FACTOR, _EXPONENTIAL = range(3)
_FORWARD, _BACKWARD, _PRODUCTS = range(3)


class CompiledGained(Kernel):
    """The recurrence in compiled code, without autograd.

    Every sequence of a model is computed by itself, and every row of its matrix's gradient: no number depends on other
    models or on threads.
    """

    function = "gained"  # GainedCall of gained.cpp
    numbers = ("work", "sigma", "kind", "batch", "horizon", "width", "model", "models", "first", "last")
    tensors = (
        *("matrix", "threshold", "gains", "before", "given", "inner", "found"),
        *("of_threshold", "of_gains", "of_before"),
    )

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """States ``[N, B, T, M]``, a new tensor; with ``keep`` also the pre-activations, which ``gradients`` needs."""
        states_NBTM = torch.empty_like(drive_NBTM, memory_format=torch.contiguous_format)
        # the way back needs pre-activations: a state that was clipped, or multiplied by a gain, does not tell its own
        inner_NBTM = torch.empty_like(states_NBTM) if keep else None
        given = {"given": drive_NBTM, "matrix": matrix_NMM, "before": before_NBM}
        self._run(_FORWARD, cell, {**given, "inner": inner_NBTM, "found": states_NBTM})
        return states_NBTM, inner_NBTM

    def gradients(
        self, grad_NBTM: Tensor, inner_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, required: frozenset[str]
    ) -> CellGradients:
        """From gradients of the states, and pre-activations; ``required``: of ``threshold``, ``gains``, ``before``."""
        leading, batch, horizon, width = grad_NBTM.shape
        of_drive = torch.empty_like(grad_NBTM, memory_format=torch.contiguous_format)
        # one sum per sequence: threads never add to the same number, whose bits would depend on their order
        sizes = {"threshold": width, "gains": horizon, "before": width}
        sums = {name: of_drive.new_empty(leading, batch, size) for name, size in sizes.items() if name in required}
        given = {"given": grad_NBTM, "matrix": matrix_NMM, "inner": inner_NBTM, "found": of_drive}
        self._run(_BACKWARD, cell, {**given, **{f"of_{name}": tensor for name, tensor in sums.items()}})
        return CellGradients(
            of_drive,
            sums["threshold"].sum(1) if "threshold" in sums else None,
            sums["gains"].sum(1) if "gains" in sums else None,
            sums.get("before"),
        )

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        """The matrix's gradient, sum over b and t of e_t h_{t-1}', ``[N, M, M]``; e: the gradients of the drive."""
        leading, _, _, width = errors_NBTM.shape
        products_NMM = errors_NBTM.new_zeros(leading, width, width)
        named = {"given": errors_NBTM, "inner": states_NBTM, "before": before_NBM, "found": products_NMM}
        self._run(_PRODUCTS, Cell("linear"), named)
        return products_NMM

    def _run(self, work: int, cell: Cell, named: dict[str, Tensor | None]) -> None:
        given = named["given"]
        assert given is not None
        tensors = readable({**named, "threshold": cell.threshold, "gains": cell.gains}, given.dtype)
        models, batch, horizon, width = given.shape
        self.run(
            tensors,
            _shares(models, width if work == _PRODUCTS else batch),
            work=work,
            sigma=_CODES[cell.activation],
            kind=_PLAIN if cell.gains is None else _EXPONENTIAL if cell.exponential else _FACTOR,
            batch=batch,
            horizon=horizon,
            width=width,
        )


def _shares(models: int, rows: int) -> list[dict[str, int]]:
    """Divides the work among torch's threads: a range of models, and a range of rows of each of them."""
    threads = max(1, torch.get_num_threads())
    if threads <= models:
        edges = [part * models // threads for part in range(threads + 1)]
        return [{"model": model, "models": end, "first": 0, "last": rows} for model, end in pairwise(edges)]
    parts = max(1, min(-(-threads // max(1, models)), rows))
    edges = [part * rows // parts for part in range(parts + 1)]
    return [
        {"model": model, "models": model + 1, "first": first, "last": last}
        for model in range(models)
        for first, last in pairwise(edges)
    ]


_AT_ONCE = 2**18
"""Numbers for which slopes are computed at once: they stay in the cache until their steps come."""


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
    check_cell(cell)
    models, batch, horizon, width = drive_NBTM.shape
    require_fit(
        drive_NBTM.dtype,
        matrix=(matrix_NMM, [[models, width, width]]),
        before=(before_NBM, [[models, batch, width]]),
        threshold=(cell.threshold, [[models, width]]),
        gains=(
            cell.gains,
            [[models, steps] for steps in cell.gains.shape[1:] if steps] if cell.gains is not None else [],
        ),
    )
    if not horizon:
        return drive_NBTM.clone()
    gains_NT = None if cell.gains is None else gains_of_steps(cell.gains, horizon)
    tensors = drive_NBTM, matrix_NMM, cell.threshold, gains_NT, before_NBM
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        states_NBTM: Tensor = _Gained.apply(cell, *tensors)
        return states_NBTM
    # nobody differentiates: no pre-activations are kept
    with torch.no_grad():
        of_steps = replace(cell, gains=gains_NT)
        return _implementation(drive_NBTM).states(drive_NBTM, matrix_NMM, of_steps, before_NBM, keep=False)[0]


def cell_slopes(pre_activations_NBM: Tensor, cell: Cell, step: int) -> Tensor:
    """dh_t / da_t of one step, ``[N, B, M]``: a step's Jacobian by the state before is this times the rows of V.

    Args:
        pre_activations_NBM: a_t, ``[N, B, M]``.
        cell: what a step does.
        step: t, from 0; beyond the gains the last one goes on.
    """
    gains_N1 = None if cell.gains is None else gains_of_steps(cell.gains, step + 1)[:, step:]
    a_N1BM = pre_activations_NBM.unsqueeze(1)
    return slopes(a_N1BM, cell, gains_N1, evaluate(a_N1BM, cell, gains_N1)).squeeze(1)


def _implementation(drive: Tensor) -> CompiledGained | PlainGained:
    compiled = CompiledGained.load(drive.dtype) if drive.device.type == "cpu" else None
    return compiled or PlainGained()


class PlainGained:
    """The same in plain torch, step after step; its methods are those of ``CompiledGained``.

    Both directions go in place through series that lie time before batch, ``[N, T, B, M]``: a step is one product
    and the cell's function. Slopes do not depend on later steps, so they are computed for many steps at once.
    """

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        leading, batch, horizon, width = drive_NBTM.shape
        inner_NTBM = drive_NBTM.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        states_NTBM = torch.empty_like(inner_NTBM) if keep else inner_NTBM
        # states stand in rows, so V h is the row h times V'; transposed once, not at every step
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
                    # V' e, for rows: e times V
                    target_NBM.baddbmm_(grad_NBM, matrix_NMM)
            if arriving_NSBM is not None and of_threshold_NM is not None:
                of_threshold_NM += (arriving_NSBM * threshold_slopes(value)).sum((1, 2))
            if arriving_NSBM is not None and of_gains_NT is not None:
                of_gains_NT[:, chosen] = (arriving_NSBM * gain_slopes(a_NSBM, cell, value)).sum((2, 3))
        return CellGradients(grads_NTBM.transpose(1, 2).contiguous(), of_threshold_NM, of_gains_NT, of_before_NBM)

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        # all e_t are known by now, so the sum over steps and sequences is one product per model
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
        # its tensors go through save_for_backward: autograd frees those, and notices when one is changed in place
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
