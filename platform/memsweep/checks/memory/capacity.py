"""How many numbers of the past the states pass on.

Letters: R rows of a block, S sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from memsweep.checks.finding import Finding, Status, curve, finding, not_measured
from memsweep.checks.memory.scale import SIZES, finite_rows
from memsweep.checks.part import Check
from memsweep.checks.subject import Subject, first
from memsweep.models.contracts import default_dtype
from memsweep.stability.block import block_values

_SIZES = {"size": 0.01, "size_fine": 1e-6}
"""Name of a number, and the share of the largest singular value above which one counts."""


def capacity(subject: Subject, seconds: float) -> Finding:
    """The effective state size: the rank of the map from inputs before the middle of a sequence to outputs behind it.

    The map is the block of derivatives at a sequence. All that it passes on goes through the state at the middle, so
    that its rank is at most the numbers in that state. Of a linear module it is the Hankel matrix, at any input.
    """
    if subject.tokens:
        return not_measured("capacity", "outputs have no derivative by ids.", Status.SKIP)
    values_SR = np.empty((0, 0))
    try:
        for length in subject.affordable([each for each in subject.lengths() if each > 1], seconds):
            values_SR, reached = np.stack([_block_values(subject, length, size) for size in sorted({*SIZES})]), length
    except RuntimeError as error:
        return not_measured("capacity", f"{(str(error).splitlines() or [''])[0][:200]}.")
    values_SR, notes = finite_rows(values_SR, "inputs, whose derivatives")
    if not values_SR.size or not values_SR.any():
        return not_measured("capacity", "no finite derivative of a later output reaches the inputs.")
    shares_SR = values_SR / values_SR.max(1, keepdims=True).clip(min=np.finfo(float).tiny)
    numbers: dict[str, Any] = {"length": reached, "most_possible": values_SR.shape[1], "sequences": len(values_SR)}
    for name, share in _SIZES.items():
        count = (shares_SR > share).sum(1)
        if share < torch.finfo(subject.inside).eps:  # that many rounding alone would make
            numbers |= {name: None, f"{name}_least": None, f"{name}_most": None}
            continue
        numbers |= {name: float(np.median(count)), f"{name}_least": int(count.min()), f"{name}_most": int(count.max())}
    least, most = numbers["size_least"], numbers["size_most"]
    span = f"{least} to {most} over {len(values_SR)} inputs" if least < most else f"over {len(values_SR)} inputs"
    fine = " (it computes in half precision, whose rounding hides smaller ones)"
    if numbers["size_fine"] is not None:
        cut = " or more" if numbers["size_fine_most"] == values_SR.shape[1] else ""
        fine = f", and on {numbers['size_fine']:g}{cut} above a millionth"
    well = (
        f"Behind the middle of {reached} steps, outputs depend on {numbers['size']:g} numbers of the past above 1 % of "
        f"the largest ({span}){fine}. The state "
        "holds at least so many: what no output shows is not counted, and of one output that may be much of it."
    )
    curves = [curve("capacity", "typical", np.median(shares_SR, 0), start=1)]
    return finding("capacity", well, numbers, notes=[well, *notes] if notes else [], curves=curves)


def _block_values(subject: Subject, length: int, scale: float) -> np.ndarray:
    """The singular values of the block at noise of a size, ``[R]``, decreasing."""
    dtype = subject.reference
    module, noise = subject.at(dtype), subject.cast(subject.noise(1, length, 30, scale), dtype)
    with default_dtype(dtype):
        together = max(1, subject.together(length, dtype) // 4)
        found: np.ndarray = block_values(lambda inputs: first(module(inputs)), noise, together).numpy()
    return found


CHECK = Check("capacity", capacity, place=100, share=0.08)
