"""Metrics by name: what a search is told and what claims compare, from a trial's own tables."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from engine import trial
from memsweep.config.schema.search import BALL_OF, METRICS
from memsweep.errors import MemsweepError
from memsweep.stability.comparison.metrics import SeedValue, median, per_seed
from memsweep.stability.verdict.radius import ABOVE, BELOW, BETWEEN, NOT_CENSORED, THRESHOLD, stability_radii
from memsweep.trial import run_trial

RADII = (0.0, 0.01, 0.1, 1.0)


def curves(*errors: tuple[float, ...], ball: str = "recurrent") -> dict[str, pd.DataFrame]:
    """One replica per tuple of errors at ``RADII``; the zero predictor's loss is 2."""
    rows = [
        {"seed": seed, "ball": ball, "radius": radius, "error": error, "zero_loss": 2.0}
        for seed, values in enumerate(errors)
        for radius, error in zip(RADII, values, strict=True)
    ]
    return {"curves": pd.DataFrame(rows).sample(frac=1.0, random_state=0)}


def replicas(**columns: list[object]) -> dict[str, pd.DataFrame]:
    """Rows of seeds 0, 1, ..."""
    count = len(next(iter(columns.values())))
    return {"replicas": pd.DataFrame({"seed": range(count), "zero_loss": 2.0, **columns}), "metrics": pd.DataFrame()}


@pytest.mark.more
def test_the_metrics_of_a_trained_trial_are_those_of_its_record() -> None:
    perturbation = {"balls": ("recurrent", "weights", "all"), "starts": 0, "ascent_steps": 1}
    result = run_trial(trial(training={"seeds": 3, "steps": 20}, perturbation=perturbation))
    for name in METRICS:
        values = [seed.value for seed in per_seed(name, result.tables)]
        assert median(name, result.summary, result.tables) == float(np.median(values)), name
        assert median(name, {}, result.tables) == median(name, result.summary, result.tables), name
        assert [seed.seed for seed in per_seed(name, result.tables)] == [0, 1, 2]
    for name, ball in BALL_OF.items():
        known = stability_radii(result.tables["curves"][result.tables["curves"]["ball"] == ball])
        known = known[known["threshold"] == THRESHOLD].sort_values("seed")
        wanted = known["radius"].tolist()  # of the drift, which is 0 without perturbation
        assert [seed.value for seed in per_seed(name, result.tables)] == wanted, name


def test_a_radius_says_how_it_is_censored() -> None:
    limit = THRESHOLD * 2.0
    found = per_seed(
        "radius",
        curves(
            (0.0, limit / 100, limit / 10, limit),  # exactly at the limit is within it
            (limit / 2, 2 * limit, 3 * limit, 4 * limit),
            (limit / 2, limit / 2, math.inf, math.inf),
            (limit / 4, limit / 2, 2 * limit, 3 * limit),
            (2 * limit, 2 * limit, 2 * limit, 2 * limit),
            (math.inf,) * 4,
        ),
    )
    assert found[:3] == [SeedValue(0, 1.0, ABOVE), SeedValue(1, 0.01, BELOW), SeedValue(2, 0.01, BETWEEN, 0.1)]
    assert [seed.bounds for seed in found[:3]] == [(1.0, math.inf), (0.0, 0.01), (0.01, 0.1)]
    assert found[3].censored == NOT_CENSORED
    assert found[3].value == pytest.approx(math.sqrt(0.001), rel=1e-12)  # halfway between both, in logarithms
    assert found[4:] == [SeedValue(4, 0.0), SeedValue(5, 0.0)]  # not even without perturbation; diverged
    assert median("radius", {}, curves((0.0, 0.0, 0.0, 0.0), (math.inf,) * 4)) == 0.5


def test_a_radius_is_that_of_the_verdict_whatever_the_error_of_the_fit() -> None:
    """Drift does not count the error of the fit: 1.2 % of it leave a 1 % radius."""
    limit = THRESHOLD * 2.0
    tables = curves((1.2 * limit, 1.2 * limit, 1.3 * limit, 9 * limit))
    tables["curves"]["change"] = (tables["curves"]["radius"] ** 2) * 10 * limit
    (found,) = per_seed("radius", tables)
    (known,) = stability_radii(tables["curves"].assign(width=1, horizon=1), [THRESHOLD])["radius"]
    assert found == SeedValue(0, known)
    assert known == pytest.approx(10**-0.5)


def test_relative_and_reported_metrics() -> None:
    tables = replicas(error=[1.0, math.inf], metric=["accuracy", "accuracy"], test_metric=[0.75, math.nan])
    assert [seed.value for seed in per_seed("relative_error", tables)] == [0.5, math.inf]
    first, second = per_seed("test_accuracy", tables)
    assert first == SeedValue(0, 0.75)
    assert math.isnan(second.value)
    assert math.isnan(median("test_accuracy", {"test_accuracy": math.nan}, {}))
    others = {"metrics": pd.DataFrame({"seed": [0, 1], "metric": "accuracy_2T", "value": [0.5, 0.25]})}
    assert per_seed("test_accuracy_2T", tables | others) == [SeedValue(0, 0.5), SeedValue(1, 0.25)]


def test_what_was_not_measured_is_said() -> None:
    with pytest.raises(MemsweepError, match=r"no metric 'raduis'\. Did you mean 'radius'"):
        per_seed("raduis", {})
    with pytest.raises(MemsweepError, match=r"the ball 'all' was not measured: add it to perturbation\.balls"):
        per_seed("radius_all", curves((0.0, 0.0, 0.0, 0.0)))
    with pytest.raises(MemsweepError, match="the ball 'recurrent' was not measured"):
        per_seed("radius", {"curves": pd.DataFrame()})
    others = {"metrics": pd.DataFrame({"seed": [0], "metric": "accuracy_2T", "value": [0.5]})}
    with pytest.raises(MemsweepError, match="the results hold test_accuracy, test_accuracy_2T"):
        per_seed("test_loss", replicas(metric=["accuracy"], test_metric=[0.5]) | others)
    with pytest.raises(MemsweepError, match="no metric of the task"):
        per_seed("test_loss", replicas(metric=[None], test_metric=[math.nan]))
