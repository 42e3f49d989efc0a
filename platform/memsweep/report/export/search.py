"""A search as files: ``search.csv``, every suggestion, and ``winners.csv``, what fresh seeds made of the best."""

from __future__ import annotations

from typing import Any

import pandas as pd

from memsweep.report.analysis.search.searched import Searched
from memsweep.report.analysis.search.winners import Winner, Worth, last_row
from memsweep.report.naming.cells import ALL_CELLS, settings_text
from memsweep.search.suggestions import SuggestionRecord

SEARCH_COLUMNS = ("search", "cell", "number")
ENDING_COLUMNS = ("steps", "state", "rank", "identity")
WINNER_COLUMNS = (
    *("cell", "rank", "number", "settings", "objective", "search", "search_seeds", "confirmed"),
    *("confirmed_low", "confirmed_high", "gap", "seeds", "searched_as", "confirmed_as"),
)


def search_frame(searched: Searched) -> pd.DataFrame:
    """One row per suggestion: SEARCH_COLUMNS, the searched fields, the objectives, ENDING_COLUMNS.

    A field that did not apply, and an objective that was not measured, is empty. ``identity`` is that of the last
    row, or of the first cell's where a suggestion runs in several.
    """
    fields, objectives = list(searched.history.space), list(searched.objectives)
    rows = [_member(searched, member, fields, objectives) for member in searched.history.suggestions]
    return pd.DataFrame(rows, columns=[*SEARCH_COLUMNS, *fields, *objectives, *ENDING_COLUMNS])


def winners_frame(searched: Searched) -> pd.DataFrame:
    """One row per winner and objective: WINNER_COLUMNS, the axes of the cells, the searched fields."""
    fields, axes = list(searched.history.space), list(searched.cells.axes)
    rows = [_winner(searched, winner, worth, fields) for winner in searched.winners for worth in winner.worth]
    return pd.DataFrame(rows, columns=[*WINNER_COLUMNS, *axes, *fields])


def _member(searched: Searched, member: SuggestionRecord, fields: list[str], objectives: list[str]) -> dict[str, Any]:
    cells = sorted({row.cell for row in member.trials})
    row = last_row(member, cells[0]) if cells else None
    values = member.values or (None,) * len(objectives)
    return {
        "search": member.search,
        "cell": ALL_CELLS if len(cells) > 1 else searched.cells.name(cells[0]) if cells else None,
        "number": member.suggestion.number,
        **{field: member.suggestion.values.get(field) for field in fields},
        **dict(zip(objectives, values, strict=True)),
        "steps": member.steps,
        "state": member.state.value,
        "rank": member.rank or None,
        "identity": row.identity if row is not None else None,
    }


def _winner(searched: Searched, winner: Winner, worth: Worth, fields: list[str]) -> dict[str, Any]:
    suggestion, found = winner.member.suggestion, worth.found
    low, high = (found.low, found.high) if worth.seeds else (None, None)
    return {
        **{"cell": searched.cells.name(winner.cell), "rank": winner.rank, "number": suggestion.number},
        "settings": settings_text(suggestion.values),
        **{"objective": worth.objective, "search": found.search, "search_seeds": worth.search_seeds},
        **{"confirmed": found.confirmed, "confirmed_low": low, "confirmed_high": high},
        **{"gap": found.gap, "seeds": worth.seeds},
        **{"searched_as": winner.chosen, "confirmed_as": winner.confirmed or None},
        **searched.cells.values[winner.cell],
        **{field: suggestion.values.get(field) for field in fields},
    }
