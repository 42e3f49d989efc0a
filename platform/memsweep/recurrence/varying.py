"""A diagonal linear recurrence whose coefficients change from step to step: h_t = d_t h_{t-1} + x_t, h_{-1} = 0.

The gradient by the drive is the same recurrence with time running backward: g_t = l_t + conj(d_{t+1}) g_{t+1}, where l
is the gradient that arrives at the states.

Letters: N leading dimension (replicas and copies), B batch, T time, M width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows
from memsweep.recurrence.layer import require_fit


class CompiledVarying(Kernel):
    """Computes each sequence by itself: its numbers depend neither on the others nor on the number of threads."""

    function = "varying"  # VaryingCall of varying.cpp
    numbers = ("backward", "complex", "sequences", "horizon", "width")
    tensors = ("slope", "given", "found")

    def __call__(self, slope_NBTM: Tensor, given_NBTM: Tensor, backward: bool) -> Tensor:
        """Each step adds to what is given its neighbour, times the slope of the later one, conjugated if backward."""
        states_NBTM = torch.empty_like(given_NBTM, memory_format=torch.contiguous_format)
        horizon, width = states_NBTM.shape[2:]
        named = {"slope": slope_NBTM, "given": given_NBTM, "found": states_NBTM}
        tensors = {name: tensor.flatten(0, 1) for name, tensor in readable(named, states_NBTM.dtype).items()}
        is_complex = states_NBTM.is_complex()
        self.run(
            tensors,
            shares_of_rows(tensors, "sequences"),
            backward=backward,
            complex=is_complex,
            horizon=horizon,
            width=2 * width if is_complex else width,  # in real numbers
        )
        return states_NBTM


def varying_scan(slope_NBTM: Tensor, drive_NBTM: Tensor) -> Tensor:
    """States of h_t = d_t h_{t-1} + x_t, differentiable once, by the drive alone.

    Args:
        slope_NBTM: d, ``[N, B, T, M]``, taken as constants; that of step 0 does nothing.
        drive_NBTM: x, ``[N, B, T, M]``; real or complex as d is.

    Returns:
        ``[N, B, T, M]``, contiguous.

    Raises:
        ValueError: shapes or dtypes that do not fit.
    """
    shape = [*drive_NBTM.shape[:3], drive_NBTM.shape[-1]]
    require_fit(drive_NBTM.dtype, drive=(drive_NBTM, [shape]), slope=(slope_NBTM, [shape]))
    series: Tensor = _VaryingScan.apply(slope_NBTM.detach(), drive_NBTM)
    return series


def selective_scan(slope_NBTM: Tensor, drive_NBTM: Tensor) -> Tensor:
    """``varying_scan``, differentiable by the coefficients d, too: dL/dd_t = g_t conj(h_{t-1})."""
    shape = [*drive_NBTM.shape[:3], drive_NBTM.shape[-1]]
    require_fit(drive_NBTM.dtype, drive=(drive_NBTM, [shape]), slope=(slope_NBTM, [shape]))
    series: Tensor = _SelectiveScan.apply(slope_NBTM, drive_NBTM)
    return series


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, slope_NBTM: Tensor, drive_NBTM: Tensor) -> Tensor:
        states_NBTM = _run(slope_NBTM, drive_NBTM)
        ctx.save_for_backward(slope_NBTM, states_NBTM)
        return states_NBTM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        slope_NBTM, states_NBTM = ctx.saved_tensors
        of_drive_NBTM = _without_subnormals(_run(slope_NBTM, outer[0], backward=True))
        of_slope_NBTM = torch.zeros_like(of_drive_NBTM)  # step 0 has no state before it
        torch.mul(of_drive_NBTM[:, :, 1:], states_NBTM[:, :, :-1].conj(), out=of_slope_NBTM[:, :, 1:])
        return of_slope_NBTM, of_drive_NBTM


class _VaryingScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, slope_NBTM: Tensor, drive_NBTM: Tensor) -> Tensor:
        ctx.save_for_backward(slope_NBTM)
        return _run(slope_NBTM, drive_NBTM)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        (slope_NBTM,) = ctx.saved_tensors
        return None, _without_subnormals(_run(slope_NBTM, outer[0], backward=True))


def _without_subnormals(values: Tensor) -> Tensor:
    """Replaces numbers near the smallest normal one by zero.

    Far from any error a gradient shrinks like d^k, and a processor multiplies subnormal numbers many times more slowly.
    """
    limits = torch.finfo(values.dtype)
    if values.is_complex():
        return torch.view_as_complex(_without_subnormals(torch.view_as_real(values)))
    return torch.nn.functional.hardshrink(values, limits.tiny / limits.eps)


def _run(slope_NBTM: Tensor, given_NBTM: Tensor, backward: bool = False) -> Tensor:
    """Each step adds to what is given its neighbour, times the slope of the later one, conjugated if backward."""
    compiled = CompiledVarying.load(given_NBTM.dtype) if given_NBTM.device.type == "cpu" else None
    return (compiled or _run_plainly)(slope_NBTM, given_NBTM, backward)


def _run_plainly(slope_NBTM: Tensor, given_NBTM: Tensor, backward: bool) -> Tensor:
    steps = given_NBTM.permute(2, 0, 1, 3).clone(memory_format=torch.contiguous_format)
    # torch conjugates by a flag that every operation would resolve anew: once, before the loop
    slopes = (slope_NBTM.conj().resolve_conj() if backward else slope_NBTM).permute(2, 0, 1, 3)
    rows, factors = steps.unbind(), slopes.contiguous().unbind()
    for later in range(len(rows) - 1, 0, -1) if backward else range(1, len(rows)):
        source, target = (later, later - 1) if backward else (later - 1, later)
        rows[target].addcmul_(factors[later], rows[source])
    return steps.permute(1, 2, 0, 3).contiguous()
