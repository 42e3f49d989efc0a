"""The states of recurrences over time, one step after the other: the layers of a deep model.

    h_t = leak h_{t-1} + gain sigma(x_t + A h_{t-1}),    h_{-1} = 0

with a drive x and a diagonal or dense matrix A: leak 0 and gain 1 is an Elman network, leak 1 and gain dt the Euler
form of a continuous-time one. ``linear_scan`` is h_t = lambda h_{t-1} + x_t with real or complex lambda.

The gradient is written by hand. Let g_t be the gradient of h_t through everything later, e_t = sigma'_t g_t, and l_t
the gradient that arrives at h_t from outside. Time runs backward as

    g_{t-1} = l_{t-1} + leak g_t + gain A' e_t,    dL/dx_t = gain e_t,    dL/dA = gain sum_t e_t h_{t-1}' .

One kernel does it where there is one (``compiled`` on a processor, ``triton`` on a GPU). The rest of this file is
the plain path, against which those are tested. There all of it happens in place, one to four passes over a step's
states while they are in the cache: fresh memory costs more than the arithmetic. The tensors that backward needs are
kept only where a gradient is required.

Letters: N leading dimension (replicas and copies), B batch, T time, M width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from memsweep.recurrence.activations import CODES, Activation, activation_named
from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows
from memsweep.recurrence.layer import require_fit
from memsweep.recurrence.padding import missing_units
from memsweep.recurrence.steps import Steps, coupling
from memsweep.recurrence.triton.scan import TritonScan, triton_knows

_DIAGONAL, _DENSE, _COMPLEX = range(3)


class CompiledScan(Kernel):
    """h_t = leak h_{t-1} + sigma(x_t + A h_{t-1}) and its gradient, with a leak of 0 or 1 (0 where sigma is linear).

    The numbers of one leading index do not depend on the others, nor on the number of threads.
    """

    function = "series"  # SeriesCall of kernels.cpp
    numbers = ("backward", "kind", "sigma", "carried", "models", "batch", "horizon", "width")
    tensors = ("matrix", "given", "states", "found", "of_matrix")

    def states(self, drive_NBTM: Tensor, matrix: Tensor, activation: str, leak: float) -> Tensor:
        """``[N, B, T, M]``, a new tensor."""
        states_NBTM = torch.empty_like(drive_NBTM, memory_format=torch.contiguous_format)
        self._run({"given": drive_NBTM, "matrix": matrix, "found": states_NBTM}, activation, leak)
        return states_NBTM

    def gradients(
        self, grad_NBTM: Tensor, states_NBTM: Tensor, matrix: Tensor, activation: str, leak: float
    ) -> tuple[Tensor, Tensor]:
        """Gradients by the drive and by the matrix; those of complex numbers are conjugated, as torch's are."""
        of_drive = torch.empty_like(grad_NBTM, memory_format=torch.contiguous_format)
        of_matrix = torch.zeros_like(matrix, memory_format=torch.contiguous_format)  # the library adds to it
        given = {"given": grad_NBTM, "states": states_NBTM, "matrix": matrix}
        self._run({**given, "found": of_drive, "of_matrix": of_matrix}, activation, leak)
        return of_drive, of_matrix

    def _run(self, named: dict[str, Tensor], activation: str, leak: float) -> None:
        _, batch, horizon, width = named["given"].shape
        tensors = readable(named, named["found"].dtype)
        matrix, is_complex = tensors["matrix"], tensors["matrix"].is_complex()
        self.run(
            tensors,
            shares_of_rows(tensors, "models"),
            backward="states" in named,
            kind=_DENSE if matrix.ndim == 3 else _COMPLEX if is_complex else _DIAGONAL,
            sigma=CODES[activation],
            carried=leak == 1.0,
            batch=batch,
            horizon=horizon,
            width=2 * width if is_complex else width,  # in real numbers
        )


FusedScan = CompiledScan | TritonScan


def scan(drive_NBTM: Tensor, matrix: Tensor, activation: str, leak: float = 1.0, gain: float = 1.0) -> Tensor:
    """States of a recurrence, h_t = leak h_{t-1} + gain sigma(x_t + A h_{t-1}), differentiable once.

    Args:
        drive_NBTM: x, ``[N, B, T, M]``; real unless the activation is linear.
        matrix: A: ``[N, M]``, a diagonal, or ``[N, M, M]``, applied as A h.
        activation: sigma, by name (see memsweep.recurrence.activations).
        leak: share of the state that a step keeps.
        gain: scale of what a step adds.

    Returns:
        States ``[N, B, T, M]``, contiguous.

    Raises:
        ValueError: an unknown activation, or shapes or dtypes that do not fit.
    """
    sigma = activation_named(activation)
    models, width = drive_NBTM.shape[0], drive_NBTM.shape[-1]
    _require_fit(drive_NBTM, matrix, [[models, width], [models, width, width]])
    # without an activation, leak and gain fold into the matrix, and states may be complex
    if sigma.is_linear:
        return _affine(drive_NBTM, matrix, sigma, leak, gain)
    if drive_NBTM.is_complex():
        raise ValueError(f"the activation {activation!r} takes real states, got {drive_NBTM.dtype}; use linear_scan")
    return _run(drive_NBTM, matrix, sigma, leak, gain)


def linear_scan(eigenvalues_NM: Tensor, drive_NBTM: Tensor) -> Tensor:
    """States of independent linear modes, h_t = lambda h_{t-1} + x_t, differentiable once.

    Args:
        eigenvalues_NM: lambda, ``[N, M]``, real or complex.
        drive_NBTM: x, ``[N, B, T, M]``, real or complex; the two are promoted to one dtype.

    Returns:
        States ``[N, B, T, M]``, contiguous. Gradients of complex tensors follow torch's convention (conjugated).

    Raises:
        ValueError: shapes that do not fit.
    """
    dtype = torch.promote_types(eigenvalues_NM.dtype, drive_NBTM.dtype)
    eigenvalues_NM, drive_NBTM = eigenvalues_NM.to(dtype), drive_NBTM.to(dtype)
    _require_fit(drive_NBTM, eigenvalues_NM, [[drive_NBTM.shape[0], drive_NBTM.shape[-1]]])
    return _run(drive_NBTM, eigenvalues_NM, activation_named("linear"), 0.0, 1.0)


def _require_fit(drive_NBTM: Tensor, matrix: Tensor, shapes: list[list[int]]) -> None:
    of_series = [[*drive_NBTM.shape[:3], drive_NBTM.shape[-1]]]
    require_fit(drive_NBTM.dtype, drive=(drive_NBTM, of_series), matrix=(matrix, shapes))


def _affine(drive_NBTM: Tensor, matrix: Tensor, linear: Activation, leak: float, gain: float) -> Tensor:
    """Without an activation a step is one affine map: h_t = (leak + gain A) h_{t-1} + gain x_t."""
    # folded into the matrix: for linear layers the kernels need to know neither leak nor gain
    kept = leak * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device) if matrix.ndim == 3 else leak
    return _run(drive_NBTM if gain == 1.0 else gain * drive_NBTM, kept + gain * matrix, linear, 0.0, 1.0)


def _run(drive_NBTM: Tensor, matrix: Tensor, activation: Activation, leak: float, gain: float) -> Tensor:
    fused = _fused(drive_NBTM, matrix, activation.name, leak)
    if fused is None:
        return _run_plainly(drive_NBTM, matrix, activation, leak, gain)
    # kernels know a gain of 1 alone: h / gain obeys the same recurrence with gain A
    scaled = matrix if gain == 1.0 else gain * matrix
    states_NBTM: Tensor = _Fused.apply(fused, drive_NBTM, scaled, activation.name, leak)
    return states_NBTM if gain == 1.0 else gain * states_NBTM


def _fused(drive_NBTM: Tensor, matrix: Tensor, activation: str, leak: float) -> FusedScan | None:
    """The kernels for such a recurrence, which they compute with a gain of 1; None where plain torch does."""
    if leak not in (0.0, 1.0) or (activation == "linear" and leak) or (drive_NBTM.is_complex() and matrix.ndim == 3):
        return None
    if drive_NBTM.device.type == "cpu":
        return CompiledScan.load(drive_NBTM.dtype)
    return TritonScan() if drive_NBTM.is_cuda and triton_knows(drive_NBTM) else None


def _run_plainly(drive_NBTM: Tensor, matrix: Tensor, activation: Activation, leak: float, gain: float) -> Tensor:
    width = drive_NBTM.shape[-1]
    # dense products of odd widths round by their place (see padding); elementwise rows are padded by Steps
    extra = missing_units(width) if matrix.ndim == 3 else 0
    if extra:
        wider = pad(drive_NBTM, (0, extra)), pad(matrix, (0, extra, 0, extra))
        return _run_plainly(*wider, activation, leak, gain)[..., :width].contiguous()
    if torch.is_grad_enabled() and (drive_NBTM.requires_grad or matrix.requires_grad):
        series: Tensor = _Scan.apply(drive_NBTM, matrix, activation, leak, gain)
        return series
    with torch.no_grad():
        states, _ = _forward(drive_NBTM, matrix, activation, leak, gain, keep=False)
        return states.series()


def _forward(
    drive_NBTM: Tensor, matrix: Tensor, activation: Activation, leak: float, gain: float, keep: bool
) -> tuple[Steps, Steps]:
    """States, and the activation's answers: apart only where they differ and backward needs both (``keep``)."""
    answers = Steps.of(drive_NBTM)
    states = answers.blank() if keep and (leak, gain) != (0.0, 1.0) else answers
    linked = coupling(matrix, states)
    for index, answer in enumerate(answers.rows):
        if index:
            linked.add_image(answers, index, states, index - 1)
        activation.apply_(answer)
        _advance(states.rows, index, answer, leak, gain)
    return states, answers


def _advance(states: tuple[Tensor, ...], index: int, answer: Tensor, leak: float, gain: float) -> None:
    """h_t = leak h_{t-1} + gain y_t; the answer y_t may lie where the state h_t goes."""
    state = states[index]
    if leak != 0.0 and index > 0:
        kept = states[index - 1] if leak == 1.0 else states[index - 1] * leak
        torch.add(kept, answer, alpha=gain, out=state)
    elif gain != 1.0 or state is not answer:
        torch.mul(answer, gain, out=state)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fused: FusedScan, drive_NBTM: Tensor, matrix: Tensor, activation: str, leak: float) -> Tensor:
        states_NBTM = fused.states(drive_NBTM, matrix, activation, leak)
        ctx.fused, ctx.activation, ctx.leak = fused, activation, leak
        ctx.save_for_backward(states_NBTM, matrix)
        return states_NBTM

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        states_NBTM, matrix = ctx.saved_tensors
        of_drive, of_matrix = ctx.fused.gradients(outer[0], states_NBTM, matrix, ctx.activation, ctx.leak)
        return None, of_drive, of_matrix, None, None


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, drive_NBTM: Tensor, matrix: Tensor, activation: Activation, leak: float, gain: float
    ) -> Tensor:
        states, answers = _forward(drive_NBTM, matrix, activation, leak, gain, keep=True)
        ctx.shape, ctx.activation, ctx.leak, ctx.gain = states.shape, activation, leak, gain
        ctx.save_for_backward(states.flat, answers.flat, matrix)
        return states.series()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        states_TF, answers_TF, matrix = ctx.saved_tensors
        states, answers = Steps(states_TF, ctx.shape), answers_TF.unbind()
        # torch's gradients are conjugated: undone here and redone at the end, so that no step has to
        grads = Steps.of(outer[0].conj(), states)
        # a step back multiplies by gain A': the gain enters the matrix once, and drive and matrix at the end
        linked = coupling(matrix if ctx.gain == 1.0 else ctx.gain * matrix, states)
        for index in range(len(answers) - 1, -1, -1):
            grad = grads.rows[index]
            # before the activation's slope is applied: the share that is kept does not pass the activation
            if index and ctx.leak != 0.0:
                grads.rows[index - 1].add_(grad, alpha=ctx.leak)
            ctx.activation.pull_back_(grad, answers[index])
            if index:
                linked.add_adjoint(grads, index - 1, index)
                if ctx.needs_input_grad[1]:
                    linked.collect(grads, index, states, index - 1)
        of_drive = grads.series().mul_(ctx.gain).conj() if ctx.needs_input_grad[0] else None
        of_matrix = linked.gradient().mul(ctx.gain).conj() if ctx.needs_input_grad[1] else None
        return of_drive, of_matrix, None, None, None
