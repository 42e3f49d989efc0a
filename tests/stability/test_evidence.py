"""Theory's evidence beside a verdict, against numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine import model_config
from memsweep.config.schema.canonical import to_dict
from memsweep.models.parameterizations.base import DISCRETE
from memsweep.stability.verdict.evidence import analytic_modulus, distance_bound


def test_a_stable_parameterization_has_a_finite_modulus():
    found = {name: analytic_modulus(to_dict(model_config(name).parameterization), 0.1) for name in ("direct", "exp")}
    assert found["direct"] == math.inf
    assert found["exp"] == pytest.approx(math.expm1(0.1))
    assert analytic_modulus({"name": "best", "a": 1.0, "b": 0.1}, 0.1) == pytest.approx(0.370156, abs=1e-6)
    assert math.isnan(analytic_modulus({"name": "of a plugin that is gone"}, 0.1))
    assert math.isnan(analytic_modulus({"name": "exp"}, math.nan))


def test_a_discrete_map_that_leaves_the_unit_circle_is_not_stable():
    best = {"name": "best", "a": 1.0, "b": 0.5}
    assert analytic_modulus(best, 0.5) == pytest.approx(1.0)
    assert analytic_modulus(best, 0.5, DISCRETE) == math.inf
    assert analytic_modulus({**best, "b": 0.6}, 0.5, DISCRETE) < 1.0


def test_an_exponential_target_is_within_reach_and_a_polynomial_one_is_not():
    lags = np.arange(2000)
    assert distance_bound(np.exp(-lags), 1.0, 1.0, 1.0) == pytest.approx(0.0, abs=1e-12)
    polynomial = (1 + 0.1 * lags) ** -1.1
    bounds = [distance_bound(polynomial, 1.0, 1.0, rate) for rate in (0.1, 0.01)]
    assert bounds[0] > bounds[1] > 0
    assert distance_bound(polynomial, 0.0, 1.0, 0.1) == pytest.approx(polynomial.sum())


def test_the_bound_is_below_the_true_distance():
    lags = np.arange(500)
    target = (1 + 0.1 * lags) ** -1.1
    best = 0.9 * np.exp(-0.02 * lags)
    assert distance_bound(target, 0.9**0.5, 0.9**0.5, 0.02) <= np.abs(target - best).sum()
