"""Cells at a glance: what several tables say of a condition, in one line of page, terminal and CSV file."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memsweep import report
from memsweep.measures.memory_over_inputs.reach import reach_of
from memsweep.report.read.study import load_study
from report_study import HORIZONS, SEEDS, ZERO_LOSS, Condition, exported, write_study

TRUTH = (
    Condition(kernel="polynomial", parameterization="direct", base=0.05, slope_horizon=-0.6),
    Condition(kernel="polynomial", parameterization="exp", base=0.6, slope_horizon=-0.02),
)
KEPT = {"direct": 2, "exp": 3}
TIME_SCALE = 20.0


def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
    """Two or three numbers of the past, and a dependence that falls by e every ``TIME_SCALE`` steps."""
    condition = TRUTH[index // len(HORIZONS)]
    values, memory = [], []
    for replica in tables["replicas"][["identity", "horizon", "width", "seed"]].to_dict("records"):
        kept = KEPT[str(condition.parameterization)]
        values += [replica | {"map": "block", "index": at + 1, "value": 1.0 if at < kept else 1e-6} for at in range(5)]
        lags = np.arange(replica["horizon"])
        typical = np.exp(-lags / TIME_SCALE)
        about = {"identity": replica["identity"], "seed": replica["seed"], "lag": lags}
        memory.append(pd.DataFrame({**about, "median": typical, "high": 2 * typical, "largest": 3 * typical}))
    tables["singular_values"] = pd.DataFrame(values)
    tables["memory_over_inputs"] = pd.concat(memory)


def test_a_line_holds_what_the_tables_of_a_condition_say(tmp_path: Path) -> None:
    phases = {"provenance": {"phases": {"training": 25.0}, "members": 2}}
    write_study(tmp_path, TRUTH, widths=[4], balls=["recurrent"], memory=False, complete=complete, **phases)
    paths = report.build(tmp_path)
    cells, verdicts = exported(paths, "cells"), exported(paths, "verdicts")
    assert list(cells["model.parameterization"]) == ["direct", "exp"]
    assert list(cells["verdict_recurrent"]) == list(verdicts["verdict"]) == ["unstable", "inconclusive"]
    assert set(cells["horizon"]) == {max(HORIZONS)}
    np.testing.assert_allclose(cells["error"], 1e-3)
    assert list(cells["numbers_kept"]) == [KEPT["direct"], KEPT["exp"]]
    assert set(cells["reach"]) == {math.floor(TIME_SCALE * math.log(100))}
    radii = exported(paths, "radii")
    longest = radii[(radii["horizon"] == max(HORIZONS)) & (radii["threshold"] == 0.01)]
    for name, own in longest.groupby("model.parameterization"):
        (line,) = cells[cells["model.parameterization"] == name].to_dict("records")
        assert line["radius_recurrent"] == own["radius"].median()
        assert (line["radius_recurrent_low"], line["radius_recurrent_high"]) == (
            own["radius"].min(),
            own["radius"].max(),
        )
    page = paths.page.read_text(encoding="utf-8")
    assert 'id="cells"' in page
    milliseconds = 1000 * 25.0 / 2 / (SEEDS * 2500)
    assert f"{milliseconds:.2g} ms" in page
    assert not [column for column in cells if "time" in column]  # a table is the same in every run
    text = re.sub(r"\s+", " ", paths.text(width=200))
    assert "Cells at a glance" in text
    assert "Radius: at an error of 1 % of L₀, of the seeds that fit." in text
    assert "Bits: at" not in text  # no bits were measured, so no word says what they are
    assert "▲" in text


def test_words_say_what_was_measured_alone(tmp_path: Path) -> None:
    write_study(tmp_path, TRUTH, widths=[4], balls=[], memory=False, complete=complete)
    text = re.sub(r"\s+", " ", report.build(tmp_path).text(width=200))
    assert "Cells at a glance" in text
    assert "Radius" not in text


def test_a_study_of_one_kind_of_measurement_has_no_such_table(tmp_path: Path) -> None:
    write_study(tmp_path, TRUTH, widths=[4], balls=["recurrent"], memory=False)
    paths = report.build(tmp_path)
    assert not (paths.folder / "cells.csv").exists()
    assert 'id="cells"' not in paths.page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("typical", "expected"), [([1.0, 0.5, 0.0], 1.0), ([0.0, 0.0], math.nan), ([0.001, 1], 1.0)])
def test_reach_is_the_last_lag_above_a_share_of_the_largest(
    tmp_path: Path, typical: list[float], expected: float
) -> None:
    def add(index: int, tables: dict[str, pd.DataFrame]) -> None:
        about = {"identity": f"{index:032x}", "seed": 0, "lag": range(len(typical)), "high": 1.0, "largest": 1.0}
        tables["memory_over_inputs"] = pd.DataFrame({**about, "median": typical})

    condition = Condition(loss=0.01 * ZERO_LOSS)
    (identity,) = write_study(tmp_path, (condition,), widths=[4], horizons=[50], seeds=1, memory=False, complete=add)
    reach = reach_of(load_study(tmp_path), [identity])
    assert reach.middle == pytest.approx(expected, nan_ok=True)
