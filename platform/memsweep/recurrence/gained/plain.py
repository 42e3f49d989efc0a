"""The recurrence with gains in plain torch, one step after the other: on a GPU, or where nothing can be compiled.

Both ways go in place through series that lie time before batch, ``[N, T, B, M]``: a step is one product and what the
cell does. What of the gradient has no need of the step after it is made for many steps at once.

Letters: N leading dimension (replicas and copies), B batch, T time, S some steps, M width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.gained.step import Cell, Pulled, gain_slopes, parts, slopes, threshold_slopes

_AT_ONCE = 2**18
"""Numbers for which slopes are made at once: they stay in the cache until their steps come."""


class PlainGained:
    """See ``memsweep.recurrence.gained.scan.Implementation``."""

    def states(
        self, drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, before_NBM: Tensor | None, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        leading, batch, horizon, width = drive_NBTM.shape
        inner_NTBM = drive_NBTM.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        found_NTBM = torch.empty_like(inner_NTBM) if keep else inner_NTBM
        transposed_NMM = matrix_NMM.mT.contiguous()
        state_NBM = drive_NBTM.new_zeros(leading, batch, width) if before_NBM is None else before_NBM
        for step in range(horizon):
            a_NBM = inner_NTBM[:, step]
            if step or before_NBM is not None:
                a_NBM.baddbmm_(state_NBM, transposed_NMM)
            gains_N1 = None if cell.gains is None else cell.gains[:, step : step + 1]
            state_NBM = found_NTBM[:, step]
            state_NBM.copy_(parts(a_NBM.unsqueeze(1), cell, gains_N1).states.squeeze(1))
        return found_NTBM.transpose(1, 2).contiguous(), inner_NTBM.transpose(1, 2) if keep else None

    def pulled(
        self, grad_NBTM: Tensor, inner_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, wanted: frozenset[str]
    ) -> Pulled:
        leading, batch, horizon, width = grad_NBTM.shape
        grads_NTBM = grad_NBTM.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        inner_NTBM = inner_NBTM.transpose(1, 2)
        of_threshold_NM = grad_NBTM.new_zeros(leading, width) if "threshold" in wanted else None
        of_gains_NT = grad_NBTM.new_empty(leading, horizon) if "gains" in wanted else None
        of_before_NBM = grad_NBTM.new_zeros(leading, batch, width) if "before" in wanted else None
        size = max(1, _AT_ONCE // max(1, leading * batch * width))
        for last in range(horizon, 0, -size):
            first = max(0, last - size)
            chosen = slice(first, last)
            a_NSBM = inner_NTBM[:, chosen]
            gains_NS = None if cell.gains is None else cell.gains[:, chosen]
            made = parts(a_NSBM, cell, gains_NS)
            slopes_NSBM = slopes(a_NSBM, cell, gains_NS, made)
            arriving_NSBM = torch.empty_like(slopes_NSBM) if {"threshold", "gains"} & wanted else None
            for step in range(last - 1, first - 1, -1):
                grad_NBM = grads_NTBM[:, step]
                if arriving_NSBM is not None:
                    arriving_NSBM[:, step - first] = grad_NBM
                grad_NBM.mul_(slopes_NSBM[:, step - first])
                target_NBM = grads_NTBM[:, step - 1] if step else of_before_NBM
                if target_NBM is not None:
                    target_NBM.baddbmm_(grad_NBM, matrix_NMM)
            if arriving_NSBM is not None and of_threshold_NM is not None:
                of_threshold_NM += (arriving_NSBM * threshold_slopes(made)).sum((1, 2))
            if arriving_NSBM is not None and of_gains_NT is not None:
                of_gains_NT[:, chosen] = (arriving_NSBM * gain_slopes(a_NSBM, cell, made)).sum((2, 3))
        return Pulled(grads_NTBM.transpose(1, 2).contiguous(), of_threshold_NM, of_gains_NT, of_before_NBM)

    def products(self, errors_NBTM: Tensor, states_NBTM: Tensor, before_NBM: Tensor | None) -> Tensor:
        later_NKM, earlier_NKM = errors_NBTM[:, :, 1:].flatten(1, 2), states_NBTM[:, :, :-1].flatten(1, 2)
        found_NMM = later_NKM.mT @ earlier_NKM
        return found_NMM if before_NBM is None else found_NMM.baddbmm_(errors_NBTM[:, :, 0].mT, before_NBM)
