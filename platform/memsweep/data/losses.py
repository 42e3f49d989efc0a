"""Losses and accuracies of classification.

Letters: N leading dimensions (replicas, copies), B batch, T time, C classes. Logits are ``[N, B, T, C]`` with any
leading dimensions. Targets are class numbers of an integer type, ``[B, T]`` or, for one class a sequence, ``[B]``;
missing leading dimensions are broadcast. Losses are in nats and have the logits' leading dimensions, so one for every
sequence; accuracies are means over the batch, 0 ... 1, in the logits' type.
"""

from __future__ import annotations

import torch
from torch import Tensor


def step_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of each class, -log softmax(o)[y]: of logits ``[..., C]`` and targets ``[...]``."""
    targets = targets.expand(logits.shape[:-1]).unsqueeze(-1)
    return torch.logsumexp(logits, -1) - logits.gather(-1, targets).squeeze(-1)


def summed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of a sequence of classes, the sum over its steps.

    A recurrent language model factorizes the probability of a sequence into its steps. With a sum, the losses of the
    parts of a sequence add up to the loss of the whole.
    """
    return step_cross_entropy(logits, targets).sum(-1)


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of a step's class, averaged over the steps of a sequence."""
    return step_cross_entropy(logits, targets).mean(-1)


def last_step_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of one class for a whole sequence, given by the logits of its last step."""
    return step_cross_entropy(logits[..., -1, :], targets)


def counted_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of a step's class, averaged over the steps that count.

    A target of -1 marks a step that does not count; each sequence has at least one step that does.
    """
    counted = targets >= 0
    nats = step_cross_entropy(logits, targets.clamp(min=0).long())
    return (nats * counted).sum(-1) / counted.sum(-1)


def last_step_accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Share of the sequences whose class has the largest logit at the last step."""
    return (logits[..., -1, :].argmax(-1) == targets).to(logits.dtype).mean(-1)


def last_counted_accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Share of the sequences whose class has the largest logit at the last step that counts (target not -1)."""
    rows = torch.arange(len(targets), device=targets.device)
    last = targets.shape[-1] - 1 - (targets.flip(-1) >= 0).int().argmax(-1)  # [B], the step
    return (logits[..., rows, last, :].argmax(-1) == targets[rows, last]).to(logits.dtype).mean(-1)


def step_accuracy(logits: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """Share of the steps whose class has the largest logit, averaged over the sequences.

    Args:
        logits, targets: of each step.
        counted: bool, ``[B, T]``: the steps that count, at least one of each sequence (None: all).
    """
    right = (logits.argmax(-1) == targets).to(logits.dtype)
    if counted is None:
        return right.mean((-2, -1))
    return ((right * counted).sum(-1) / counted.sum(-1)).mean(-1)
