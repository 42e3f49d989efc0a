"""The states of the LSTM over time (with a forget gate: Gers et al. 2000).

    a_t = W x_t + b,   i_t, f_t, o_t = sigmoid(a_t + U h_{t-1}) each,   g_t = tanh(a^g_t + U_g h_{t-1}),
                       c_t = f_t c_{t-1} + i_t g_t,                     h_t = o_t tanh(c_t),    c_{-1} = h_{-1} = 0

The gradient is written by hand. On a processor compiled code does all of it (``kernel``), or oneDNN's for wide layers
(``onednn``); on a GPU Triton does the steps (memsweep.recurrence.triton.gated). The plain path here is the oracle of
all, and what runs elsewhere. With p_t that of c_t and l_t that of h_t through everything later, the errors of the sums
U h_{t-1} are multiples of p_t (of l_t for o), whose factors are all known before time runs backward.

Letters: N leading dimension (replicas and copies), B batch, T time, F features of the input, M width, G = 4 M: i, f, o,
g in this order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.gated.kernel import CompiledGated
from memsweep.recurrence.gated.onednn import suits, wide_states
from memsweep.recurrence.layer import affine, require_fit
from memsweep.recurrence.triton.gated import triton_knows, triton_states


def lstm_states(x_NBTF: Tensor, encoder_NGF: Tensor, bias_NG: Tensor, matrix_NGM: Tensor) -> Tensor:
    """h of all steps, differentiable once.

    Args:
        x_NBTF: the input.
        encoder_NGF: W of i, f, o and g, one below the other.
        bias_NG: their b.
        matrix_NGM: their U.

    Returns:
        ``[N, B, T, M]``, contiguous.

    Raises:
        ValueError: shapes that do not fit.
    """
    models, _, _, features = x_NBTF.shape
    width = matrix_NGM.shape[-1]
    require_fit(
        x_NBTF.dtype,
        encoder=(encoder_NGF, [[models, 4 * width, features]]),
        bias=(bias_NG, [[models, 4 * width]]),
        matrix=(matrix_NGM, [[models, 4 * width, width]]),
    )
    if suits(x_NBTF.dtype, width):
        by_onednn = wide_states(x_NBTF, encoder_NGF, bias_NG, matrix_NGM)
        if by_onednn is not None:
            return by_onednn
    if (compiled := CompiledGated.fitting(x_NBTF)) is not None:
        return compiled.layer(x_NBTF, encoder_NGF, bias_NG, matrix_NGM)
    # the inputs of all steps in one large product, in place of a small one at every step
    drive_NBTG = affine(x_NBTF, encoder_NGF, bias_NG)
    if triton_knows(drive_NBTG, width):
        return triton_states(drive_NBTG, matrix_NGM)
    series: Tensor = _Scan.apply(drive_NBTG, matrix_NGM)
    return series


def lstm_step(sums: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """c and h after a step, from the sums a + U h ``[..., 4 M]`` and c before it ``[..., M]``."""
    width = cell.shape[-1]
    into, forget, out = torch.sigmoid(sums[..., : 3 * width]).chunk(3, -1)
    cell = forget * cell + into * torch.tanh(sums[..., 3 * width :])
    return cell, out * torch.tanh(cell)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive_NBTG: Tensor, matrix_NGM: Tensor) -> Tensor:
        gates_TNBG = drive_NBTG.permute(2, 0, 1, 3).clone(memory_format=torch.contiguous_format)
        width, turned = matrix_NGM.shape[-1], matrix_NGM.mT.contiguous()
        into, forget, out, candidate = gates_TNBG.chunk(4, -1)
        cells_TNBM = torch.empty_like(into, memory_format=torch.contiguous_format)
        shown_TNBM, states_TNBM = torch.empty_like(cells_TNBM), torch.empty_like(cells_TNBM)
        for step, gates_NBG in enumerate(gates_TNBG):
            if step:
                gates_NBG.baddbmm_(states_TNBM[step - 1], turned)
            gates_NBG[..., : 3 * width].sigmoid_()
            candidate[step].tanh_()
            torch.mul(into[step], candidate[step], out=cells_TNBM[step])
            if step:
                cells_TNBM[step].addcmul_(forget[step], cells_TNBM[step - 1])
            torch.tanh(cells_TNBM[step], out=shown_TNBM[step])
            torch.mul(out[step], shown_TNBM[step], out=states_TNBM[step])
        # tanh(c) is kept beside c: it is a factor of two slopes, and slower to compute than to read
        ctx.save_for_backward(matrix_NGM, gates_TNBG, cells_TNBM, shown_TNBM, states_TNBM)
        return states_TNBM.permute(1, 2, 0, 3).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor, Tensor]:
        matrix_NGM, gates_TNBG, cells_TNBM, shown_TNBM, states_TNBM = ctx.saved_tensors
        into, forget, out, candidate = gates_TNBG.chunk(4, -1)
        of_cell = out * (1.0 - shown_TNBM.square())
        # the factors of p_t (of l_t for o), which become the errors in place; f has none at step 0, as c_{-1} = 0
        errors_TNB4M = torch.zeros_like(gates_TNBG).unflatten(-1, (4, -1))
        of_into, of_forget, of_out, of_candidate = errors_TNB4M.unbind(-2)
        of_into.copy_(candidate * into * (1.0 - into))
        torch.mul(cells_TNBM[:-1], forget[1:] * (1.0 - forget[1:]), out=of_forget[1:])
        of_out.copy_(shown_TNBM * out * (1.0 - out))
        of_candidate.copy_(into * (1.0 - candidate.square()))
        grads_TNBM = outer[0].permute(2, 0, 1, 3).clone(memory_format=torch.contiguous_format)
        pushed_NBM, matrix = torch.zeros_like(grads_TNBM[0]), matrix_NGM.contiguous()
        for step in range(len(grads_TNBM) - 1, -1, -1):
            grad_NBM, error_NB4M = grads_TNBM[step], errors_TNB4M[step]
            # p_t: what the next step passed back through its f, and what h_t passes back through tanh(c_t)
            pushed_NBM.addcmul_(grad_NBM, of_cell[step])
            of_out[step].mul_(grad_NBM)
            error_NB4M[..., :2, :].mul_(pushed_NBM.unsqueeze(-2))
            of_candidate[step].mul_(pushed_NBM)
            pushed_NBM.mul_(forget[step])
            if step:
                grads_TNBM[step - 1].baddbmm_(error_NB4M.flatten(-2), matrix)
        errors_TNBG = errors_TNB4M.flatten(-2)
        # from step 1 on: the first step has no state before it for U to act on
        errors_NSG, before_NSM = (steps.transpose(0, 1).flatten(1, 2) for steps in (errors_TNBG[1:], states_TNBM[:-1]))
        return errors_TNBG.permute(1, 2, 0, 3).contiguous(), errors_NSG.mT @ before_NSM
