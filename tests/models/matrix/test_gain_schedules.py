"""The schedules of stair gains: the published table, and what their products leave of a memory."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memsweep.models.matrix.config import ALPHA, EXP_ALPHA, LEARNED, SCHEDULES, initial_gains, schedule

STEPS = 220  # of the copying memory with a delay of 200
FIRST = {
    "n": (0.5, 0.6667, 0.75),
    "n2": (0.75, 0.8889, 0.9375),
    "sqrtlogn": (0.0459, 0.1507, 0.2118),
    "logn": (-0.4427, 0.0898, 0.2787),
    "log2n": (0.5191, 0.5657, 0.5976),
    "expn": (0.8647, 0.9502, 0.9817),
}
PRODUCTS = {
    "n": (1.0 / (STEPS + 1), 1e-12),
    "n2": ((STEPS + 2) / (2 * (STEPS + 1)), 1e-12),
    "sqrtlogn": (1.2e-65, 0.05),
    "logn": (-2.7e-28, 0.05),
    "log2n": (2.3e-22, 0.05),
    "expn": (0.798, 1e-3),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_published_gains(name: str) -> None:
    gains = schedule(name, STEPS)
    assert gains.shape == (STEPS,)
    np.testing.assert_allclose(gains[:3], FIRST[name], rtol=0, atol=5e-5)
    assert gains.prod() == pytest.approx(PRODUCTS[name][0], rel=PRODUCTS[name][1])
    # a stair: it rises, towards 1
    assert (np.diff(gains) >= 0.0).all()
    assert (gains <= 1.0).all()
    np.testing.assert_array_equal(schedule(name, 7), gains[:7])


def test_which_schedules_keep_a_memory() -> None:
    """n leaves a power of the length, n2 and expn a constant, the others less than any power that is tried."""
    lengths = np.array([1000, 4000, 16000])
    logs = {name: np.cumsum(np.log(np.abs(schedule(name, 16000))))[lengths - 1] for name in SCHEDULES}
    slopes = {name: np.diff(values) / math.log(4.0) for name, values in logs.items()}
    np.testing.assert_allclose(slopes["n"], -1.0, rtol=0, atol=1e-3)
    for name in ("n2", "expn"):
        np.testing.assert_allclose(slopes[name], 0.0, rtol=0, atol=1e-3)
    for name in ("sqrtlogn", "logn", "log2n"):
        assert (slopes[name] < -100.0).all()
        assert slopes[name][1] < 3.0 * slopes[name][0]


def test_learned_gains_at_the_start() -> None:
    rng = np.random.default_rng(0)
    assert (ALPHA, EXP_ALPHA) == LEARNED
    np.testing.assert_array_equal(initial_gains(ALPHA, 5, rng), np.ones(5))
    rates = initial_gains(EXP_ALPHA, 5000, rng)
    assert ((rates > 0.0) & (rates < 1.0)).all()
    assert rates.mean() == pytest.approx(0.5, abs=0.02)
