"""HiPPO-LegS against its published matrix: eigenvalues, input weights, and the kernels that a layer starts with."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
import torch

from engine import weights_of
from memsweep.models.base import Signature
from memsweep.models.stable_ssm import legs
from memsweep.models.stable_ssm.model import StableSSM
from memsweep.testing import ModelSuite


def published(states: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and the p of A's rank-one part, entry by entry."""
    a = np.zeros((states, states))
    for n in range(states):
        for k in range(n):
            a[n, k] = -np.sqrt((2 * n + 1) * (2 * k + 1))
        a[n, n] = -(n + 1)
    orders = np.arange(states)
    return a, np.sqrt(2 * orders + 1), np.sqrt(orders + 0.5)


class TestLegs(ModelSuite):
    model = "stable_ssm"
    config = StableSSM.Config(width=3, state_size=8, initialization="legs", layers=2)
    signature = Signature(inputs=2, outputs=3, horizon=20)


@pytest.mark.parametrize("states", [2, 8, 64])
def test_modes_are_those_of_the_normal_part(states: int) -> None:
    """By the eigenvalues of a matrix of which nothing is known: all at real part -1/2, in conjugate pairs."""
    a, b, p = published(states)
    normal = a + np.outer(p, p)
    np.testing.assert_allclose(legs.normal_part(states), normal, rtol=0, atol=1e-12 * states)
    np.testing.assert_allclose(normal @ normal.T, normal.T @ normal, rtol=0, atol=1e-10 * states**2)
    values, vectors = np.linalg.eig(normal)
    np.testing.assert_allclose(values.real, -0.5, rtol=0, atol=1e-9 * states)
    order = np.argsort(values.imag)[states // 2 :]
    frequencies, drive = legs.modes(states)
    np.testing.assert_allclose(frequencies, values.imag[order], rtol=1e-9)
    np.testing.assert_allclose(drive, np.abs(vectors[:, order].conj().T @ b), rtol=1e-8)


def test_half_the_input_gives_the_kernels_of_the_whole_system() -> None:
    """e^{tN} B/2, over steps in which the input is held, approaches e^{tA} B as the states grow.

    At single times it does not: its fastest modes have large inputs and never stop to turn. The first states of
    (A, B) do not depend on those after them.
    """
    a, b, _ = published(4)
    dt, farthest = 0.1, []
    for states in (32, 64, 128, 256):
        normal, drive = legs.normal_part(states), np.sqrt(2.0 * np.arange(states) + 1.0) / 2.0
        one_step = np.linalg.solve(normal, (scipy.linalg.expm(dt * normal) - np.eye(states)) @ drive)
        whole_step = np.linalg.solve(a, (scipy.linalg.expm(dt * a) - np.eye(4)) @ b)
        errors = []
        for step in range(30):
            part = scipy.linalg.expm(step * dt * normal) @ one_step
            errors.append(np.abs(part[:4] - scipy.linalg.expm(step * dt * a) @ whole_step).max() / dt)
        farthest.append(max(errors))
    assert all(after < 0.6 * before for before, after in pairwise(farthest))
    assert farthest[-1] < 0.02


@pytest.mark.parametrize("frequency", ["free", "relative"])
def test_a_layer_starts_with_these_modes(frequency: str) -> None:
    config = StableSSM.Config(width=400, state_size=16, initialization="legs", frequency=frequency)
    built = StableSSM(config, Signature(1, 1, 50), np.random.default_rng(0))
    weights = weights_of(built)
    frequencies, drive = legs.modes(16)
    dt = weights["log_dt_l0"][0].exp()[:, None]
    assert ((dt >= 1e-3) & (dt <= 0.1)).all()
    expected = torch.exp(dt * torch.complex(torch.full((8,), -0.5).double(), torch.from_numpy(frequencies)))
    torch.testing.assert_close(built.eigenvalues(weights)[0].reshape(400, 8), expected, rtol=1e-12, atol=1e-12)
    sizes = torch.complex(weights["output_re_l0"], weights["output_im_l0"])[0].abs().square().mean(0).sqrt()
    np.testing.assert_allclose(sizes, np.minimum(drive, 2.0) / 2.0, rtol=0.15)
