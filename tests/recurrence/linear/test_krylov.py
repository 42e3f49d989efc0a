"""Impulse responses of dense recurrences against the recurrence itself."""

from __future__ import annotations

import pytest
import torch

from memsweep.recurrence.linear.impulse import diagonal_response
from memsweep.recurrence.linear.krylov import dense_response


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def stepped(readout, matrix, encoder, horizon):
    lags, vectors = [], encoder
    for _ in range(horizon):
        lags.append(readout @ vectors)
        vectors = matrix @ vectors
    return torch.stack(lags, -1)


def weights(leading=(3,), outputs=2, width=5, channels=3, dtype=torch.float64):
    return (
        rand(*leading, outputs, width, dtype=dtype),
        0.9 * rand(*leading, width, width, seed=1, dtype=dtype) / width**0.5,
        rand(*leading, width, channels, seed=2, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("horizon", [1, 2, 15, 16, 17, 100, 257, 400])
def test_response_is_the_stepped_recurrence(horizon, dtype):
    readout, matrix, encoder = weights(dtype=dtype)
    found = dense_response(readout, matrix, encoder, horizon)
    assert found.shape == (3, 2, 3, horizon)
    assert found.is_contiguous()
    expected = stepped(readout, matrix, encoder, horizon)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))


def test_slow_modes_stay_accurate():
    """A rotation has a response that never decays: doubling must not lose digits over a thousand lags."""
    rotation = torch.linalg.qr(rand(6, 6))[0]
    readout, encoder = rand(1, 6, seed=1), rand(6, 1, seed=2)
    expected = stepped(readout, rotation, encoder, 1000)
    torch.testing.assert_close(dense_response(readout, rotation, encoder, 1000), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("leading", [(), (4,), (2, 3)])
def test_any_leading_dimensions(leading):
    arguments = weights(leading)
    found = dense_response(*arguments, 20)
    assert found.shape == (*leading, 2, 3, 20)
    torch.testing.assert_close(found, stepped(*arguments, 20), rtol=1e-12, atol=1e-13)


def test_a_diagonal_matrix_gives_the_diagonal_response():
    eigenvalues = torch.tensor([[0.0, 0.5, -0.4, 0.99]], dtype=torch.float64)
    readout, encoder = rand(1, 2, 4), rand(1, 4, 1, seed=1)
    found = dense_response(readout, torch.diag_embed(eigenvalues), encoder, 100).squeeze(-2)
    torch.testing.assert_close(found, diagonal_response(readout * encoder.mT, eigenvalues, 100))


@pytest.mark.parametrize("horizon", [3, 20])
def test_gradient_by_finite_differences(horizon):
    arguments = [value.requires_grad_() for value in weights((2,), 1, 3, 2)]
    assert torch.autograd.gradcheck(lambda c, a, u: dense_response(c, a, u, horizon), arguments)


@pytest.mark.parametrize(
    "shape", [((16,), 1, 8, 1), ((7,), 2, 5, 3), ((64,), 1, 3, 1), ((12,), 1, 33, 1), ((12,), 10, 7, 8)]
)
def test_bits_of_a_row_do_not_depend_on_the_others(shape):
    def rows(arguments):
        live = [value.clone().requires_grad_() for value in arguments]
        response = dense_response(*live, 100)
        return [response.detach(), *torch.autograd.grad(response.square().sum(), live)]

    arguments, rows_count = weights(*shape), shape[0][0]
    order = torch.randperm(rows_count, generator=torch.Generator().manual_seed(3))
    broken = [value.clone() for value in arguments]
    broken[1][0] = float("inf")
    expected = rows(arguments)
    for one, two, three in zip(expected, rows([v[order] for v in arguments]), rows(broken), strict=True):
        assert torch.equal(one[order], two)
        assert torch.equal(one[1:], three[1:])
