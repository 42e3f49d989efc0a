"""Names the conclusion of each tested claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memsweep.report.values.table import Cell
from memsweep.stability.comparison.paired import Support, support_text

_SIGNS = {
    Support.SUPPORTED: ("✓", "agrees"),
    Support.CONTRADICTED: ("✗", "disagrees"),
    Support.NOT_SUPPORTED: ("✗", "disagrees"),
    Support.UNDERPOWERED: ("?", "undecided"),
    Support.NOT_MEASURED: ("–", "undecided"),
}

Pair = Mapping[Any, Any]
"""A row of ``memsweep.analyses.claims.cells.compared_frame``."""


def conclusion(pair: Pair) -> Cell:
    """The study's word on the claim of a pair."""
    support = Support(str(pair["verdict"]))
    sign, tone = _SIGNS[support]
    return Cell(f"{sign} {support_text(support, int(pair['more_seeds']))}", tone)
