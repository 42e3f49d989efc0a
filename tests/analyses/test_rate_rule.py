"""The rule of the best learning rate: exponents that are known, sizes that were held out, and rates at an end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memsweep import report
from memsweep.analyses.rates.curves import rate_studies
from memsweep.analyses.rates.rule import Curve, rate_rules
from memsweep.analyses.rates.section import scans, tried
from memsweep.config.schema.search import LOG_UNIFORM, Domain
from memsweep.report.analysis.contents import analyse
from memsweep.report.headline.answer import answer_of
from memsweep.report.naming.conditions import RATE
from memsweep.report.naming.numbers import with_interval
from memsweep.report.read.study import load_study
from memsweep.report.tracked import verdicts_of
from memsweep.search.history import SearchHistory
from memsweep.search.suggestions import SearchTrial, Suggestion, SuggestionRecord, SuggestionState
from report_study import Condition, exported, write_study

RATES = [0.3 * 2.0**-k for k in reversed(range(7))]
WIDTHS, HORIZONS = [4, 8, 16], [25, 50, 100]


def best(width: float, horizon: float, seed: int) -> float:
    """The rates that the synthetic studies have as their best: a power law with a factor of each seed."""
    return float(0.2 * width**-0.75 * (horizon / 25) ** -0.25 * (1.0 + 0.05 * seed))


def ratio(row: dict[str, float]) -> float:
    """The median over seeds of the loss at the predicted rate, on the chord between two tried ones, over the least."""
    log_rates, ratios = np.log(RATES), []
    off = [log_rates - math.log(best(row["width"], row["horizon"], seed)) for seed in range(5)]
    common = int(np.argmin(np.mean(np.square(off), 0)))
    for own in off:
        chord = np.interp(math.log(row["predicted"]), log_rates, own**2)
        ratios.append(math.exp(chord - own[common] ** 2))
    return float(np.median(ratios))


def write(folder: Path, widths: list[int], horizons: list[int], least: float = 0.0) -> report.ReportPaths:
    """A study whose log loss is a parabola in the log rate; models diverge at eight times the best rate.

    Args:
        least: rates below it are not tried.
    """
    rates = [rate for rate in RATES if rate >= least]
    sizes = list(product(rates, horizons, widths))

    def with_losses(index: int, tables: dict[str, pd.DataFrame]) -> None:
        rate, horizon, width = sizes[index]
        replicas = tables["replicas"]
        off = np.array([math.log(rate / best(width, horizon, seed)) for seed in replicas["seed"]])
        loss = 1e-3 * np.exp(off**2)
        replicas["validation_loss"], replicas["error"] = loss, 2.0 * loss
        replicas["outcome"] = np.where(off > math.log(8.0), "diverged", "done")

    conditions = [Condition(parameterization="exp", training={"learning_rate": rate}) for rate in rates]
    write_study(folder, conditions, widths=widths, horizons=horizons, balls=(), memory=False, complete=with_losses)
    return report.build(folder)


def test_a_report_has_the_exponents_and_the_sizes_that_were_held_out(tmp_path: Path) -> None:
    paths = write(tmp_path, WIDTHS, HORIZONS)
    table = exported(paths, "rate_rule")
    assert sorted(zip(table["width"], table["horizon"], strict=True)) == sorted(
        (width, horizon) for width, horizon in product(WIDTHS, HORIZONS) if width == 16 or horizon == 100
    )
    for row in table.to_dict("records"):
        # a parabola's vertex is found exactly, so the seeds differ in their factor alone
        assert (row["exponent_width"], row["exponent_horizon"]) == (pytest.approx(-0.75), pytest.approx(-0.25))
        assert row["best_over_predicted"] == pytest.approx(1.0)
        factors = [best(row["width"], row["horizon"], seed) for seed in range(5)]
        assert row["best"] == pytest.approx(np.median(factors))
        assert row["predicted"] == pytest.approx(np.exp(np.mean(np.log(factors))))
        assert row["predicted_low"] < row["predicted"] < row["predicted_high"]
        assert row["loss_ratio"] == pytest.approx(ratio(row), rel=1e-6)
        assert row["at_end"] == 0
    assert (table["gain_high"] < 1.0).all()  # the true rate beats one for all sizes
    (rule,) = rate_rules(tried(paths.contents))
    sizes = [(width, horizon) for width, horizon in product(WIDTHS, HORIZONS) if width < 16 and horizon < 100]
    logs = [math.log(best(*size, seed)) for size in sizes for seed in range(5)]
    assert rule.constant == pytest.approx(math.exp(np.mean(logs)))
    text = paths.text(width=200, colour=False)
    assert "rate ~ m^(−0.75" in text
    assert "fitted to width 4 to 8 and horizon 25 to 50" in text
    assert 'id="rate-rule"' in paths.page.read_text()
    said = answer_of(paths.contents).headline
    gain = with_interval(rule.gain.middle, rule.gain.low, rule.gain.high)
    assert said == (
        "At held-out sizes, a learning rate that follows width and horizon has, of the loss at one rate, "
        f"{gain} under `exp`."
    )
    named = verdicts_of(paths.contents)
    assert all(v.metrics["rate_rule_width/slope"] == pytest.approx(-0.75) for v in named.values())
    assert len(named) == len(RATES) * len(WIDTHS) * len(HORIZONS)


def test_best_rates_at_an_end_of_what_was_tried_leave_the_rule_open_on_that_side(tmp_path: Path) -> None:
    table = exported(write(tmp_path, WIDTHS, [50], least=0.018), "rate_rule")
    (row,) = table.to_dict("records")
    assert (row["width"], row["at_end"]) == (16, 5)
    assert row["exponent_width"] == pytest.approx(-0.75)  # of the fitted widths
    assert row["best_over_predicted_low"] == 0.0
    assert math.isfinite(row["best_over_predicted_high"])
    assert row["best"] == RATES[2]  # the end of what was tried


def test_two_rates_make_no_rule(tmp_path: Path) -> None:
    """The best of two is always at an end."""
    paths = write(tmp_path, WIDTHS, [50], least=0.1)
    assert len({row.condition["training.learning_rate"] for row in paths.contents.trained}) == 2
    assert rate_rules(tried(paths.contents)) == []
    assert not (paths.folder / "rate_rule.csv").exists()


def test_two_sizes_hold_none_out_and_make_no_rule(tmp_path: Path) -> None:
    paths = write(tmp_path, WIDTHS[:2], [50])
    assert rate_studies(paths.contents.trained, paths.contents.labels)
    assert not (paths.folder / "rate_rule.csv").exists()
    assert answer_of(paths.contents).headline.startswith("The best learning rate on polynomial")
    assert 'id="rate-rule"' not in paths.page.read_text()


def test_the_best_rate_of_a_curve_is_bounded_by_what_was_tried() -> None:
    def curve(*losses: float, rates: Sequence[float] = (0.01, 0.02, 0.04, 0.08)) -> Curve:
        return Curve(np.array(rates), np.array(losses), np.array(losses))

    assert curve(4.0, 3.0, 2.0, 1.0).best() == (0.04, math.inf)
    assert curve(1.0, 2.0, 3.0, 4.0).best() == (0.0, 0.02)
    assert curve(2.0, 1.0, math.inf, math.inf).best() == (0.02, 0.02)
    low, high = curve(2.0, 1.0, 1.0, 2.0).best()
    assert low == high == pytest.approx(0.02 * math.sqrt(2.0))
    assert curve(2.0, 1.0, 1.5, rates=(1e-4, 1e-3, 2e-2)).best() == (1e-3, 1e-3)  # too far apart for a parabola
    assert curve(2.0, 1.0, 1.5, rates=(1e-4, 1e-3, 1e-2)).best()[0] > 1e-3
    assert curve(*[math.inf] * 4).best() == (0.0, math.inf)
    assert curve(2.0, 3.0, 12.0, 8.0).test_at(0.02 * math.sqrt(2.0)) == pytest.approx(6.0)
    assert curve(2.0, 3.0, 12.0, 8.0).test_at(0.08) == 8.0
    assert curve(2.0, 1.0, math.inf, 8.0).test_at(0.03) == math.inf
    assert math.isnan(curve(2.0, 1.0, 4.0, 8.0).test_at(0.1))


@pytest.mark.parametrize("scheduler", ["none", "asha"])
def test_a_search_has_a_rule_of_all_that_it_trained_unless_some_were_stopped_early(
    tmp_path: Path, scheduler: str
) -> None:
    write(tmp_path, WIDTHS, [50])
    study = load_study(tmp_path)
    cells = {width: cell for cell, width in enumerate(WIDTHS)}
    members = []
    for number, (identity, record) in enumerate(study.records.items()):
        cell, rate = cells[record["config"]["model"]["width"]], record["config"]["training"]["learning_rate"]
        trials = (SearchTrial(identity, cell, number),)
        suggestion = Suggestion(number, {RATE: rate})
        members.append(SuggestionRecord(cell, suggestion, trials, (rate,), 2500, SuggestionState.DONE))
    history = SearchHistory(
        suggestions=tuple(members),
        objective=("error",),
        modes=("min",),
        space={RATE: Domain(LOG_UNIFORM, RATES[0], RATES[-1])},
        cells=tuple({"model": {"name": "diagonal_rnn", "width": width}} for width in WIDTHS),
        scheduler=scheduler,
        algorithm="tpe",
        steps=2500,
        confirmed={},
        rounds=1,
    )
    contents = analyse(replace(study, search=history))
    assert not scans(contents)  # rates that differ from cell to cell make no curves of one width beside another
    if scheduler == "none":
        (rule,) = rate_rules(tried(contents))
        assert rule.exponents["width"].estimate == pytest.approx(-0.75)
        assert set(rule.identities) == set(study.records)
    else:
        assert not rate_rules(tried(contents))
