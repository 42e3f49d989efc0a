"""Claims that compare cells, as a table: the conclusion, then the evidence of each pair of cells."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pandas as pd

from memsweep.analyses.claims.conclusions import Pair, conclusion, partly_measured, unmeasured_pairs
from memsweep.report.naming.numbers import MOST_NAMED, figure, interval, joined
from memsweep.report.values.table import NOTHING, PAGE, SHOWN, Column, Table
from memsweep.stability.comparison.paired import Support


def claim_table(compared: pd.DataFrame) -> Table[Pair]:
    """Of ``memsweep.analyses.claims.cells.compared_frame``: a row per claim and pair of cells."""
    page: dict[str, Any] = {"views": frozenset({PAGE})}
    partly = partly_measured(compared)
    columns: list[Column[Pair]] = [
        Column("conclusion", lambda pair: pair["verdict"], cell=lambda pair: conclusion(pair, partly)),
        Column("claim", lambda pair: pair["claim"], style=""),
        Column("fit: left / right", _fit, style="", optional=True, views=SHOWN),
        Column("where", lambda pair: pair["cells"] if isinstance(pair["cells"], str) else "", optional=True, **page),
        Column("test", lambda pair: pair["test"], style="", **page),
        Column("left / right", lambda pair: _tested(pair, f"{figure(pair['left'])} / {figure(pair['right'])}"), **page),
        Column("effect with 95 % interval", _effect, **page),
        Column("p", lambda pair: _tested(pair, figure(pair["p"], 2)), **page),
        Column("p (Holm)", lambda pair: _tested(pair, figure(pair["p_holm"], 2)), **page),
        Column("of the opposite", lambda pair: _tested(pair, figure(pair["p_against"], 2)), **page),
        Column("seeds", lambda p: f"{p['seeds']:.0f}" + (f" ({p['ties']:.0f} tied)" if p["ties"] else ""), **page),
    ]
    return Table("compared", "Claims", compared.to_dict("records"), columns, stored=compared)


MOST_CITED = 2
"""Claims that a sentence cites whole."""
_COUNTED: dict[str, str] = {Support.UNDERPOWERED: "undecided for lack of seeds"}


def counted(compared: pd.DataFrame) -> str:
    """``Of 3 claims, 2 are supported and 1 is contradicted.``, and where some of them are not measured."""
    words = compared.drop_duplicates("claim")["verdict"]
    counts = Counter(words)
    parts = [
        f"{counts[kind]} {'is' if counts[kind] == 1 else 'are'} {_COUNTED.get(kind, kind)}"
        for kind in Support
        if counts[kind]
    ]
    said = f"Of {len(words)} claim{'' if len(words) == 1 else 's'}, {joined(parts)}."
    return f"{said}{_scope(unmeasured_pairs(compared))}"


def _scope(missing: pd.DataFrame) -> str:
    """`` Of 2 of these, cells are not measured: horizon=32.``; empty where none is missing."""
    if missing.empty:
        return ""
    places = [*filter(None, dict.fromkeys(missing["cells"]))]
    more = [f"{len(places) - MOST_NAMED} more"] if len(places) > MOST_NAMED else []
    named = f": {'; '.join(places[:MOST_NAMED] + more)}" if places else ""
    return f" Of {missing['claim'].nunique()} of these, cells are not measured{named}."


def unfit(compared: pd.DataFrame) -> str:
    """``1 compares radii of models that do not all fit``, and which, with their models; empty where all fit."""
    lacking = compared[compared[["left_fits", "right_fits"]].min(axis=1) < compared["seeds"]]
    claims = [*dict.fromkeys(lacking["claim"])]
    if not claims:
        return ""
    named = []
    for claim in claims[:MOST_CITED]:
        left, right, of = compared.loc[compared["claim"] == claim, ["left_fits", "right_fits", "seeds"]].sum()
        named.append(f"`{claim}` (fit: {left:.0f} of {of:.0f} on the left, {right:.0f} of {of:.0f} on the right)")
    more = [f"{len(claims) - MOST_CITED} more"] if len(claims) > MOST_CITED else []
    compares = "1 compares" if len(claims) == 1 else f"{len(claims)} compare"
    return f"{compares} radii of models that do not all fit, and a verdict leaves those out: {joined(named + more)}."


def _fit(pair: Pair) -> str:
    fits = (pair["left_fits"], pair["right_fits"])
    return f"{fits[0]:.0f} / {fits[1]:.0f} of {pair['seeds']:.0f}" if min(fits) < pair["seeds"] else ""


def _tested(pair: Pair, text: str) -> str:
    return text if pair["seeds"] > 0 else NOTHING


def _effect(pair: Pair) -> str:
    if not (pair["low"] > (0 if pair["scale"] == "ratio" else -math.inf) or pair["high"] < math.inf):
        return _tested(pair, f"{pair['scale']} {figure(pair['effect'])}, no interval with {pair['seeds']:.0f} seeds")
    return _tested(pair, f"{pair['scale']} {interval(pair['effect'], pair['low'], pair['high'])}")
