"""Conditions of one study side by side: what overlapping intervals leave open, the paired difference says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memsweep import report
from memsweep.analyses.comparison.within import within_rows
from memsweep.config.schema.trial import DRIFT, SELF, TARGET
from report_study import HORIZONS, SEEDS, WIDTHS, Condition, exported, write_study

APART = -0.1
"""Of the second condition's slope; its seeds move like those of the first, by much more."""


def of_seeds(index: int, tables: dict[str, pd.DataFrame]) -> None:
    """Radii of a seed grow by powers of the horizon that differ by 0.2 from seed to seed, alike in all conditions."""
    horizon, curves = HORIZONS[index // len(WIDTHS) % len(HORIZONS)], tables["curves"]
    own = (horizon / HORIZONS[-1]) ** (0.2 * (curves["seed"] - 2))
    tables["curves"] = curves.assign(radius=curves["radius"] * own)


def test_the_difference_of_two_conditions_is_that_of_their_pairs(tmp_path: Path) -> None:
    first = Condition(parameterization="exp", base=0.3, slope_horizon=-0.3)
    second = Condition(parameterization="softplus", base=0.15, slope_horizon=-0.3 + APART)
    other = Condition(kernel="exponential", parameterization="exp", base=0.3)
    write_study(tmp_path, (first, second, other), balls=["recurrent"], memory=False, complete=of_seeds)
    contents = report.judge(tmp_path)
    (row,) = within_rows(contents.findings, contents.labels)  # the other memory has nothing beside it
    slopes = [finding.judgement.slope_horizon for finding in (row.reference, row.finding)]
    assert slopes[0].low < slopes[1].estimate < slopes[0].high  # their intervals overlap
    assert row.slopes.paired
    assert row.slopes.seeds == (SEEDS, SEEDS)
    assert row.slopes.estimate == pytest.approx(APART, abs=0.01)
    assert row.slopes.apart
    assert row.slopes.high - row.slopes.low < 0.1 * (slopes[0].high - slopes[0].low)
    expected = 0.5 * (HORIZONS[-1] / HORIZONS[0]) ** APART
    assert row.ratio.middle == pytest.approx(expected, rel=0.02)
    assert row.ratio.low <= row.ratio.middle <= row.ratio.high < 0.6


def test_the_report_has_the_differences_as_a_table_and_on_its_page(tmp_path: Path) -> None:
    conditions = [Condition(parameterization=name, base=0.3) for name in ("exp", "softplus", "direct")]
    write_study(tmp_path, conditions, widths=[4], balls=["recurrent", "all"], memory=False)
    paths = report.build(tmp_path)
    table = exported(paths, "differences")
    assert [*table["model.parameterization"]] == ["softplus", "direct"] * 2
    assert set(table["against"]) == {"exp"}
    assert np.allclose(table[["difference", "ratio"]], [0.0, 1.0], atol=1e-6)
    assert set(table["seeds"]) == {SEEDS}
    assert 'id="differences"' in paths.page.read_text("utf-8")
    assert "not that they are alike" in paths.page.read_text("utf-8")


def test_one_condition_of_a_memory_has_no_difference(tmp_path: Path) -> None:
    write_study(tmp_path, [Condition(), Condition(kernel="exponential")], widths=[4], memory=False)
    paths = report.build(tmp_path)
    assert not (paths.folder / "differences.csv").exists()
    assert "Differences between conditions" not in paths.page.read_text("utf-8")


def test_conditions_are_held_against_one_of_the_same_reference(tmp_path: Path) -> None:
    """A radius of wrong answers and one of the drift of outputs are of different things."""

    def of_two_references(index: int, tables: dict[str, pd.DataFrame]) -> None:
        by_itself = index // (len(HORIZONS) * len(WIDTHS)) % 2 == 1
        tables["curves"] = tables["curves"].assign(reading=SELF if by_itself else DRIFT)

    names = ("exp", "softplus", "direct", "best")
    conditions = [Condition(parameterization=name, base=0.3) for name in names]
    write_study(tmp_path, conditions, balls=["recurrent"], memory=False, complete=of_two_references)
    contents = report.judge(tmp_path)
    assert [finding.reference for finding in contents.findings] == [TARGET, SELF] * 2
    field = "model.parameterization"
    assert [
        (row.reference.condition[field], row.finding.condition[field])
        for row in within_rows(contents.findings, contents.labels)
    ] == [("exp", "direct"), ("softplus", "best")]
