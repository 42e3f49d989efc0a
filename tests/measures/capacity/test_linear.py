"""Hankel singular values in closed form against the finite Hankel matrix, and against known systems."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from memsweep.measures.capacity.linear import LinearSystem
from memsweep.recurrence.layer import Layer


def layer(matrix: np.ndarray, inputs: int = 1, outputs: int = 1, seed: int = 1) -> Layer:
    """A linear layer with this matrix, or diagonal, and random maps in and out."""
    rng = np.random.default_rng(seed)
    width = len(matrix)
    shapes = {"encoder": (width, inputs), "readout": (outputs, width), "bias": (width,), "offset": (outputs,)}
    maps = {name: torch.from_numpy(rng.standard_normal((1, *shape))) for name, shape in shapes.items()}
    return Layer(matrix=torch.from_numpy(matrix).unsqueeze(0), **maps)


def turned(size: int, radius: float) -> np.ndarray:
    """A dense matrix that is not normal, with this spectral radius."""
    matrix = np.random.default_rng(2).standard_normal((size, size)) + np.triu(np.ones((size, size)))
    return matrix * radius / np.abs(np.linalg.eigvals(matrix)).max()


def finite_hankel(given: Layer, steps: int) -> torch.Tensor:
    """The map from inputs 1 ... steps in the past to as many future outputs, step by step."""
    diagonal = given.matrix.ndim == 2
    matrix = torch.diag(given.matrix[0]) if diagonal else given.matrix[0]
    kernel, state = [], given.encoder[0]
    for _ in range(2 * steps):
        kernel.append(given.readout[0] @ state)
        state = matrix @ state
    rows = [torch.cat([kernel[1 + future + past] for past in range(steps)], 1) for future in range(steps)]
    return torch.cat(rows, 0)


SYSTEMS = {
    "diagonal": layer(np.array([0.95, 0.9, 0.5, -0.7, 0.0])),
    "close modes": layer(np.linspace(0.9, 0.9 + 1e-4, 4)),
    "equal modes": layer(np.array([0.8, 0.8, 0.3])),
    "several inputs and outputs": layer(np.array([0.9, 0.6, -0.4]), inputs=2, outputs=3),
    "dense": layer(turned(6, 0.95)),
    "dense, several inputs and outputs": layer(turned(5, 0.9), inputs=2, outputs=2),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_hankel_singular_values_are_those_of_the_hankel_matrix(name: str) -> None:
    given = SYSTEMS[name]
    expected = torch.linalg.svdvals(finite_hankel(given, 400))
    found = LinearSystem.of(given, 0).hankel
    assert len(found) <= given.width
    padded = torch.nn.functional.pad(found, (0, len(expected) - len(found)))
    torch.testing.assert_close(padded, expected, rtol=1e-9, atol=1e-12 * float(expected[0]))


def test_a_diagonal_layer_has_the_values_of_the_same_matrix_written_in_full() -> None:
    modes = np.array([0.999, 0.99, 0.9, 0.2, -0.6])
    one, other = (LinearSystem.of(layer(matrix), 0) for matrix in (modes, np.diag(modes)))
    torch.testing.assert_close(one.hankel, other.hankel, rtol=1e-8, atol=1e-11)


def test_one_mode_has_the_values_that_are_known_by_hand() -> None:
    rate, encoder, readout = 0.9, 2.0, -3.0
    given = layer(np.array([rate]))
    given.encoder.fill_(encoder)
    given.readout.fill_(readout)
    system = LinearSystem.of(given, 0)
    # kernel c a^s b: the Hankel matrix is a c b (1, a, ...)'(1, a, ...)
    assert float(system.hankel[0]) == pytest.approx(rate * 6.0 / (1 - rate**2))


def test_a_leak_and_a_gain_are_part_of_the_matrix() -> None:
    plain = layer(np.array([0.9, 0.5]))
    euler = Layer(
        encoder=plain.encoder / 0.1,
        bias=plain.bias,
        matrix=(plain.matrix - 1.0) / 0.1,
        readout=plain.readout,
        offset=plain.offset,
        leak=1.0,
        gain=0.1,
    )
    torch.testing.assert_close(LinearSystem.of(euler, 0).hankel, LinearSystem.of(plain, 0).hankel)


def test_what_does_not_decay_has_no_gramian() -> None:
    for matrix in (np.array([1.0, 0.5]), turned(3, 1.01), np.array([math.nan])):
        assert not LinearSystem.of(layer(matrix), 0).stable
