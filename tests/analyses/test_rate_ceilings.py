"""Ceilings of the learning rate: the highest that trains, and its rank correlation with the predicted one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from memsweep.analyses.rates.ceilings import RateCeiling, rank_correlations, rate_ceilings
from memsweep.analyses.rates.curves import RateStudy
from memsweep.analyses.rates.tables import ceiling_table, ceilings_mean
from memsweep.outcome import Outcome
from memsweep.report.analysis.losses import CRITERIA, LossRow
from memsweep.report.naming.conditions import RATE, Labels
from memsweep.report.values.table import TERMINAL

RATES = (0.01, 0.1, 1.0, 10.0)
BAD, GOOD, LOST = 1.9, 0.1, math.inf  # losses, where the zero predictor has 2


def ceilings_of(losses: Sequence[Sequence[Sequence[float]]], criteria: Sequence[Sequence[float]]) -> list[RateCeiling]:
    """Of conditions with losses by seed and rate, and the criterion of each seed at the smallest rate."""
    lines = {}
    for index, (by_seed, ratios) in enumerate(zip(losses, criteria, strict=True)):
        rows = []
        for place, rate in enumerate(RATES):
            loss = np.array([seed[place] for seed in by_seed])
            table = pd.DataFrame({"seed": range(len(loss)), "error": loss, "validation_loss": loss, "zero_loss": 2.0})
            table["outcome"] = Outcome.DONE
            for name in CRITERIA:
                table[name] = np.array(ratios) * 100.0**place  # near a ceiling the criterion explodes
            rows.append(LossRow({"task": "digits", "model": "m", RATE: rate}, 4, 8, table, np.arange(len(table))))
        lines[str(index)] = tuple(rows)
    return rate_ceilings([RateStudy("digits", "a model", lines)])


def test_the_ceiling_ends_the_first_run_of_rates_that_train() -> None:
    one = ceilings_of(
        [
            [
                [BAD, GOOD, GOOD, LOST],  # too slow at the smallest rate
                [GOOD, BAD, GOOD, BAD],  # it trains again higher up, which is luck
                [GOOD, GOOD, GOOD, GOOD],
                [BAD, BAD, LOST, LOST],
            ]
        ],
        [[2.0, 8.0, 1.0, 1.0]],
    )[0]
    assert one.seeds["ceiling"].tolist()[:3] == [1.0, 0.01, 10.0]
    assert one.seeds["fails"].tolist()[:3] == [10.0, 0.1, math.inf]
    assert one.seeds.loc[3, ["ceiling", "fails"]].isna().all()
    assert one.seeds[CRITERIA[0]].tolist() == [2.0, 8.0, 1.0, 1.0]  # at the smallest rate, whatever trained


def test_the_prediction_is_one_over_the_criterion_with_one_constant() -> None:
    """Criteria that are exactly c / (middle of the bracket) predict every ceiling."""
    middles = np.sqrt([0.01 * 0.1, 0.1 * 1.0, 1.0 * 10.0])
    losses = [[[GOOD] * (place + 1) + [BAD] * (3 - place)] * 2 for place in range(3)]
    ceilings = ceilings_of(losses, [[5.0 / middle] * 2 for middle in middles])
    for one, middle in zip(ceilings, middles, strict=True):
        assert one.predicted.tolist() == pytest.approx([middle] * 2)
        assert one.bracketed == 2
    assert ceilings[0].scale == pytest.approx(5.0)
    correlation = rank_correlations(ceilings)["digits"][CRITERIA[0]]
    assert correlation.estimate == correlation.low == correlation.high == pytest.approx(1.0)
    assert correlation.seeds == 2


def test_rank_correlations_are_those_of_scipy_and_seeds_without_an_order_say_nothing() -> None:
    generator = np.random.default_rng(0)
    steps = generator.integers(0, 3, size=(6, 5))  # ceilings of six conditions and five seeds: many ties
    steps[:, 4] = 1  # a seed whose ceilings are all one
    criteria = generator.uniform(1.0, 9.0, size=(6, 5))
    losses = [[[GOOD] * (step + 1) + [BAD] * (3 - step) for step in row] for row in steps]
    correlation = rank_correlations(ceilings_of(losses, criteria.tolist()))["digits"][CRITERIA[0]]
    taus = [scipy.stats.kendalltau(steps[:, seed], 1 / criteria[:, seed]).statistic for seed in range(4)]
    assert correlation.seeds == 4
    assert correlation.estimate == pytest.approx(np.mean(taus))
    half = scipy.stats.t.ppf(0.975, 3) * scipy.stats.sem(taus)
    assert correlation.low == pytest.approx(max(-1.0, np.mean(taus) - half))
    assert correlation.high == pytest.approx(min(1.0, np.mean(taus) + half))


def test_two_conditions_or_no_failure_predict_nothing() -> None:
    ceilings = ceilings_of([[[GOOD] * 4], [[GOOD] * 4]], [[1.0], [2.0]])
    assert rank_correlations(ceilings) == {}
    assert all(math.isnan(one.scale) and one.predicted.isna().all() and one.bracketed == 0 for one in ceilings)


def test_ceilings_whose_brackets_overlap_have_no_order() -> None:
    """The first two failed at no rate, and one of them was not tried at the largest."""
    losses = [[[GOOD] * 4], [[GOOD, GOOD, GOOD, math.nan]], [[GOOD, BAD, BAD, BAD]]]
    ceilings = ceilings_of(losses, [[1.0], [1.0], [9.0]])
    cut = ceilings[1].seeds
    cut.loc[0, "fails"] = math.inf
    tau = rank_correlations(ceilings)["digits"][CRITERIA[0]]
    assert tau.estimate == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("seeds", "ceiling", "fails"),
    [
        ([[GOOD] * 4, [GOOD] * 4], "≥ 10", None),
        ([[GOOD, GOOD, BAD, BAD], [GOOD] * 4, [GOOD, BAD, BAD, BAD]], "0.1 [0.01, ≥ 10]", "1 [0.1, –]"),
        ([[GOOD, BAD, BAD, BAD]], "0.01", "0.1"),
    ],
)
def test_a_ceiling_that_nobody_reached_is_a_bound(seeds: list[list[float]], ceiling: str, fails: str | None) -> None:
    ceilings = ceilings_of([seeds], [[1.0] * len(seeds)])
    view = ceiling_table(ceilings, ["task"], Labels([one.condition for one in ceilings])).view(TERMINAL)
    (line,) = view.groups[""]
    shown = {column.name: cell.text for column, cell in zip(view.columns, line, strict=True)}
    assert (shown["ceiling"], shown.get("fails at")) == (ceiling, fails)
    assert ("predicted" in shown) == ("Predicted:" in ceilings_mean(ceilings)) == (fails is not None)
