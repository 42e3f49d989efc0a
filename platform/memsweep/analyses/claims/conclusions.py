"""Names the conclusion of each tested claim."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from memsweep.report.values.table import Cell
from memsweep.stability.comparison.paired import Support, support_text

_SIGNS = {
    Support.SUPPORTED: ("✓", "agrees"),
    Support.SUPPORTED_IN_PART: ("✓", "agrees"),
    Support.CONTRADICTED: ("✗", "disagrees"),
    Support.NOT_SUPPORTED: ("✗", "disagrees"),
    Support.UNDERPOWERED: ("?", "undecided"),
    Support.NOT_MEASURED: ("–", "undecided"),
}

Pair = Mapping[Any, Any]
"""A row of ``memsweep.analyses.claims.cells.compared_frame``."""


def unmeasured_pairs(compared: pd.DataFrame) -> pd.DataFrame:
    """The pairs that are not measured, of claims that have measured ones."""
    unmeasured = str(Support.NOT_MEASURED)
    return compared[(compared["test"] == unmeasured) & (compared["verdict"] != unmeasured)]


def partly_measured(compared: pd.DataFrame) -> frozenset[str]:
    """The claims of which some pairs are measured, and some are not."""
    return frozenset(unmeasured_pairs(compared)["claim"])


def conclusion(pair: Pair, partly: Collection[str]) -> Cell:
    """The study's word on the claim of a pair.

    Args:
        pair: of cells.
        partly: of ``partly_measured``, over all pairs: each pair of these claims speaks for itself, and says where it
            lies.
    """
    if pair["claim"] in partly:
        sign, tone = _SIGNS[Support(str(pair["test"]).partition(":")[0])]
        return Cell(f"{sign} {pair['test']}{' at ' if pair['cells'] else ''}{pair['cells']}", tone)
    support = Support(str(pair["verdict"]))
    sign, tone = _SIGNS[support]
    return Cell(f"{sign} {support_text(support, int(pair['more_seeds']))}", tone)
