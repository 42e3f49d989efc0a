"""How near a search is to the worst case: sizes without a check are taken to be as short of it as the worst checked."""

from __future__ import annotations

import math

import pandas as pd

from memsweep.report.analysis.bounds import corrected, found_share, of_valid


def test_a_size_without_a_check_gets_the_least_share_of_those_with_one() -> None:
    cells = [(2, 40, 0.5), (4, 40, math.nan), (8, 40, 0.8), (8, 10, 1.0)]  # width, horizon, share that was found
    rows = [
        {"width": width, "horizon": horizon, "radius": radius, "reading": "drift", "error": change, "change": change}
        | {"threshold": 0.1, "stronger": change / share if radius else math.nan}
        for width, horizon, share in cells
        for radius, change in ((0.0, 0.0), (0.3, 2.0))
    ]
    curves = pd.DataFrame(rows)
    assert found_share(curves) == 0.5
    worse = corrected(curves)
    assert worse.query("radius > 0")["change"].tolist() == [4.0, 4.0, 2.5, 2.0]
    assert worse.query("radius == 0")["change"].tolist() == [0.0] * len(cells)  # it needs no search


def test_a_model_that_enters_no_slope_says_nothing_of_the_search() -> None:
    rows = [
        {"width": 2, "horizon": 40, "seed": seed, "radius": radius, "reading": "drift", "error": 2.0, "change": 2.0}
        | {"threshold": 0.1, "stronger": 2.0 / share if radius else math.nan}
        for seed, share in ((0, 1.0), (1, 0.3))
        for radius in (0.0, 0.3)
    ]
    curves = pd.DataFrame(rows)
    radii = pd.DataFrame({"width": 2, "horizon": 40, "seed": [0, 1], "valid": [True, False]})
    assert found_share(curves) == 0.3
    assert found_share(of_valid(curves, radii)) == 1.0
    assert found_share(of_valid(curves, radii.assign(valid=True))) == 0.3
