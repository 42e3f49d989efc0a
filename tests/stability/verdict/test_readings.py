"""Radii are read from what does not count the error of a fit as instability: see ``readings.py``."""

from __future__ import annotations

import numpy as np
import pytest
from readings import DRIFT, ERROR, EXCESS, Row, distances, rows

FEW_MODES = ("(1+0.1t)^-1.1",)


def by_modes(table: list[Row], name: str) -> dict[int, Row]:
    return {row.modes: row for row in table if row.map == name}


def test_a_fit_of_few_modes_has_nearly_the_slope_of_a_good_one_by_drift() -> None:
    found = by_modes(list(rows(FEW_MODES, ["exp"], (2, 4))), "exp")
    few, good = found[2], found[4]
    assert max(good.errors) < 1e-5 < 1e-3 < max(few.errors) < 5e-3
    for reading in (EXCESS, DRIFT):
        assert good.slopes[reading] == pytest.approx(good.slopes[ERROR], abs=0.002)
        assert few.slopes[reading] == pytest.approx(good.slopes[reading], abs=0.03)
    assert few.slopes[ERROR][0] < good.slopes[ERROR][0] - 0.1  # the error of the fit, counted as instability


@pytest.mark.long
@pytest.mark.more
def test_excess_is_no_nearer_to_the_slopes_of_nearly_exact_fits_than_drift() -> None:
    """Over all memories, maps and numbers of modes; nearly exact fits have one slope by all readings."""
    table = list(rows())
    found = distances(table)
    assert found[DRIFT] <= found[EXCESS] + 0.002
    assert found[DRIFT] < found[ERROR]
    stable = distances([row for row in table if row.map != "direct"])  # no number of modes moves their slopes
    assert max(stable[DRIFT], stable[EXCESS]) < 0.5 * stable[ERROR]
    for row in table:
        if row.nearly_exact:
            for reading in (EXCESS, DRIFT):
                assert np.abs(np.subtract(row.slopes[reading], row.slopes[ERROR])).max() < 0.005
