"""How near a measured perturbation error is to the true supremum over the ball, in words for beside a verdict.

On a sample of the models a stronger search runs at two of the radii that decide (column ``stronger`` of the curves).
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from memsweep.stability.verdict.radius import change

DRAWN, SAMPLED, SEARCHED = "random draws", "sampled", "searched"
MARK, MARKED = "†", 0.95
"""Beside a verdict for which the search had found less than this share of the largest known change."""
EXPLANATIONS = {
    DRAWN: "largest of some random draws on the sphere: a weak lower bound of the worst case",
    SAMPLED: "worst case found by search, on a sample of sequences: a lower bound",
    SEARCHED: "worst case found by search (expected loss exact): a lower bound",
}


def bound_of(curves: pd.DataFrame) -> str:
    """Why the errors of one condition and ball are lower bounds of the supremum.

    No parameterization, normalization, discretization or ball makes them more by itself: where amplitudes differ in
    sign, where states are normalized, and where modes turn, the worst push is not the one that slows all modes down.
    """
    if (curves["method"] != "worst_case").any():
        return DRAWN
    return SEARCHED if curves["exact"].all() else SAMPLED


GOOD = 0.99
"""A search that found at least this share of the largest known change everywhere can change no verdict."""
_CELL = ["width", "horizon"]


def of_valid(curves: pd.DataFrame, radii: pd.DataFrame) -> pd.DataFrame:
    """The same curves; of models that enter no slope no stronger search counts.

    Args:
        curves: of one condition and ball.
        radii: of ``stability_radii`` of them.
    """
    if "stronger" not in curves:
        return curves
    entering = pd.MultiIndex.from_frame(radii.loc[radii["valid"].astype(bool), [*_CELL, "seed"]])
    enters = pd.MultiIndex.from_frame(curves[[*_CELL, "seed"]]).isin(entering)
    return curves.assign(stronger=curves["stronger"].where(enters))


def found_share(curves: pd.DataFrame) -> float:
    """The least share of the largest known change that the search found; nan where no stronger search ran."""
    return float(_shares(curves).min())


def corrected(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves as if the search had found as little in every model of a width and horizon as in the sampled ones.

    Where none was sampled, the least share of all stands in. The error at radius 0 needs no search.
    """
    shares = _shares(curves)
    cells = curves[_CELL].assign(share=shares).groupby(_CELL)["share"].transform("min").fillna(shares.min())
    moved, found = curves["radius"] > 0, change(curves)
    with np.errstate(divide="ignore"):
        worse = np.where(moved, found / cells, found)
    # no change of these is the limit of a threshold: radii are interpolated
    return curves.assign(change=worse, threshold=math.nan)


def _shares(curves: pd.DataFrame) -> pd.Series:
    """Found over largest known change, nan where no stronger search ran; 1 where both are infinite."""
    if "stronger" not in curves:
        return pd.Series(math.nan, index=curves.index)
    found = change(curves)
    both = np.isinf(found) & np.isinf(curves["stronger"])
    return (found / curves["stronger"]).mask(both, 1.0)
