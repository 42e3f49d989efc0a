"""Losses of classification: of every step, summed or averaged, of the steps that count, or of the last step alone.

Letters: N leading dimensions (replicas, copies), B batch, T time, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor


def summed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of a sequence of classes, L = sum_t -log softmax(o_t)[y_t].

    The loss of a recurrent language model, which factorizes the probability of a sequence into steps: a sum, not a
    mean, so that the losses of the parts of a sequence add up to the loss of the whole.

    Args:
        logits: ``[..., T, C]``; a number added to all logits of a step changes nothing.
        targets: class numbers, int64, ``[..., T]``; missing leading dimensions are broadcast.

    Returns:
        ``[...]``, the logits' leading dimensions, in nats: one loss for every sequence.
    """
    return step_cross_entropy(logits, targets).sum(-1)


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of a step's class, averaged over the steps of a sequence.

    Args:
        logits: ``[..., T, C]``.
        targets: class numbers, int64, ``[..., T]``; missing leading dimensions are broadcast.

    Returns:
        ``[...]``, in nats: one loss for every sequence.
    """
    return step_cross_entropy(logits, targets).mean(-1)


def last_step_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of one class for a whole sequence, which the last step's logits answer.

    Args:
        logits: ``[..., T, C]``.
        targets: class numbers, int64, ``[...]``; missing leading dimensions are broadcast.

    Returns:
        ``[...]``, in nats: one loss for every sequence.
    """
    return step_cross_entropy(logits[..., -1, :], targets)


def counted_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of a step's class, averaged over the steps of a sequence that count.

    Args:
        logits: ``[..., T, C]``.
        targets: class numbers, an integer type, ``[..., T]``; -1 where no answer counts. Each sequence has one that
            does. Missing leading dimensions are broadcast.

    Returns:
        ``[...]``, in nats: one loss for every sequence.
    """
    counted = targets >= 0
    nats = step_cross_entropy(logits, targets.clamp(min=0).long())
    return (nats * counted).sum(-1) / counted.sum(-1)


def step_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of classes: ``[..., C]`` logits, ``[...]`` targets, ``[...]`` nats."""
    chosen = targets.expand(logits.shape[:-1]).unsqueeze(-1)
    return torch.logsumexp(logits, -1) - logits.gather(-1, chosen).squeeze(-1)


def last_step_accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Share of the sequences whose largest logit of the last step is the right class's.

    Args:
        logits: ``[..., B, T, C]``.
        targets: class numbers ``[B]``.

    Returns:
        ``[...]``, 0 ... 1, in the logits' type.
    """
    return (logits[..., -1, :].argmax(-1) == targets).to(logits.dtype).mean(-1)


def last_counted_accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    """Share of the sequences whose largest logit is the right class's at the last step that counts.

    Args:
        logits: ``[..., B, T, C]``.
        targets: class numbers, an integer type, ``[B, T]``; -1 where no answer counts.

    Returns:
        ``[...]``, 0 ... 1, in the logits' type.
    """
    rows = torch.arange(len(targets), device=targets.device)
    last = targets.shape[-1] - 1 - (targets.flip(-1) >= 0).int().argmax(-1)
    return (logits[..., rows, last, :].argmax(-1) == targets[rows, last]).to(logits.dtype).mean(-1)


def step_accuracy(logits: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """Share of the steps whose largest logit is the right class's.

    Args:
        logits: ``[..., B, T, C]``.
        targets: class numbers, int64, ``[B, T]``.
        counted: bool, ``[B, T]``: the steps that count, at least one of each sequence (None: all).

    Returns:
        ``[...]``, 0 ... 1, in the logits' type: the mean over the sequences of each one's share.
    """
    right = (logits.argmax(-1) == targets).to(logits.dtype)
    if counted is None:
        return right.mean((-2, -1))
    return ((right * counted).sum(-1) / counted.sum(-1)).mean(-1)
