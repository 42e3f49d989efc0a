"""Claims that compare cells, as a table: the conclusion, then the evidence of each pair of cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from memsweep.report.naming.numbers import figure, interval, joined
from memsweep.report.values.table import NOTHING, PAGE, Cell, Column, Table
from memsweep.stability.comparison.paired import LEVEL, Support, support_text

_SIGNS = {
    Support.SUPPORTED: ("✓", "agrees"),
    Support.NOT_SUPPORTED: ("✗", "disagrees"),
    Support.UNDERPOWERED: ("?", "undecided"),
    Support.NOT_MEASURED: ("–", "undecided"),
}

CONTRADICTED = "contradicted"
"""What a claim is whose opposite the data show: a case of ``Support.NOT_SUPPORTED``."""

_Pair = Mapping[Any, Any]


def claim_table(compared: pd.DataFrame) -> Table[_Pair]:
    """Of ``memsweep.report.analysis.claims.compared_frame``: a row per claim and pair of cells."""
    page: dict[str, Any] = {"views": frozenset({PAGE})}
    against = contradicted(compared)
    columns: list[Column[_Pair]] = [
        Column("conclusion", lambda pair: pair["verdict"], cell=lambda pair: conclusion(pair, against)),
        Column("claim", lambda pair: pair["claim"], style=""),
        Column("where", lambda pair: pair["cells"] if isinstance(pair["cells"], str) else "", optional=True, **page),
        Column("test", lambda pair: pair["test"], style="", **page),
        Column("left / right", lambda pair: _tested(pair, f"{figure(pair['left'])} / {figure(pair['right'])}"), **page),
        Column("effect with 95 % interval", _effect, **page),
        Column("p", lambda pair: _tested(pair, figure(pair["p"], 2)), **page),
        Column("p (Holm)", lambda pair: _tested(pair, figure(pair["p_holm"], 2)), **page),
        Column("seeds", lambda p: f"{p['seeds']:.0f}" + (f" ({p['ties']:.0f} tied)" if p["ties"] else ""), **page),
    ]
    return Table("compared", "Claims", compared.to_dict("records"), columns, stored=compared)


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


_COUNTED: dict[str, str] = {Support.UNDERPOWERED: "undecided for lack of seeds"}


def counted(compared: pd.DataFrame) -> str:
    """``Of 3 claims, 2 are supported and 1 is contradicted.``"""
    against = contradicted(compared)
    words = [
        CONTRADICTED if claim in against else str(verdict)
        for claim, verdict in compared.drop_duplicates("claim")[["claim", "verdict"]].itertuples(index=False)
    ]
    counts = Counter(words)
    parts = [
        f"{counts[kind]} {'is' if counts[kind] == 1 else 'are'} {_COUNTED.get(kind, kind)}"
        for kind in (Support.SUPPORTED, CONTRADICTED, Support.NOT_SUPPORTED, Support.UNDERPOWERED, Support.NOT_MEASURED)
        if counts[kind]
    ]
    return f"Of {len(words)} claim{'' if len(words) == 1 else 's'}, {joined(parts)}."


def conclusion(pair: _Pair, against: frozenset[str]) -> Cell:
    """What the study says of a pair's claim.

    Args:
        pair: a row of ``compared_frame``.
        against: of ``contradicted``.
    """
    support = Support(str(pair["verdict"]))
    sign, tone = _SIGNS[support]
    word = CONTRADICTED if pair["claim"] in against else support_text(support, int(pair["more_seeds"]))
    return Cell(f"{sign} {word}", tone)


def _tested(pair: _Pair, text: str) -> str:
    return text if pair["seeds"] > 0 else NOTHING


def _effect(pair: _Pair) -> str:
    if not (pair["low"] > (0 if pair["scale"] == "ratio" else -math.inf) or pair["high"] < math.inf):
        return _tested(pair, f"{pair['scale']} {figure(pair['effect'])}, no interval with {pair['seeds']:.0f} seeds")
    return _tested(pair, f"{pair['scale']} {interval(pair['effect'], pair['low'], pair['high'])}")
