"""Calls of the compiled diagonal recurrence whose coefficients change.

Letters: see memsweep.recurrence.varying.
"""

from __future__ import annotations

import torch
from torch import Tensor

from memsweep.recurrence.compiled.library import Kernel, readable, shares_of_rows


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
