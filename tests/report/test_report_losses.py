"""Tasks without a memory kernel: losses and metrics instead of forced verdicts, and curves over learning rates."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memsweep import report
from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import RATE
from memsweep.report.page.render import render
from memsweep.report.terminal import report_text
from memsweep.report.values.table import Column
from report_study import Condition, charts, drawn, exported, rate_conditions, write_study


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """Five learning rates of two parameterizations on a task without a kernel; no weights are perturbed."""
    folder = tmp_path_factory.mktemp("rates")
    write_study(folder, rate_conditions(), horizons=[64], widths=[32], balls=())
    return report.build(folder)


def test_losses_metrics_and_divergence_are_tabled_by_condition(rates: report.ReportPaths) -> None:
    table = exported(rates, "losses").set_index(["model.parameterization", RATE])
    assert len(table) == 10
    assert table["diverged"].to_dict() == {
        (name, rate): {0.5: 2, 5.0: 5}.get(rate, 0) if name == "direct" else 0 for name, rate in table.index.to_list()
    }
    best = table.loc["exp", 0.05]
    assert best["loss"] == pytest.approx(0.2 * 1.2)
    assert (best["loss_low"], best["loss_high"]) == (pytest.approx(0.2), pytest.approx(0.28))
    assert best["metric"] == "accuracy"
    assert best["metric_value"] == pytest.approx(0.88)
    assert best["gradient_over_weight_max"] == pytest.approx(12.0)
    assert table.loc["direct", 0.5]["loss"] == pytest.approx(0.3 * 2 * 1.2)  # the median of five, two of them infinite
    assert np.isinf(table.loc["direct", 5.0]["loss"])


def test_a_number_is_one_column_that_page_terminal_and_csv_show(rates: report.ReportPaths) -> None:
    """The best step is such a column; a further one needs no edit elsewhere."""
    assert set(exported(rates, "losses")["best_step"]) == {2450}
    page = rates.page.read_text()
    assert ">best step</th>" in page[page.index('id="losses"') :]
    assert "best step 2450" in " ".join(rates.text(colour=False).split())
    margin = Column[Any]("margin", lambda row: row.spread("margin"), unit="1/step", key="margin", ends=True)
    tables = rates.tables
    tables = replace(tables, losses=replace(tables.losses, columns=[*tables.losses.columns, margin]))
    assert set(tables.losses.frame()["margin_low"]) == {0.1}
    for text in (
        render(rates.contents, tables, (), {}),
        report_text(rates.contents, tables, width=200, colour=False),
    ):
        assert "margin (1/step)" in text
        assert text.count("0.1") >= 10


def test_the_highest_rate_that_trains_is_tabled_by_seed_beside_its_prediction(rates: report.ReportPaths) -> None:
    table = exported(rates, "ceilings").set_index(["model.parameterization", "seed"])
    assert table.loc["direct", "ceiling"].tolist() == [0.5, 0.5, 0.5, 0.05, 0.05]
    assert table.loc["direct", "fails"].tolist() == [5.0, 5.0, 5.0, 0.5, 0.5]
    assert (table.loc["exp", "ceiling"] == 5.0).all()
    assert np.isinf(table.loc["exp", "fails"]).all()
    assert table.loc["exp", "predicted"].tolist() == pytest.approx(table.loc["direct", "predicted"].tolist())
    assert RATE not in table.columns
    page = rates.page.read_text()
    assert "<caption>Learning-rate ceilings</caption>" in page[page.index('id="rates"') : page.index('id="losses"')]
    text = rates.text(colour=False)
    for shown in ("Learning-rate ceilings:", " 0.5 [0.05, 0.5] ", " ≥ 5 ", "5 of 5"):
        assert shown in text


def test_no_verdict_is_forced(rates: report.ReportPaths) -> None:
    assert exported(rates, "verdicts").empty
    page = rates.page.read_text()
    assert "No verdict: this study asks no question of stability" in page
    assert "A verdict needs a task with a named kernel (<code>task.kernel</code>) or several widths or horizons" in page
    assert "Error under perturbation" not in page
    assert "How far the weights may move" not in page
    assert "<dt>L₀</dt>" in page
    assert "<dt>radius</dt>" not in page  # nothing on this page has one
    text = rates.text(colour=False)
    assert text.startswith("The best learning rate is")
    assert "No verdict" not in text
    assert re.search(r"loss .* accuracy .* diverged", text)
    assert "88.0 [" in text
    assert "5 of 5" in text


def test_learning_rates_are_one_figure_with_a_line_per_parameterization(rates: report.ReportPaths) -> None:
    assert drawn(rates) == ["learning-rates"]
    loss, slope = charts(rates, "learning-rates")
    assert (loss["title"], loss["y"]) == ("digits, stable_ssm", "test loss")
    assert slope["y"] == "max |gradient| / |weight|"
    assert "2 of 5" in loss["note"]
    assert [name for name, _ in loss["lines"]] == [name for name, _ in slope["lines"]]
    assert all(low <= middle <= high for _, points in slope["lines"] for _, middle, low, high in points)


@pytest.mark.more
def test_a_study_of_rates_on_a_kernel_keeps_its_verdicts_apart(tmp_path: Path) -> None:
    conditions = rate_conditions(
        (0.01, 0.1), task="linear_functional", kernel="polynomial", metric=None, criterion=None
    )
    write_study(tmp_path, conditions, horizons=[50, 100], widths=[2], balls=["recurrent"], seeds=3, memory=False)
    paths = report.build(tmp_path)
    assert len(exported(paths, "verdicts")) == 4  # seeds of different rates are never pooled
    shown = charts(paths, "learning-rates")
    assert [f"horizon {horizon}" in chart["title"] for chart, horizon in zip(shown, (50, 100), strict=True)] == [
        True
    ] * 2
    assert {chart["y"] for chart in shown} == {"test loss"}  # nothing to show of the criterion


@pytest.mark.more
def test_a_rate_that_follows_from_the_model_makes_no_curve(tmp_path: Path) -> None:
    slow = Condition(model="ssm", training={"learning_rate": 0.001}, exact=True)
    write_study(tmp_path, [slow, Condition(exact=True)], horizons=[50], widths=[2], balls=["recurrent"], memory=False)
    paths = report.build(tmp_path)
    page = paths.page.read_text()
    assert 'id="rates"' not in page
    assert "Conditions also differ in learning_rate (0.001: ssm; 0.01: diagonal_rnn)." in page  # not silently
    assert sorted(exported(paths, "verdicts")[RATE]) == [0.001, 0.01]


@pytest.mark.more
def test_a_model_without_width_or_a_task_without_horizon_has_losses_and_no_verdict(tmp_path: Path) -> None:
    def lose(index: int, tables: dict[str, pd.DataFrame]) -> None:
        for name in ("curves", "replicas"):
            tables[name]["width" if index >= 2 else "horizon"] = None

    conditions = [Condition(), Condition(task="other")]
    write_study(tmp_path, conditions, horizons=[50], widths=[2, 3], balls=["recurrent"], complete=lose)
    paths = report.build(tmp_path)
    assert exported(paths, "verdicts").empty
    assert len(exported(paths, "losses")) == 3  # two widths without a horizon; two trials of no width in one row
    assert paths.text(colour=False)


@pytest.mark.more
def test_kernels_with_verdicts_need_no_table_of_losses(tmp_path: Path) -> None:
    write_study(tmp_path, [Condition()], horizons=[50], widths=[2, 3], balls=["recurrent"], memory=False)
    paths = report.build(tmp_path)
    assert not (paths.folder / "losses.csv").exists()
    assert 'id="losses"' not in paths.page.read_text()


def test_the_spread_of_infinities_is_a_number() -> None:
    assert Spread.of([1.0, np.inf, 2.0]).middle == 2.0
    assert Spread.of([np.inf, 1.0]).middle == np.inf
    assert Spread.of([np.inf, np.inf]).middle == np.inf
    assert Spread.of([np.nan, 3.0]).low == 3.0
    assert np.isnan(Spread.of([np.nan]).middle)
