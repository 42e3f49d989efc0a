"""docs/evidence/history.md: the exact slopes beside those of curse_of_memory, and intervals that hold them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from exact_fits import KERNELS, PARAMETERIZATIONS, radii

from memsweep.stability.verdict.trend import slope_weights
from paths import ROOT

PAGE = (ROOT / "docs" / "evidence" / "history.md").read_text("utf-8")
HORIZONS = (16, 32, 64, 128)
NUMBER = r"[−+]?\d\.\d{3}"


def printed() -> dict[tuple[str, str], list[float]]:
    """Exact slope, slope and both ends of its interval, by parameterization and threshold."""
    rows, under = dict[tuple[str, str], list[float]](), ""
    for line in PAGE.split("beside exact fits")[1].split("\n\n")[1].splitlines()[2:]:
        name, at, exact, _, now = (cell.strip() for cell in line.strip("|").split("|"))
        under = name.strip("`") or under
        rows[under, at] = [float(each.replace("−", "-")) for each in re.findall(NUMBER, f"{exact} {now}")]
    return rows


def test_the_intervals_of_the_page_hold_the_exact_slopes() -> None:
    rows = printed()
    assert len(rows) == 9
    for exact, slope, low, high in rows.values():
        assert low <= exact <= high
        assert low <= slope <= high


@pytest.mark.more
def test_the_exact_slopes_are_those_of_optimal_fits() -> None:
    kernel = next(each for each in KERNELS if each.name == "(1+0.4t)^-1.1")
    for under in PARAMETERIZATIONS:
        logs = np.log(np.stack([radii(kernel, 6, under, horizon) for horizon in HORIZONS]))
        slopes = slope_weights(np.array(HORIZONS, float), 1.0) @ logs
        said = [printed()[under, at][0] for at in ("1 %", "3 %", "10 %")]
        assert slopes == pytest.approx(said, abs=0.001)
