"""Models that diverged have no radii, in words and in figures; thresholds are shares of what radii were read by."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from memsweep.report.analysis.contents import Contents, judge
from memsweep.report.charts.curves import error_charts
from memsweep.report.charts.radius import radius_charts
from memsweep.report.rows.report import tables_of
from memsweep.report.rows.verdicts import reasons
from memsweep.stability.verdict.judgement import DEFAULT
from report_study import Condition, write_study

SIZES = 4


def looked_for(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves with the radii at which the crossings of all thresholds were looked for."""
    rows = []
    for _, curve in curves.groupby("seed"):
        for threshold in DEFAULT.thresholds:
            limit = threshold * curve["zero_loss"].iloc[0]
            radius = np.interp(limit, curve["change"], curve["radius"])
            rows.append(curve.iloc[:1].assign(threshold=threshold, radius=radius, error=limit, change=limit))
    return pd.concat([curves, *rows])


def read(folder: Path, reading: str, *, lost: bool = False, settings: int = 1) -> Contents:
    """A study whose radii were read so; ``lost``: at the first size, the first seed of each setting diverged."""

    def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
        curves = looked_for(tables["curves"]).assign(reading=reading if index < SIZES else "drift")
        if lost and not index % SIZES:
            curves.loc[curves["seed"] == 0, ["error", "change"]] = math.nan
            curves = curves[(curves["seed"] != 0) | curves["threshold"].isna()]
        tables["curves"] = curves

    some = [Condition(parameterization=name) for name in ("direct", "exp")[:settings]]
    sizes: dict[str, Any] = {"widths": (2, 4), "horizons": (50, 200), "seeds": 3}
    write_study(folder, some, balls=["recurrent"], memory=False, complete=complete, **sizes)
    return judge(folder)


def test_a_model_that_diverged_has_no_radius_to_read_or_to_draw(tmp_path: Path) -> None:
    contents = read(tmp_path / "synthetic", "drift", lost=True)
    (finding,) = contents.verdicts
    lost = finding.radii[~finding.radii["valid"].astype(bool)]
    assert {*lost["how"]} == {"interpolated"}
    assert "interpolated" not in reasons(finding)
    drawn = [seed for each in radius_charts([finding], contents.labels) for _, seeds in each["seeds"] for seed in seeds]
    assert drawn
    assert all(valid for *_, valid in drawn)
    assert min(radius for _, radius, _ in drawn) > lost["radius"].max()


@pytest.mark.parametrize(
    ("reading", "settings", "share", "whole"),
    [
        ("drift", 2, "of L₀", "L₀"),
        ("metric", 1, "of the way to chance", "chance"),
        ("self", 1, "of the variance of outputs", "variance"),
        ("metric", 2, "of the reference", "chance"),
    ],
)
def test_thresholds_are_shares_of_what_radii_were_read_by(
    tmp_path: Path, reading: str, settings: int, share: str, whole: str
) -> None:
    contents = read(tmp_path / "synthetic", reading, settings=settings)
    tables = [table for table in tables_of(contents).exported if table.rows]
    headings = {column.heading for table in tables for column in table.columns if column.key == "threshold"}
    assert headings == {f"at error ({share})"}
    assert ("differences" in {table.name for table in tables}) == (settings == 2 and reading == "drift")
    assert {each["y"] for each in radius_charts(contents.verdicts, contents.labels)} == {f"radius β at 1 % {share}"}
    first = next(error_charts(contents.verdicts, contents.labels))
    assert first["levels"][0] == [1.0, whole]
