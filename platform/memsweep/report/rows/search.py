"""A search as sentences, and its winners and suggestions as tables."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memsweep.config.schema.search import NONE, PBT
from memsweep.errors import counted
from memsweep.report.analysis.search.searched import AtEnd, Searched
from memsweep.report.analysis.search.winners import Winner, Worth, last_row, misfit
from memsweep.report.naming.cells import last
from memsweep.report.naming.numbers import figure, joined, percent, with_interval
from memsweep.report.values.table import ALL, EXPORTED, NOTHING, Cell, Column, Table
from memsweep.search.suggestions import SuggestionRecord, SuggestionState
from memsweep.stability.comparison.selection_bias import search_bias

_STAGES = (
    "Population-based training changes settings on the way: a winner is all its stages. winners.csv has "
    "them in full (training.turns), search.csv the last one alone."
)
_FRONTS = (
    "With several objectives a winner is one suggestion of its cell's Pareto front: no other suggestion is better in "
    "one objective and no worse in the rest. Its place along the front alone chose it among these."
)


def sentences(searched: Searched) -> list[str]:
    """The search and its cost, the states of its suggestions, its winners on fresh seeds, and those at an end."""
    stages = [_STAGES] if any(winner.turns for winner in searched.winners) else []
    fronts = [_FRONTS] if _has_fronts(searched) else []
    told = filter(None, (_what(searched), _cost(searched), _endings(searched)))
    return [*told, *stages, *fronts, *caveats(searched)]


def caveats(searched: Searched) -> list[str]:
    """How its winners do on fresh seeds, or that they have none, and those whose values lie at an end of the search."""
    best = "winner's" if _has_fronts(searched) else "best"
    return [*_gaps(searched), *(_at_end(found, best) for found in searched.at_ends())]


def _has_fronts(searched: Searched) -> bool:
    return any(winner.front > 1 for winner in searched.winners)


def winner_table(searched: Searched) -> Table[tuple[Winner, Worth]]:
    """A row per winner and objective: settings, the value in the search, and the value on fresh seeds."""
    fresh = ALL if searched.fresh else EXPORTED
    ranks = ALL if any(winner.rank > 1 for winner in searched.winners) else EXPORTED
    objectives = ALL if len(searched.objectives) > 1 else EXPORTED
    columns: list[Column[tuple[Winner, Worth]]] = [
        Column("cell", lambda row: searched.cells.name(row[0].cell), style=""),
        Column("rank", lambda row: row[0].rank, views=ranks),
        Column("number", lambda row: row[0].member.suggestion.number, views=EXPORTED),
        Column("settings", lambda row: row[0].settings, style=""),
        *_front_columns(searched),
        Column("objective", lambda row: row[1].objective, _words, views=objectives),
        Column("search value", lambda row: row[1].values.search, key="search"),
        Column("fresh seeds [95 %]", lambda r: r[1].values.confirmed, cell=_confirmed, key="confirmed", views=fresh),
        Column("confirmed_low", lambda row: row[1].values.low if row[1].seeds else None, views=EXPORTED),
        Column("confirmed_high", lambda row: row[1].values.high if row[1].seeds else None, views=EXPORTED),
        Column("gap", lambda row: row[1].values.gap, cell=_gap_cell, views=fresh),
        Column("seeds", lambda row: row[1].seeds, cell=_seeds_cell, unit="search / fresh" if searched.fresh else ""),
        Column("search_seeds", lambda row: row[1].search_seeds, views=EXPORTED),
        Column("searched_as", lambda row: row[0].chosen, views=EXPORTED),
        Column("confirmed_as", lambda row: row[0].confirmed or None, views=EXPORTED),
        *(_keyed(axis, lambda row: searched.cells.values[row[0].cell]) for axis in searched.cells.axes),
        *(_keyed(field, lambda row: row[0].member.suggestion.values) for field in searched.history.space),
        *_turn_columns(searched),
    ]
    rows = [(winner, worth) for winner in searched.winners for worth in winner.worth]
    return Table("winners", "Winners of the search", rows, columns)


def suggestion_table(searched: Searched) -> Table[SuggestionRecord]:
    """``search.csv``: a row per suggestion.

    A field that did not apply, and an objective that was not measured, is empty. ``identity`` is that of the last
    row.
    """

    columns: list[Column[SuggestionRecord]] = [
        Column("cell", lambda member: searched.cells.name(member.cell)),
        Column("number", lambda member: member.suggestion.number),
        *(_keyed(field, lambda member: member.suggestion.values, ALL) for field in searched.history.space),
        *(_keyed(name, lambda member: _objectives(searched, member), ALL) for name in searched.objectives),
        Column("steps", lambda member: member.steps),
        Column("state", lambda member: member.state.value),
        Column("rank", lambda member: member.rank or None, optional=True),
        Column("identity", lambda member: last_row(member) or None, views=EXPORTED),
    ]
    return Table("search", "Suggestions", searched.history.suggestions, columns)


def _keyed(name: str, values: Callable[[Any], Mapping[str, Any]], views: frozenset[str] = EXPORTED) -> Column[Any]:
    """One of the values that a row has by name; empty where it has none."""
    return Column(name, lambda row: values(row).get(name), views=views)


def _objectives(searched: Searched, member: SuggestionRecord) -> dict[str, float]:
    return dict(zip(searched.objectives, member.values, strict=True)) if member.values is not None else {}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _confirmed(row: tuple[Winner, Worth]) -> Cell:
    values = row[1].values
    return Cell(with_interval(values.confirmed, values.low, values.high) if row[1].seeds else NOTHING)


def _front_columns(searched: Searched) -> list[Column[tuple[Winner, Worth]]]:
    """Of several objectives: among how many a winner is; of a radius: whether its model fits."""
    columns: list[Column[tuple[Winner, Worth]]] = []
    if len(searched.objectives) > 1:
        columns.append(Column("on the front", lambda row: row[0].front, cell=_front_cell, key="front"))
    if any(winner.reading for winner in searched.winners):
        missed = ALL if any(map(misfit, searched.winners)) else EXPORTED
        columns.append(Column("seeds that fit", lambda row: row[0].fit[0], cell=_fit_cell, key="fit", views=missed))
    return columns


def _turn_columns(searched: Searched) -> list[Column[tuple[Winner, Worth]]]:
    """The stages before the last one, where settings change on the way."""
    if not any(winner.turns for winner in searched.winners):
        return []
    return [Column("training.turns", lambda row: json.dumps(row[0].turns), views=EXPORTED)]


def _front_cell(row: tuple[Winner, Worth]) -> Cell:
    return Cell(f"1 of {row[0].front}")


def _fit_cell(row: tuple[Winner, Worth]) -> Cell:
    fitting, seeds = row[0].fit
    return Cell(f"{fitting} of {seeds}" if seeds else NOTHING, tone="bad" if fitting < seeds else "")


def _gap_cell(row: tuple[Winner, Worth]) -> Cell:
    return Cell(gap_text(row[1].values.gap, row[1].values.search) if row[1].seeds else NOTHING)


def _seeds_cell(row: tuple[Winner, Worth]) -> Cell:
    worth = row[1]
    return Cell(f"{worth.search_seeds} / {worth.seeds}" if worth.seeds else str(worth.search_seeds))


def gap_text(gap: float, search: float) -> str:
    """``12 % worse``, ``3 % better``, by the search value; the plain difference where that is not positive."""
    if math.isnan(gap):
        return NOTHING
    if gap == 0:
        return "none"
    word = "worse" if gap > 0 else "better"
    if not math.isfinite(gap) or search <= 0 or not math.isfinite(search):
        return f"{figure(abs(gap))} {word}"
    return f"{percent(abs(gap / search))} {word}"


def _what(searched: Searched) -> str:
    history = searched.history
    goals = zip(history.modes, history.objective, strict=True)
    aims = joined([f"{'least' if mode == 'min' else 'greatest'} {_words(name)}" for mode, name in goals])
    cells = len({member.cell for member in history.suggestions})
    where = f" in {cells} cells" if cells > 1 else ""
    early = "" if history.scheduler == NONE else f", with early stopping by {history.scheduler}"
    if history.scheduler == PBT:
        early = ", with population-based training"
    return (
        f"Searched {joined([last(path) for path in history.space])} for the {aims} with {history.algorithm}{early}: "
        f"{counted(len(history.suggestions), 'suggestion')}{where}, in {counted(history.rounds, 'round')}."
    )


def _cost(searched: Searched) -> str:
    """Steps of the suggestions that measured anything, and of the same ones all trained to the end.

    Empty where none has and some may have in a round that is open.
    """
    history = searched.history
    members = [member for member in history.suggestions if member.steps > 0 and member.values is not None]
    spent = sum(member.steps for member in members)
    whole = history.steps * len(members)
    is_open = any(member.state is SuggestionState.RUNNING for member in history.suggestions)
    if is_open and not members:
        return ""
    text = f"{spent:,} optimizer steps were trained{' in the rounds that have ended' if is_open else ''}"
    if whole and spent < whole:
        text += f", {100 * spent / whole:.3g} % of the {whole:,} that all of them to the end would take"
    return f"{text}."


def _endings(searched: Searched) -> str:
    states = Counter(member.state for member in searched.history.suggestions)
    words = {SuggestionState.RUNNING: "not ended"}  # a report does not know whether they run
    parts = [f"{states[state]} {words.get(state, state)}" for state in SuggestionState if states[state]]
    if states[SuggestionState.DONE] == states.total() > 0:
        return "All suggestions were trained to their end."
    text = f"Of the suggestions, {joined(parts)}." if parts else "Nothing has been suggested yet."
    over = " The search is not over: a suggestion counts when its round has ended."
    return text + (over if states[SuggestionState.RUNNING] else "")


def _gaps(searched: Searched) -> list[str]:
    first = [winner for winner in searched.winners if winner.rank == 1]
    if not first:
        is_open = any(member.state is SuggestionState.RUNNING for member in searched.history.suggestions)
        return [] if is_open else ["No suggestion has come to its end."]
    if not searched.fresh:
        return [
            "The winners have not been retrained with fresh seeds (confirm): their values are the best of many on the "
            "seeds of the search, and so too good."
        ]
    return [text for index, _ in enumerate(searched.objectives) if (text := _gap(searched, first, index))]


def _gap(searched: Searched, first: Sequence[Winner], objective: int) -> str:
    worth = [winner.worth[objective] for winner in first if winner.worth[objective].seeds]
    waiting = len(first) - len(worth)
    label = searched.objectives[objective].replace("_", " ")
    missing = f"{counted(waiting, 'winner')} still to be retrained with fresh seeds."
    if not worth:
        return f"{label}: {missing}"
    seeds = joined(sorted({str(one.seeds) for one in worth}, key=int))
    bias = search_bias([one.values for one in worth])
    text = (
        f"On {seeds} fresh seeds and fresh data the {label} of {bias.worse} of {counted(len(worth), 'winner')} is "
        f"worse than the search saw, and of {bias.better} better"
    )
    if bias.worse + bias.better > 1:
        text += f" (sign test: p = {bias.p:.2g})"
    if bias.cells:
        over = f"geometric mean over {bias.cells} cells" if bias.cells > 1 else "that is"
        text += f"; {over}: {gap_text(bias.ratio - 1.0, 1.0)}"
        if not math.isnan(bias.low):
            text += f", 95 % interval {gap_text(bias.low - 1.0, 1.0)} to {gap_text(bias.high - 1.0, 1.0)}"
        if bias.left_out:
            text += f"; {counted(bias.left_out, 'cell')} with a value that is not positive and finite left out"
    return f"{text}. {missing if waiting else ''}".strip()


def _at_end(found: AtEnd, best: str) -> str:
    where = f"In {found.cells} of {counted(found.of, 'cell')} the" if found.of > 1 else "The"
    near = "at" if found.exact else "close to"
    end, beyond = ("greatest", "greater") if found.greatest else ("least", "smaller")
    return (
        f"{where} {best} {last(found.field)} lies {near} the {end} that was searched, {figure(found.end)}: "
        f"{beyond} ones may be better."
    )
