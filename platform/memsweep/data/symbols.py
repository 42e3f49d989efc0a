"""Sequences of symbols, and the vectors that models read in their place.

A batch of long texts, one-hot in float64, takes gigabytes; its symbols take two bytes a step. So symbols stay what they
are until a few sequences are computed.
"""

from __future__ import annotations

import torch
from torch import Tensor


def are_symbols(inputs: Tensor) -> bool:
    """Whether these inputs are symbols ``[..., T]``, and not numbers ``[..., T, I]``."""
    return not inputs.is_floating_point()


def checked(inputs: Tensor, count: int, task: str) -> Tensor:
    """The inputs of a batch; symbols must be of an alphabet of ``count``, or -1, which stands behind a sequence's end.

    Raises:
        ValueError: a symbol is another number.
    """
    if are_symbols(inputs) and inputs.numel():
        least, most = (int(value) for value in inputs.aminmax())
        if least < -1 or most >= count:
            raise ValueError(
                f"the task {task!r} drew the symbol {most if most >= count else least}, but has {count} of them: draw "
                f"must give 0 to {count - 1}, and -1 behind the end of a sequence"
            )
    return inputs


def as_read(inputs: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """What a model reads: numbers as they are; of symbols, one-hot vectors, zeros for -1.

    Args:
        inputs: ``[..., T, size]`` numbers, or ``[..., T]`` symbols.
        size: I, numbers that a model reads at a step.
        dtype: of the vectors.

    Returns:
        ``[..., T, size]``.
    """
    if not are_symbols(inputs):
        return inputs
    read = torch.zeros(*inputs.shape, size, dtype=dtype, device=inputs.device)
    known = (inputs >= 0).unsqueeze(-1)
    return read.scatter_(-1, inputs.long().clamp(min=0).unsqueeze(-1), known.to(dtype))
