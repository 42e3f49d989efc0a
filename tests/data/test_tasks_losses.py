"""Losses of classification against torch's own, and the two properties of the language-model loss."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from memsweep.data.losses import last_step_accuracy, summed_cross_entropy


def logits_and_targets(*shape: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits ``[*shape]`` and class numbers for all but the last axis."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3.0 * torch.randn(shape, dtype=torch.float64, generator=generator)
    return logits, torch.randint(shape[-1], shape[:-1], generator=generator)


def test_summed_cross_entropy_is_torchs_sum_and_has_its_gradient() -> None:
    logits, targets = logits_and_targets(5, 7, 4)
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    losses = summed_cross_entropy(mine, targets)
    assert losses.shape == (5,)
    expected = cross_entropy(theirs.reshape(-1, 4), targets.reshape(-1), reduction="sum")
    torch.testing.assert_close(losses.sum(), expected)
    losses.sum().backward()
    expected.backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_large_logits_neither_overflow_nor_lose_the_loss() -> None:
    logits = torch.tensor([[[1e4, 0.0, -1e4]]], dtype=torch.float64)
    losses = [summed_cross_entropy(logits, torch.tensor([[label]])).item() for label in range(3)]
    assert losses == [0.0, 1e4, 2e4]


def test_accuracy_counts_the_last_step_alone() -> None:
    logits = torch.zeros(2, 3, 4, 3, dtype=torch.float64)  # [N, B, T, C]
    logits[..., :-1, 0] = 9.0
    logits[0, :, -1, 2] = 1.0
    logits[1, :, -1] = torch.eye(3, dtype=torch.float64)
    assert last_step_accuracy(logits, torch.tensor([2, 2, 2])).tolist() == pytest.approx([1.0, 1 / 3])
