"""Initial recurrent and input matrices of the orthogonal and non-normal recurrences.

Recurrent matrices, by scheme:

``xavier``: normal entries of variance 1 / M (Glorot and Bengio); no orthogonal matrix.
``henaff``: a skew matrix of 2x2 blocks [[0, s], [-s, 0]] with s uniform(-pi, 0), so that its exponential turns M / 2
    planes by these angles (Henaff et al., arXiv 1602.06662). This interval is that of the code published with arXiv
    1905.12080, whose settings the studies take over; the code published with arXiv 1901.08428 has (-pi, pi). Which of
    the two is drawn changes no law of the models: s and -s differ by the order of the two units of a block, and
    the other weights are drawn alike for both.
``cayley``: the same blocks with s = -sqrt((1 - cos u) / (1 + cos u)) = -tan(u / 2), u uniform(0, pi / 2) (Helfrich et
    al., arXiv 1707.09520): their Cayley transform turns by u, their exponential by angles within (-1, 0).
``random_orthogonal``: uniform (Haar) among the rotations, or among all orthogonal matrices where the matrix is free.

In an odd width, the blocks of henaff and cayley leave the last axis where it is.

Letters: M width, I inputs.
"""

from __future__ import annotations

import math

import numpy as np

from memsweep.models.orthogonal_maps import CAYLEY as CAYLEY_MAP
from memsweep.models.orthogonal_maps import EXPONENTIAL, random_orthogonal

XAVIER, KAIMING, HENAFF, CAYLEY, RANDOM_ORTHOGONAL = "xavier", "kaiming", "henaff", "cayley", "random_orthogonal"
GENERATORS = (HENAFF, CAYLEY, RANDOM_ORTHOGONAL)
"""Schemes of ``generator``."""
MATRICES = (XAVIER, *GENERATORS)
"""Schemes of ``free_matrix``."""
INPUTS = (XAVIER, KAIMING)
"""Schemes of ``input_matrix``."""


def free_matrix(scheme: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """An initial recurrent matrix that is trained as it stands: ``[M, M]``; orthogonal unless the scheme is xavier.

    Args:
        scheme: one of ``MATRICES``; henaff and cayley give the exponential of their blocks, as published.
        size: M.
        rng: where the draw comes from.
    """
    if scheme == XAVIER:
        return _normal(size, size, 1.0 / size, rng)
    if scheme == RANDOM_ORTHOGONAL:
        return random_orthogonal(size, rng)
    matrix_MM, angles = np.eye(size), _blocks(scheme, size, rng)
    first = 2 * np.arange(len(angles))
    matrix_MM[first, first] = matrix_MM[first + 1, first + 1] = np.cos(angles)
    matrix_MM[first, first + 1], matrix_MM[first + 1, first] = np.sin(angles), -np.sin(angles)
    return matrix_MM


def generator(scheme: str, size: int, rng: np.random.Generator, chart: str = EXPONENTIAL) -> np.ndarray:
    """An initial generator of a rotation (orthogonal_maps.triangle_skew): ``[M, M]``, strictly upper triangular.

    Args:
        scheme: one of ``GENERATORS``.
        size: M.
        rng: where the draw comes from.
        chart: the map that makes the rotation, exponential or cayley. With random_orthogonal the rotation is uniform
            under the map that is named; the blocks of the other schemes are the same for both, as published.
    """
    if scheme == RANDOM_ORTHOGONAL:
        return np.triu(_skew_of(_random_rotation(size, rng), chart), 1)
    upper_MM, entries = np.zeros((size, size)), _blocks(scheme, size, rng)
    first = 2 * np.arange(len(entries))
    upper_MM[first, first + 1] = entries
    return upper_MM


def input_matrix(scheme: str, width: int, inputs: int, rng: np.random.Generator) -> np.ndarray:
    """An initial encoder: ``[M, I]``, as torch.nn.init.xavier_normal_ and kaiming_normal_ draw it.

    Args:
        scheme: xavier, normal entries of variance 2 / (M + I), or kaiming, of variance 2 / I.
        width, inputs: M and I.
        rng: where the draw comes from.
    """
    return _normal(width, inputs, 2.0 / (width + inputs if scheme == XAVIER else inputs), rng)


def _normal(rows: int, columns: int, variance: float, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((rows, columns)) * math.sqrt(variance)


def _blocks(scheme: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """s of each 2x2 block: ``[M // 2]``."""
    if scheme == HENAFF:
        return rng.uniform(-math.pi, 0.0, size // 2)
    return -np.tan(rng.uniform(0.0, math.pi / 2.0, size // 2) / 2.0)


def _random_rotation(size: int, rng: np.random.Generator) -> np.ndarray:
    """From the Haar distribution of the rotations: ``[M, M]``."""
    drawn = random_orthogonal(size, rng)
    # reflecting the matrices of determinant -1 makes them rotations, and keeps the distribution uniform
    return drawn * np.where(np.arange(size) == 0, np.sign(np.linalg.det(drawn)), 1.0)


def _skew_of(rotation: np.ndarray, chart: str) -> np.ndarray:
    """The skew matrix that a map takes to a rotation, of least angles: ``[M, M]``."""
    import scipy.linalg

    # the Schur form of an orthogonal matrix is block diagonal: rotations of planes, 1 and -1
    form, basis = scipy.linalg.schur(rotation, output="real")
    first = np.flatnonzero(np.diagonal(form, -1))
    alone = np.setdiff1d(np.arange(len(form)), np.concatenate([first, first + 1]))
    turned = alone[np.diagonal(form)[alone] < 0.0]
    angles = np.arctan2(
        form[first, first + 1] - form[first + 1, first], form[first, first] + form[first + 1, first + 1]
    )
    rows, columns = np.concatenate([first, turned[0::2]]), np.concatenate([first + 1, turned[1::2]])
    angles = np.concatenate([angles, np.full(len(turned) // 2, math.pi)])
    if chart == CAYLEY_MAP and len(turned):
        raise ValueError("a rotation that turns a plane by 180 degrees is no Cayley transform")
    entries = -np.tan(angles / 2.0) if chart == CAYLEY_MAP else angles
    skew = np.zeros_like(form)
    skew[rows, columns], skew[columns, rows] = entries, -entries
    return np.asarray(basis @ skew @ basis.T)
