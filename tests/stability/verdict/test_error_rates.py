"""The verdict's error rates and power, simulated on the whole rule, and the table of docs/verdict.md."""

from __future__ import annotations

import error_rates
import numpy as np
import pytest
from error_rates import FLAT, LIMITS, SHRINKING, Case, Study, rates
from test_verdict import RADII

from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.rule import judge
from paths import ROOT

WRONG = {
    error_rates.AT_LIMIT: Verdict.UNSTABLE,
    error_rates.ONE_AT_LIMIT: Verdict.STABLE,
    error_rates.GROWING: Verdict.STABLE,
}
HARSH = ("exponential", "-exponential")
"""Slopes of a skewness of 2: beyond what the levels were made for. The page says what they cost."""


@pytest.mark.parametrize("case", [LIMITS[0], LIMITS[1], LIMITS[6]])
def test_a_study_at_the_limit_stays_undecided_however_often_it_is_looked_at(case: Case) -> None:
    found = rates(case, studies=10)
    assert found.last[Verdict.INCONCLUSIVE] >= 0.9
    assert found.seeds > 30


def test_a_clear_study_is_decided_at_the_first_look_and_a_noisy_one_by_following_the_advice() -> None:
    assert rates(Case(FLAT, "normal", 0.01, horizons=5), studies=10).first[Verdict.STABLE] >= 0.9
    assert rates(Case(SHRINKING, "normal", 0.01), studies=10).first[Verdict.UNSTABLE] >= 0.9
    noisy = rates(Case(FLAT, "normal", 0.03), studies=10)
    assert noisy.first[Verdict.INCONCLUSIVE] >= 0.5
    assert noisy.last[Verdict.STABLE] >= 0.9


def test_the_simulation_judges_as_a_study_is_judged() -> None:
    """The radii of the simulation, as the curves of a study: the same slopes, growth and verdict."""
    import pandas as pd

    study = Study(Case(SHRINKING, "normal", 0.02), np.random.default_rng(0))
    simulated = study.weigh(6, 4)
    rows = []
    for seed, width, horizon in np.ndindex(6, len(error_rates.WIDTHS), 4):
        radius = study.radii[seed, width, horizon, 0]
        error = 1e-9 + 0.01 * (RADII / radius) ** 2 if study.valid[seed, width, horizon] else np.ones(len(RADII))
        place = {"seed": seed, "width": error_rates.WIDTHS[width], "horizon": study.horizons[horizon]}
        rows.append(pd.DataFrame({**place, "radius": RADII, "error": error, "zero_loss": 1.0}))
    curves = pd.concat(rows)
    replicas = curves[["width", "horizon", "seed"]].drop_duplicates().assign(slowest_rate=1.0)
    judged = judge(curves, replicas)
    assert judged.verdict is simulated.verdict is Verdict.UNSTABLE
    assert judged.width == simulated.width
    pairs = (
        (judged.growth, simulated.growth),
        (judged.by_threshold[0.01].horizon.limit, simulated.by_threshold[0.01].horizon.limit),
        (judged.by_threshold[0.01].step, simulated.by_threshold[0.01].step),
    )
    for found, expected in pairs:
        assert (found.estimate, found.low, found.high) == pytest.approx(
            (expected.estimate, expected.low, expected.high), abs=1e-3
        )


@pytest.mark.long
@pytest.mark.more
def test_the_table_of_the_page_is_what_the_simulation_gives_and_errors_are_rare() -> None:
    text = (ROOT / "docs/verdict.md").read_text()
    for case in (*LIMITS, *error_rates.POWERS):
        found = rates(case, error_rates.STUDIES)
        assert error_rates.row(case, found) in text
        if wrong := WRONG.get(case.truth):
            assert found.last[wrong] <= (0.08 if case.noise in HARSH else 0.025)
