"""Sequences of symbols, and the one-hot vectors that models read.

A batch of long texts takes gigabytes as one-hot vectors in float64, and two bytes a step as symbols. So symbols become
vectors only in the chunk of sequences that is computed.
"""

from __future__ import annotations

import torch
from torch import Tensor


def are_symbols(inputs: Tensor) -> bool:
    """Whether these inputs are symbols ``[..., T]``, and not numbers ``[..., T, I]``."""
    return not inputs.is_floating_point()


def checked(inputs: Tensor, count: int, task: str) -> Tensor:
    """The inputs of a batch, after a check that symbols are 0 ... ``count - 1``, or -1 after the end of a sequence.

    Raises:
        ValueError: a symbol is out of this range.
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
    """The inputs of a model: numbers as they are, symbols as one-hot vectors, with zeros for -1.

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
