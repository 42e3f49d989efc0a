"""Claims that compare cells, as the plain rows that page and terminal print: what follows first, then the evidence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from memsweep.report.analysis.summary import joined
from memsweep.report.style import figure
from memsweep.stability.comparison.paired import Support, support_text

MARKS = {
    Support.SUPPORTED: "✓",
    Support.NOT_SUPPORTED: "✗",
    Support.UNDERPOWERED: "?",
    Support.NOT_MEASURED: "–",
}

TONES = {
    Support.SUPPORTED: "agrees",
    Support.NOT_SUPPORTED: "disagrees",
    Support.UNDERPOWERED: "undecided",
    Support.NOT_MEASURED: "undecided",
}
"""How the page colours them: as it does agreement with what was published."""


def claim_rows(compared: pd.DataFrame) -> list[dict[str, Any]]:
    """Of ``memsweep.report.analysis.claims.compared_frame``: one entry per claim, with a row of texts per pair of
    cells."""
    claims = []
    for claim, part in compared.groupby("claim", sort=False):
        first = part.iloc[0]
        support = Support(str(first["verdict"]))
        claims.append(
            {
                **{"claim": str(claim), "support": str(support), "mark": MARKS[support]},
                "verdict": support_text(support, int(first["more_seeds"])),
                "pairs": [_pair(row) for row in part.to_dict("records")],
            }
        )
    return claims


def counted(claims: Sequence[Mapping[str, Any]]) -> str:
    """``Of 3 claims, 2 are supported and 1 is underpowered.``"""
    found = Counter(claim["support"] for claim in claims)
    parts = [f"{found[kind]} {'is' if found[kind] == 1 else 'are'} {kind}" for kind in Support if found[kind]]
    return f"Of {len(claims)} claim{'' if len(claims) == 1 else 's'}, {joined(parts)}."


def _pair(row: Mapping[Any, Any]) -> dict[str, str]:
    tested = row["seeds"] > 0
    effect = f"{row['scale']} {figure(row['effect'])} [{_end(row['low'])}, {_end(row['high'])}]"
    return {
        "cells": str(row["cells"]) if isinstance(row["cells"], str) else "",
        "test": str(row["test"]),
        "values": f"{figure(row['left'])} / {figure(row['right'])}" if tested else "–",
        "effect": effect if tested else "–",
        "p": figure(row["p"], 2) if tested else "–",
        "holm": figure(row["p_holm"], 2) if tested else "–",
        "seeds": f"{row['seeds']:.0f}" + (f" ({row['ties']:.0f} tied)" if row["ties"] else ""),
    }


def _end(value: float) -> str:
    """An end of an interval; what is open there, or unknown, is infinite."""
    return "−∞" if value == -math.inf else figure(value)
