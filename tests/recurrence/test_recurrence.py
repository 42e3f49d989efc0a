"""The fast paths of a linear model against brute force."""

from __future__ import annotations

import pytest
import torch

from memsweep.recurrence.linear.gram import Gram
from memsweep.recurrence.linear.impulse import diagonal_response, vandermonde


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("horizon", [1, 2, 3, 17, 64, 100])
def test_vandermonde_is_powers(horizon):
    eigenvalues = torch.tensor([[0.0, 1.0, -0.5], [0.99, -1.01, 0.3]], dtype=torch.float64)
    expected = torch.stack([eigenvalues**power for power in range(horizon)], -1)
    torch.testing.assert_close(vandermonde(eigenvalues, horizon), expected, rtol=1e-13, atol=0)


def test_response_gradient_by_finite_differences():
    amplitudes = rand(3, 2, 4).requires_grad_()
    eigenvalues = torch.tensor([[0.0, 0.5, -0.4, 1.02]] * 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, e: diagonal_response(a, e, 9), (amplitudes, eigenvalues))


@pytest.mark.parametrize("horizon", [13, 48, 100])
def test_batch_gram_is_the_weighted_squared_error(horizon):
    """At one block of rows, at exactly one, and at several of which the last is smaller."""
    batch, models = 7, 3
    x, weights = rand(batch, horizon), torch.linspace(0.1, 2.0, horizon, dtype=torch.float64)
    error, drift = rand(models, horizon, seed=1), rand(models, horizon, seed=2)
    predicted = torch.stack(
        [drift[:, t : t + 1] + sum(error[:, s : s + 1] * x[:, t - s] for s in range(t + 1)) for t in range(horizon)], -1
    )
    brute = (weights * predicted).square().mean((-1, -2))
    for chunk in (3, 1024):
        gram = Gram.of_batch(x, weights, chunk)
        torch.testing.assert_close(gram.loss(error, drift), brute, rtol=1e-13, atol=0)
        torch.testing.assert_close(gram.lags, gram.lags.T)


def test_gram_gradient_by_finite_differences():
    gram = Gram.of_batch(rand(5, 6), torch.linspace(0.1, 2.0, 6, dtype=torch.float64))
    assert torch.autograd.gradcheck(
        gram.loss, (rand(2, 6, seed=1).requires_grad_(), rand(2, 6, seed=2).requires_grad_())
    )


def test_population_is_the_mean_over_batches():
    horizon, batches = 12, 400
    weights = torch.linspace(0.1, 2.0, horizon, dtype=torch.float64)
    error, drift = rand(1, horizon, seed=1), rand(1, horizon, seed=2)
    expected = Gram.population(weights, variance=4.0).loss(error, drift)
    losses = torch.cat(
        [
            Gram.of_batch(2.0 * rand(256, horizon, seed=9 + index), weights).loss(error, drift)
            for index in range(batches)
        ]
    )
    standard_error = losses.std() / batches**0.5
    assert abs(losses.mean() - expected) < 4 * standard_error
    assert standard_error < 0.01 * expected
