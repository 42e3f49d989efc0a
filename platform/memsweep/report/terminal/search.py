"""A search on a terminal: what it was in sentences, and its winners with what fresh seeds made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from memsweep.report.rows.claims import TONES, claim_rows
from memsweep.report.rows.search import gap_text
from memsweep.report.style import clean, figure, with_interval

_MOST = 40
_STYLES = {"agrees": "bold green", "disagrees": "bold red", "undecided": "bold yellow"}
_NAME, _SETTINGS = 30, 48


def search_parts(said: Sequence[str], winners: pd.DataFrame) -> list[Table | Text]:
    """For rich to print, from the report's sentences and ``winners.csv``; the first 40 winners."""
    several = winners["objective"].nunique() > 1
    ranked = bool((winners["rank"] > 1).any()) if len(winners) else False
    fresh = bool(winners["confirmed_as"].notna().any()) if len(winners) else False
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    names = ["cell", *["rank"] * ranked, "settings", *["objective"] * several, "search"]
    for name in (*names, *(["fresh seeds [95 %]", "gap"] if fresh else [])):
        widest = {"cell": _NAME, "settings": _SETTINGS}.get(name)
        table.add_column(Text(name), no_wrap=name != "settings", overflow="ellipsis", max_width=widest)
    for row in winners.head(_MOST).to_dict("records"):
        cells = [str(row["cell"]), *[str(row["rank"])] * ranked, str(row["settings"])]
        cells += [*[str(row["objective"]).replace("_", " ")] * several, figure(float(row["search"]))]
        table.add_row(*(Text(clean(text)) for text in (*cells, *(_confirmed(row) if fresh else ()))))
    left_out = len(winners) - _MOST
    more = [Text(f"{left_out} more are in winners.csv of the report.")] if left_out > 0 else []
    shown: list[Table | Text] = [Text(), table] if len(winners) else []
    return [*(Text(clean(sentence)) for sentence in said), *shown, *more, Text()]


def _confirmed(row: dict[Any, Any]) -> tuple[str, str]:
    value, low, high = (float(row[name]) for name in ("confirmed", "confirmed_low", "confirmed_high"))
    text = with_interval(value, low, high) if row["seeds"] else "–"
    return text, gap_text(float(row["gap"]), float(row["search"]))


def claim_parts(compared: pd.DataFrame) -> list[Table | Text]:
    """What follows for each claim that compares cells, from ``compared.csv``."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for claim in claim_rows(compared):
        verdict = Text(f"{claim['mark']} {claim['verdict']}", style=_STYLES[TONES[claim["support"]]])
        table.add_row(verdict, Text(clean(claim["claim"])))
    return [Text("Claims, tested over seeds with Holm's correction:"), table, Text()]
