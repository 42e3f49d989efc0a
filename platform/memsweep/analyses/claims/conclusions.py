"""Names the conclusion of each tested claim, and the claims that the data contradict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from memsweep.report.values.table import Cell
from memsweep.stability.comparison.paired import LEVEL, Support, support_text

_SIGNS = {
    Support.SUPPORTED: ("✓", "agrees"),
    Support.NOT_SUPPORTED: ("✗", "disagrees"),
    Support.UNDERPOWERED: ("?", "undecided"),
    Support.NOT_MEASURED: ("–", "undecided"),
}

CONTRADICTED = "contradicted"
"""A claim whose opposite the data show is called so: a case of ``Support.NOT_SUPPORTED``."""

Pair = Mapping[Any, Any]
"""A row of ``memsweep.analyses.claims.cells.compared_frame``."""


def contradicted(compared: pd.DataFrame) -> frozenset[str]:
    """The claims that a pair of cells speaks against.

    Its 95 % interval lies on the other side of no effect; or every seed points the other way, and they are so many that
    this has a chance of at most 5 %, although still too few for an interval.
    """
    if compared.empty:
        return frozenset()
    neutral = (compared["scale"] == "ratio").astype(float)
    apart = (compared["low"] > neutral) | (compared["high"] < neutral)
    # p is one-sided in the direction of the claim: above one half, the effect points the other way
    each = (compared["p"] >= 1.0) & (compared["ties"] == 0) & (0.5 ** compared["seeds"] <= LEVEL)
    return frozenset(compared.loc[(compared["seeds"] > 0) & (each | apart & (compared["p"] > 0.5)), "claim"])


def conclusion(pair: Pair, against: frozenset[str]) -> Cell:
    """The study's word on the claim of a pair.

    Args:
        pair: a row of ``compared_frame``.
        against: of ``contradicted``.
    """
    support = Support(str(pair["verdict"]))
    sign, tone = _SIGNS[support]
    word = CONTRADICTED if pair["claim"] in against else support_text(support, int(pair["more_seeds"]))
    return Cell(f"{sign} {word}", tone)
