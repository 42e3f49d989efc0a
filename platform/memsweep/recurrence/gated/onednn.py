"""The LSTM of oneDNN, which torch.lstm calls in float32 on a processor: for wide layers, whatever the sequences.

Shape alone chooses. With AVX-512 the states of a sequence are the same bits whatever stands beside it, and however many
threads there are. Of one sequence alone oneDNN takes products in another order, so that a second one, of zeros, stands
beside it. With AVX2 the states of a sequence among few differ by roundings, so that our kernel computes them.

Letters: see memsweep.recurrence.gated.lstm.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.gated.kernel import CompiledGated

WIDE = 256
"""From this width on it is about as fast as ours, or faster."""


def suits(dtype: torch.dtype, width: int) -> bool:
    """Whether layers of this width, with numbers of this type, are computed here."""
    return dtype == torch.float32 and width >= WIDE


def is_steady() -> bool:
    """Whether this processor's oneDNN gives a sequence the same bits whatever stands beside it."""
    return torch.backends.mkldnn.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"


def wide_states(x_NBTF: Tensor, encoder_NGF: Tensor, bias_NG: Tensor, matrix_NGM: Tensor) -> Tensor | None:
    """The states, arguments and result as of ``lstm_states``; None where it computes them itself."""
    # without our kernel, torch's loop is wanted: it is the oracle
    if not x_NBTF.numel() or not is_steady() or CompiledGated.fitting(x_NBTF) is None:
        return None
    tensors = (x_NBTF, encoder_NGF, bias_NG, matrix_NGM)
    if torch.is_grad_enabled():
        return _states(*tensors)
    with torch.enable_grad():  # without it oneDNN goes another way, whose bits are others
        return _states(*(each.detach() for each in tensors))


def _states(x_NBTF: Tensor, encoder_NGF: Tensor, bias_NG: Tensor, matrix_NGM: Tensor) -> Tensor:
    batch, width = x_NBTF.shape[1], matrix_NGM.shape[2]
    if batch == 1:
        x_NBTF = torch.cat([x_NBTF, torch.zeros_like(x_NBTF)], 1)
    start_1BM = x_NBTF.new_zeros(1, x_NBTF.shape[1], width)
    zeros_G = torch.zeros_like(bias_NG[0])
    weights = map(_in_their_order, (encoder_NGF, matrix_NGM, bias_NG))
    states = [
        torch.lstm(x_BTF, (start_1BM, start_1BM), (encoder, matrix, bias, zeros_G), True, 1, 0.0, True, False, True)[0]
        for x_BTF, encoder, matrix, bias in zip(x_NBTF, *weights, strict=True)
    ]
    return torch.stack(states)[:, :batch].contiguous()


def _in_their_order(gates_NG: Tensor) -> Tensor:
    """From i, f, o, g to i, f, g, o."""
    into, forget, out, candidate = gates_NG.chunk(4, 1)
    return torch.cat([into, forget, candidate, out], 1)
