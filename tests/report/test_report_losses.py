"""Tasks without a memory kernel: losses and metrics instead of forced verdicts, and curves over learning rates."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memsweep import report
from memsweep.report.analysis.learning_rates import RATE, rate_studies
from memsweep.report.analysis.losses import Spread, loss_rows
from memsweep.report.figures.galleries import galleries_of
from memsweep.report.naming.conditions import Grouping
from memsweep.report.naming.labels import Labels
from memsweep.report.page.page import render
from memsweep.report.read.study import load_study
from memsweep.report.rows.table import Column
from memsweep.report.terminal.text import report_text
from report_study import Condition, rate_conditions, write_study


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """Five learning rates of two parameterizations on a task without a kernel; no weights are perturbed."""
    folder = tmp_path_factory.mktemp("rates")
    write_study(folder, rate_conditions(), horizons=[64], widths=[32], balls=())
    return report.build(folder)


def test_losses_metrics_and_divergence_are_tabled_by_condition(rates: report.ReportPaths) -> None:
    assert rates.losses is not None
    table = pd.read_csv(rates.losses).set_index(["model.parameterization", RATE])
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
    assert rates.losses is not None
    assert set(pd.read_csv(rates.losses)["best_step"]) == {2450}
    page = rates.page.read_text()
    assert "<th>best step</th>" in page[page.index('id="losses"') :]
    assert "best step 2450" in " ".join(report.table_text(rates, colour=False).split())
    margin = Column[Any]("margin", lambda row: row.spread("margin"), unit="1/step", key="margin", ends=True)
    tables = rates.tables
    tables = replace(tables, losses=replace(tables.losses, columns=[*tables.losses.columns, margin]))
    assert set(tables.losses.frame()["margin_low"]) == {0.1}
    for text in (
        render(rates.contents, tables, galleries_of(rates.contents)),
        report_text(rates.contents, tables, width=200, colour=False),
    ):
        assert "margin (1/step)" in text
        assert text.count("0.1") >= 10


def test_no_verdict_is_forced(rates: report.ReportPaths) -> None:
    assert pd.read_csv(rates.verdicts).empty
    page = rates.page.read_text()
    assert "No verdict: this study asks no question of stability" in page
    assert "Error under perturbation" not in page
    assert "How far the weights may move" not in page
    text = report.table_text(rates, colour=False)
    assert text.startswith("No verdict: this study asks no question of stability.")
    assert re.search(r"loss .* accuracy .* diverged", text)
    assert "88.0 [" in text
    assert "5 of 5" in text


def test_learning_rates_are_one_figure_with_a_line_per_parameterization(rates: report.ReportPaths) -> None:
    assert [path.name for path in rates.figures] == ["learning-rates.png"]
    page = rates.page.read_text()
    section = page[page.index('id="rates"') : page.index('id="losses"')]
    figures = section.split("<figure>")[1:]
    assert len(figures) == 2  # the loss and the criterion, not one pair per rate
    assert all("drawn from 10 trials" in figure for figure in figures)
    loss, criterion = (base64.b64decode(re.findall(r"base64,([^\"]+)", figure)[0]).decode() for figure in figures)
    assert "∞" in loss  # the rail
    assert "2/5" in loss
    assert "∞" not in criterion
    assert "2 of 5 diverged" in section
    assert "accuracy 88.0 %" in section
    assert [rate for rate in ("0.0005", "0.005", "0.05", "0.5", "5") if f"<th>{rate}</th>" in section] == [
        *("0.0005", "0.005", "0.05", "0.5", "5")
    ]


def test_a_study_of_rates_on_a_kernel_keeps_its_verdicts_apart(tmp_path: Path) -> None:
    conditions = rate_conditions(
        (0.01, 0.1), task="linear_functional", kernel="polynomial", metric=None, criterion=None
    )
    write_study(tmp_path, conditions, horizons=[50, 100], widths=[2], balls=["recurrent"], seeds=3, memory=False)
    paths = report.build(tmp_path)
    assert len(pd.read_csv(paths.verdicts)) == 4  # seeds of different rates are never pooled
    page = paths.page.read_text()
    section = page[page.index('id="rates"') : page.index('id="losses"')]
    assert section.count("<figure>") == 2  # one for each horizon; nothing to show of the criterion
    assert "horizon 50" in section
    assert "horizon 100" in section


def test_a_rate_that_follows_from_the_model_makes_no_curve(tmp_path: Path) -> None:
    slow = Condition(model="ssm", training={"learning_rate": 0.001}, exact=True)
    write_study(tmp_path, [slow, Condition(exact=True)], horizons=[50], widths=[2], balls=["recurrent"], memory=False)
    paths = report.build(tmp_path)
    page = paths.page.read_text()
    assert 'id="rates"' not in page
    assert "also differ in training.learning_rate" in page  # not silently
    assert sorted(pd.read_csv(paths.verdicts)[RATE]) == [0.001, 0.01]


def test_results_of_older_code_have_losses_too(tmp_path: Path) -> None:
    write_study(tmp_path, [Condition(kernel=None, task="copy", floor=0.4)], horizons=[9], widths=[4], balls=["all"])
    paths = report.build(tmp_path)
    assert paths.losses is not None
    row = pd.read_csv(paths.losses).iloc[0]
    assert row["relative_loss"] == pytest.approx(0.4)
    assert np.isnan(row["metric_value"])
    page = paths.page.read_text()
    assert "40 %" in page[page.index('id="losses"') :]
    assert pd.read_csv(paths.verdicts).empty  # one width, one horizon, no kernel: nothing to judge
    assert {path.name for path in paths.figures} == {"error-all.png", "memory.png"}


def test_a_model_without_width_or_a_task_without_horizon_has_losses_and_no_verdict(tmp_path: Path) -> None:
    write_study(tmp_path, [Condition(), Condition(task="other")], horizons=[50], widths=[2, 3], balls=["recurrent"])
    for table in ("curves", "replicas"):
        for path in (tmp_path / table).glob("*.parquet"):
            frame = pd.read_parquet(path)
            record = json.loads((tmp_path / "records" / f"{path.stem}.json").read_text())
            lost = "width" if record["config"]["task"]["name"] == "other" else "horizon"
            frame.assign(**{lost: pd.array([None] * len(frame), dtype="Int64")}).to_parquet(path)
    paths = report.build(tmp_path)
    assert pd.read_csv(paths.verdicts).empty
    assert paths.losses is not None
    assert len(pd.read_csv(paths.losses)) == 3  # two widths without a horizon; two trials of no width in one row
    assert report.table_text(paths, colour=False)


def test_kernels_with_verdicts_need_no_table_of_losses(tmp_path: Path) -> None:
    write_study(tmp_path, [Condition()], horizons=[50], widths=[2, 3], balls=["recurrent"], memory=False)
    paths = report.build(tmp_path)
    assert paths.losses is None
    assert 'id="losses"' not in paths.page.read_text()


def test_the_spread_of_infinities_is_a_number() -> None:
    assert Spread.of([1.0, np.inf, 2.0]).middle == 2.0
    assert Spread.of([np.inf, 1.0]).middle == np.inf
    assert Spread.of([np.inf, np.inf]).middle == np.inf
    assert Spread.of([np.nan, 3.0]).low == 3.0
    assert np.isnan(Spread.of([np.nan]).middle)


def test_an_empty_study_has_no_rows(tmp_path: Path) -> None:
    write_study(tmp_path, [Condition()], horizons=[50], widths=[2], skip=[0], memory=False)
    study = load_study(tmp_path)
    grouping = Grouping(conditions={}, columns=(), coupled=(), fixed={})
    assert loss_rows(study, grouping) == []
    assert rate_studies([], Labels([])) == []
