"""The states of the gated recurrence (GRU) over time.

    a_t = W x_t + b,
    r_t = sigmoid(a^r_t + U_r h_{t-1}),   z_t = sigmoid(a^z_t + U_z h_{t-1}),   q_t = U_n h_{t-1} + c,
    n_t = tanh(a^n_t + r_t q_t),          h_t = (1 - z_t) h_{t-1} + z_t n_t,    h_{-1} = 0

The gradient is written by hand. With g_t the gradient of h_t through everything later, that of the sums U h_{t-1} is
e_t = k_t g_t, gate by gate, where all k_t are known before time runs backward (``Gates.slopes``). A step back is

    g_{t-1} = l_{t-1} + (1 - z_t) g_t + U' e_t

with l the gradient that arrives from outside, and the sums over time are one product each. On a processor compiled code
does all of it (``kernel``), on a GPU Triton does the steps (memsweep.recurrence.triton.gated); the plain path here is
their oracle, and what runs elsewhere.

Letters: N leading dimension (replicas and copies), B batch, T time, F features of the input, M width, G = 3 M: reset,
update, candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from memsweep.recurrence.gated.kernel import CompiledGated
from memsweep.recurrence.layer import affine, require_fit
from memsweep.recurrence.triton.gated import triton_knows, triton_states


@dataclass(frozen=True)
class Gates:
    """Gates and candidate of a step, ``[..., M]`` each.

    Attributes:
        reset: r.
        update: z.
        candidate: n.
        memory: q, what the reset gate lets through to the candidate.
    """

    reset: Tensor
    update: Tensor
    candidate: Tensor
    memory: Tensor

    def slopes(self, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Derivatives of h_t by a^r, a^z and a^n, for states ``before`` of the step before, ``[..., M]`` each.

        That by q is the last of them times r.
        """
        # of h = before + z (n - before), with tanh' = 1 - n^2 and sigmoid' = z (1 - z)
        of_candidate = self.update * (1.0 - self.candidate.square())
        of_update = (self.candidate - before) * self.update * (1.0 - self.update)
        of_reset = of_candidate * self.memory * self.reset * (1.0 - self.reset)
        return of_reset, of_update, of_candidate


def gru_states(x_NBTF: Tensor, encoder_NGF: Tensor, bias_NG: Tensor, matrix_NGM: Tensor, recalled_NM: Tensor) -> Tensor:
    """h of all steps, differentiable once.

    Args:
        x_NBTF: the input.
        encoder_NGF: W of reset gate, update gate and candidate, one below the other.
        bias_NG: their b.
        matrix_NGM: their U.
        recalled_NM: c.

    Returns:
        ``[N, B, T, M]``, contiguous.

    Raises:
        ValueError: shapes that do not fit.
    """
    models, _, _, features = x_NBTF.shape
    width = recalled_NM.shape[-1]
    require_fit(
        x_NBTF.dtype,
        encoder=(encoder_NGF, [[models, 3 * width, features]]),
        bias=(bias_NG, [[models, 3 * width]]),
        matrix=(matrix_NGM, [[models, 3 * width, width]]),
        recalled=(recalled_NM, [[models, width]]),
    )
    if (compiled := CompiledGated.fitting(x_NBTF)) is not None:
        return compiled.layer(x_NBTF, encoder_NGF, bias_NG, matrix_NGM, recalled_NM)
    # the inputs of all steps in one large product, in place of a small one at every step
    tensors = (affine(x_NBTF, encoder_NGF, bias_NG), matrix_NGM, recalled_NM)
    if triton_knows(tensors[0], width):
        return triton_states(*tensors)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        series: Tensor = _GatedScan.apply(*tensors)
        return series
    with torch.no_grad():
        return _series(_forward(*tensors)[0])


def _forward(drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor) -> tuple[Tensor, Gates]:
    """States and gates, time first: ``[T, N, B, M]``."""
    # time first, so that a step is one contiguous block; the copy becomes the gates in place
    gates_TNBG = drive_NBTG.permute(2, 0, 1, 3).clone(memory_format=torch.contiguous_format)
    width = bias_NM.shape[-1]
    memory_TNBM = torch.empty_like(gates_TNBG[..., :width])
    states_TNBM, turned = torch.empty_like(memory_TNBM), matrix_NGM.mT.contiguous()
    # U h_{t-1}: zero at the first step, whose state before is zero
    images_NBG = torch.zeros_like(gates_TNBG[0])
    state_NBM = torch.zeros_like(states_TNBM[0])
    reset_TNBM, update_TNBM, candidate_TNBM = gates_TNBG.chunk(3, -1)
    gates = Gates(reset_TNBM, update_TNBM, candidate_TNBM, memory_TNBM)
    for step, next_NBM in enumerate(states_TNBM):
        if step:
            torch.bmm(state_NBM, turned, out=images_NBG)
        gates_TNBG[step, ..., : 2 * width].add_(images_NBG[..., : 2 * width]).sigmoid_()
        # kept before the reset gate multiplies it: the gate's own slope needs q
        torch.add(images_NBG[..., 2 * width :], bias_NM[:, None], out=memory_TNBM[step])
        gates.candidate[step].addcmul_(gates.reset[step], memory_TNBM[step]).tanh_()
        torch.lerp(state_NBM, gates.candidate[step], gates.update[step], out=next_NBM)
        state_NBM = next_NBM
    return states_TNBM, gates


def _series(steps_TNBM: Tensor) -> Tensor:
    return steps_TNBM.permute(1, 2, 0, 3).contiguous()


class _GatedScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive_NBTG: Tensor, matrix_NGM: Tensor, bias_NM: Tensor) -> Tensor:
        states_TNBM, gates = _forward(drive_NBTG, matrix_NGM, bias_NM)
        ctx.save_for_backward(matrix_NGM, states_TNBM, gates.reset, gates.update, gates.candidate, gates.memory)
        return _series(states_TNBM)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        matrix_NGM, states_TNBM, *kept = ctx.saved_tensors
        gates, matrix = Gates(*kept), matrix_NGM.contiguous()
        before_TNBM = torch.cat([torch.zeros_like(states_TNBM[:1]), states_TNBM[:-1]])
        of_reset, of_update, of_candidate = gates.slopes(before_TNBM)
        # the factors k_t, which become e_t = k_t g_t in place
        errors_TNB3M = torch.stack([of_reset, of_update, of_candidate * gates.reset], -2)
        grads_TNBM = outer[0].permute(2, 0, 1, 3).clone(memory_format=torch.contiguous_format)
        # in place: grads_TNBM[t] is complete when its step comes, errors_TNB3M[t] becomes e_t
        for step in range(len(grads_TNBM) - 1, -1, -1):
            grad_NBM, error_NB3M = grads_TNBM[step], errors_TNB3M[step]
            error_NB3M.mul_(grad_NBM.unsqueeze(-2))
            if step:
                earlier_NBM = grads_TNBM[step - 1]
                earlier_NBM.addcmul_(grad_NBM, 1.0 - gates.update[step])
                earlier_NBM.baddbmm_(error_NB3M.flatten(-2), matrix)
        of_drive, of_matrix, of_bias = None, None, None
        if ctx.needs_input_grad[0]:
            # a^n does not pass the reset gate, as q does: its error is without the factor r
            sums = [errors_TNB3M[..., 0, :], errors_TNB3M[..., 1, :], of_candidate * grads_TNBM]
            of_drive = torch.cat([_series(part) for part in sums], -1)
        if ctx.needs_input_grad[1]:
            errors_NSG, before_NSM = (_in_time(steps) for steps in (errors_TNB3M.flatten(-2), before_TNBM))
            of_matrix = errors_NSG.mT @ before_NSM
        if ctx.needs_input_grad[2]:
            of_bias = errors_TNB3M[..., 2, :].sum((0, 2))
        return of_drive, of_matrix, of_bias


def _in_time(steps_TNBK: Tensor) -> Tensor:
    """All steps of all sequences of a replica in a row, ``[N, T B, K]``."""
    return steps_TNBK.transpose(0, 1).flatten(1, 2)
