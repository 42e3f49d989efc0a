"""Initial recurrent and input matrices: their distributions, and what the maps make of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from memsweep.models.matrix.initial import (
    CAYLEY,
    HENAFF,
    INPUTS,
    RANDOM_ORTHOGONAL,
    XAVIER,
    free_matrix,
    generator,
    input_matrix,
)
from memsweep.models.orthogonal_maps import CAYLEY as CAYLEY_MAP
from memsweep.models.orthogonal_maps import EXPONENTIAL, cayley, exponential, triangle_skew

MAPS = {EXPONENTIAL: exponential, CAYLEY_MAP: cayley}


def rotation(drawn: np.ndarray, chart: str) -> np.ndarray:
    return MAPS[chart](triangle_skew(torch.from_numpy(drawn))).numpy()


def angles(matrix: np.ndarray) -> np.ndarray:
    """Absolute angles of the planes that an orthogonal matrix of even width turns, in the order of 2x2 blocks."""
    first = np.arange(0, len(matrix), 2)
    return np.abs(np.arctan2(matrix[first, first + 1], matrix[first, first]))


def follows(values: np.ndarray, law: scipy.stats.rv_continuous) -> bool:
    return bool(scipy.stats.kstest(values, law.cdf).pvalue > 1e-3)


@pytest.mark.parametrize("size", [1, 2, 7, 12])
def test_blocks_of_two(size: int) -> None:
    for scheme in (HENAFF, CAYLEY):
        drawn = generator(scheme, size, np.random.default_rng(1))
        entries = np.diagonal(drawn, 1)[::2]
        assert np.count_nonzero(drawn) == np.count_nonzero(entries) == size // 2
        assert (entries < 0.0).all()
        assert (entries > (-math.pi if scheme == HENAFF else -1.0)).all()
        expected = scipy.linalg.expm(drawn - drawn.T)
        found = free_matrix(scheme, size, np.random.default_rng(1))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_the_angles_of_the_blocks() -> None:
    """henaff is uniform in the angles of the exponential, cayley in those of the Cayley transform."""
    rng, size = np.random.default_rng(2), 1000
    half, quarter = scipy.stats.uniform(0.0, math.pi), scipy.stats.uniform(0.0, math.pi / 2.0)
    assert follows(angles(free_matrix(HENAFF, size, rng)), half)
    drawn = generator(CAYLEY, size, rng)
    entries = np.diagonal(drawn, 1)[::2]
    assert follows(-2.0 * np.arctan(entries), quarter)
    few = generator(CAYLEY, 40, np.random.default_rng(2))
    turned = -2.0 * np.arctan(np.diagonal(few, 1)[::2])
    np.testing.assert_allclose(angles(rotation(few, CAYLEY_MAP)), turned, rtol=0, atol=1e-13)
    # the published form of the entry
    np.testing.assert_allclose(
        np.diagonal(few, 1)[::2], -np.sqrt((1.0 - np.cos(turned)) / (1.0 + np.cos(turned))), rtol=1e-12
    )


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("chart", MAPS)
def test_a_random_generator_makes_the_rotation_that_was_drawn(chart: str, size: int) -> None:
    for seed in range(6):
        drawn = generator(RANDOM_ORTHOGONAL, size, np.random.default_rng(seed), chart)
        assert not np.tril(drawn).any()
        found = rotation(drawn, chart)
        rng = np.random.default_rng(seed)
        expected = free_matrix(RANDOM_ORTHOGONAL, size, rng)
        expected[:, 0] *= np.sign(np.linalg.det(expected))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chart", MAPS)
def test_random_generators_are_uniform_among_the_rotations(chart: str) -> None:
    """The angle of a uniform rotation of space has the density (1 - cos) / pi, and its axis no direction of its own."""
    rng, count = np.random.default_rng(3), 600
    drawn = np.stack([rotation(generator(RANDOM_ORTHOGONAL, 3, rng, chart), chart) for _ in range(count)])
    np.testing.assert_allclose(np.linalg.det(drawn), 1.0, rtol=0, atol=1e-12)
    turned = np.arccos(np.clip((np.trace(drawn, axis1=1, axis2=2) - 1.0) / 2.0, -1.0, 1.0))
    assert scipy.stats.kstest(turned, lambda angle: (angle - np.sin(angle)) / math.pi).pvalue > 1e-3
    axis = drawn[:, 2, 1] - drawn[:, 1, 2], drawn[:, 0, 2] - drawn[:, 2, 0], drawn[:, 1, 0] - drawn[:, 0, 1]
    upward = axis[2] / np.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)
    assert follows(upward, scipy.stats.uniform(-1.0, 2.0))


def test_a_free_random_matrix_has_either_determinant() -> None:
    rng = np.random.default_rng(4)
    signs = [round(np.linalg.det(free_matrix(RANDOM_ORTHOGONAL, 5, rng))) for _ in range(200)]
    assert set(signs) == {-1, 1}
    assert scipy.stats.binomtest(signs.count(1), 200).pvalue > 1e-3


def test_normal_matrices_are_those_of_torch() -> None:
    """Their deviations, read from torch itself: a million of its own draws."""
    torch.manual_seed(0)
    shape, rng = (500, 40), np.random.default_rng(6)
    for scheme, init in zip(INPUTS, (torch.nn.init.xavier_normal_, torch.nn.init.kaiming_normal_), strict=True):
        drawn = input_matrix(scheme, *shape, rng)
        assert drawn.shape == shape
        deviation = torch.stack([init(torch.empty(shape)) for _ in range(50)]).std().item()
        assert drawn.std() == pytest.approx(deviation, rel=0.02)
        assert follows(drawn.ravel() / drawn.std(), scipy.stats.norm)
    square = free_matrix(XAVIER, 150, rng)
    assert square.std() == pytest.approx(1.0 / math.sqrt(150), rel=0.03)
    assert follows(square.ravel() * math.sqrt(150), scipy.stats.norm)
