"""The difference of two linear models that are sums of modes, as one such sum."""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.linear.modal_loss import Modes


def modes_of_difference(modes: Modes, start: Modes) -> Modes:
    """Modes whose outputs are those of ``modes`` minus those of ``start``.

    Args:
        modes: of replicas, then of any number of copies of each.
        start: of the same replicas, one for all copies or as many.
    """
    leading, own = modes.eigenvalues.shape[:-1], start.eigenvalues.shape

    def beside(one: Tensor, other: Tensor) -> Tensor:
        other = other.reshape(own).expand(*leading, own[-1])
        return torch.cat([one.reshape(modes.eigenvalues.shape), other], -1)

    return Modes(
        input=beside(modes.input, start.input),
        bias=beside(modes.bias, start.bias),
        readout=beside(modes.readout, -start.readout),
        eigenvalues=beside(modes.eigenvalues, start.eigenvalues),
        offset=(modes.offset - start.offset).reshape(leading),
    )
