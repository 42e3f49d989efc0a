"""The maps to orthogonal matrices against scipy, torch and the published gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from engine import noise
from memsweep.models.orthogonal_maps import cayley, exponential, polar, random_orthogonal, triangle_skew

SIZES = torch.tensor([1e-6, 0.1, 1.0, 10.0])[:, None, None]


def rotated(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda generator: function(triangle_skew(generator))


def gradient(function: Callable[[Tensor], Tensor], values: Tensor, weight: Tensor) -> Tensor:
    values = values.clone().requires_grad_()
    return torch.autograd.grad((weight * function(values)).sum(), values)[0]


def orthogonal(width: int, seed: int, count: int = 1) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([random_orthogonal(width, rng) for _ in range(count)]))


@pytest.mark.parametrize("width", [1, 2, 7, 32])
def test_the_exponential_and_its_gradient_are_those_of_torch(width: int) -> None:
    generator, weight = noise(4, width, width) * SIZES, noise(4, width, width, seed=1)
    found, expected = exponential(triangle_skew(generator)), torch.linalg.matrix_exp(triangle_skew(generator))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    pair = [gradient(rotated(function), generator, weight) for function in (exponential, torch.linalg.matrix_exp)]
    torch.testing.assert_close(*pair, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_the_gradient_is_the_published_one(size: float) -> None:
    """B dexp_{-A}( (B^T G - G^T B) / 2 ), then triu(X - X^T, 1): arXiv 1901.08428 and its code."""
    generator, weight = noise(6, 6) * size, noise(6, 6, seed=1)
    skew = triangle_skew(generator).numpy()
    matrix, outer = scipy.linalg.expm(skew), weight.numpy()
    direction = (matrix.T @ outer - outer.T @ matrix) / 2.0
    turned = matrix @ scipy.linalg.expm_frechet(-skew, direction, compute_expm=False)
    found = gradient(rotated(exponential), generator, weight)
    np.testing.assert_allclose(found.numpy(), np.triu(turned - turned.T, 1), rtol=0, atol=1e-12)


def test_the_cayley_transform_solves_its_equation() -> None:
    generator, weight = noise(4, 9, 9) * SIZES, noise(4, 9, 9, seed=1)
    identity = torch.eye(9).double()

    def solved(skew: Tensor) -> Tensor:
        return torch.linalg.solve(identity + skew, identity - skew)

    found = cayley(triangle_skew(generator))
    torch.testing.assert_close(found, solved(triangle_skew(generator)), rtol=0, atol=1e-13)
    torch.testing.assert_close(found @ found.mT, identity.expand(4, -1, -1), rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.linalg.det(found), torch.ones(4).double(), rtol=0, atol=1e-13)
    pair = [gradient(rotated(function), generator, weight) for function in (cayley, solved)]
    torch.testing.assert_close(*pair, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("width", [1, 2, 8])
def test_the_polar_factor_is_that_of_scipy(width: int) -> None:
    factors = orthogonal(width, 3, 4)
    matrices = torch.cat([factors, factors + 0.1 * noise(4, width, width), noise(4, width, width)])
    found = polar(matrices)
    for matrix, factor in zip(matrices, found, strict=True):
        np.testing.assert_allclose(factor, scipy.linalg.polar(matrix.numpy())[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found @ found.mT, torch.eye(width).double().expand(12, -1, -1), rtol=0, atol=1e-14)
    torch.testing.assert_close(found[:4], factors, rtol=0, atol=1e-14)
    assert torch.equal(torch.linalg.det(found).sign(), torch.linalg.det(matrices).sign())


def test_the_gradient_of_the_polar_factor() -> None:
    """Where all singular values are equal, and away from there; at a singular matrix it is finite."""
    start = orthogonal(4, 5, 2)
    for matrices in (start, 3.0 * start, start + 0.3 * noise(2, 4, 4), noise(2, 4, 4)):
        assert torch.autograd.gradcheck(polar, matrices.requires_grad_())
    # at the identity, the derivative keeps the skew part
    weight = noise(4, 4, seed=1)
    found = gradient(polar, torch.eye(4).double(), weight)
    torch.testing.assert_close(found, (weight - weight.mT) / 2.0, rtol=0, atol=1e-14)
    assert gradient(polar, torch.diag(torch.tensor([1.0, 2.0, 0.0])).double(), noise(3, 3)).isfinite().all()


@pytest.mark.parametrize("function", [rotated(exponential), rotated(cayley), polar])
def test_a_matrix_does_not_depend_on_the_others_of_a_batch(function: Callable[[Tensor], Tensor]) -> None:
    matrices, weight = noise(8, 6, 6), noise(8, 6, 6, seed=1)
    others = matrices.clone()
    others[1:] = noise(7, 6, 6, seed=2) * 1e3
    others[3], others[5] = torch.nan, torch.inf

    def both(values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The matrices, and the gradient of a function of their transposes, strided as such."""
        values = values.clone().requires_grad_()
        found = function(values)
        return found, torch.autograd.grad((found.mT * weight).sum(), values)[0]

    expected, disturbed = both(matrices, weight), both(others, weight)
    reordered = both(matrices.flip(0), weight.flip(0))
    for alike, different, backward in zip(expected, disturbed, reordered, strict=True):
        assert torch.equal(different[0], alike[0])
        assert torch.equal(backward.flip(0), alike)
    assert disturbed[0][[3, 5]].isnan().all()


@pytest.mark.parametrize("name", ["exponential", "cayley", "polar"])
def test_the_number_of_threads_changes_no_bit_of_a_map(name: str) -> None:
    drawn = torch.from_numpy(np.random.default_rng(3).standard_normal((2, 256, 256))) / 16.0
    given = drawn if name == "polar" else triangle_skew(drawn)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append({"exponential": exponential, "cayley": cayley, "polar": polar}[name](given))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
