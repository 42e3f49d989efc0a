"""A search as sentences, and its winners, suggestions and Pareto front as tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memsweep.config.schema.search import CHOICE, LOG_INT, LOG_UNIFORM, NONE, Domain
from memsweep.report.analysis.search.searched import Searched, on_front
from memsweep.report.analysis.search.winners import Winner, Worth, last_row
from memsweep.report.naming.cells import ALL_CELLS, brief, last, settings_text
from memsweep.report.naming.numbers import figure, joined, number, with_interval
from memsweep.report.rows.table import ALL, EXPORTED, NOTHING, SHOWN, Cell, Column, Table
from memsweep.search.suggestions import SuggestionRecord, SuggestionState
from memsweep.stability.comparison.selection_bias import mean_gap

_ALGORITHMS = {
    "grid": "every combination of a grid",
    "random": "random search",
    "tpe": "Optuna's tree-structured Parzen estimator (tpe)",
    "cma_es": "CMA-ES",
    "gp": "a Gaussian process (gp)",
    "nsga_ii": "NSGA-II",
}
_SCHEDULERS = {
    NONE: "no suggestion is stopped early",
    "asha": "asha stops the worse ones early",
    "hyperband": "hyperband stops the worse ones early",
    "median": "suggestions below the median of the others are stopped early",
    "pbt": "the worst take over weights and settings of the best on the way (population-based training)",
}
_MOST_FRONT = 40


def sentences(searched: Searched) -> list[str]:
    """The search and its cost, the states of its suggestions, and the values of its winners on fresh seeds."""
    return [_what(searched), _cost(searched), *_endings(searched), *_gaps(searched)]


def winner_table(searched: Searched) -> Table[tuple[Winner, Worth]]:
    """A row per winner and objective: settings, the value in the search, and the value on fresh seeds."""
    fresh = ALL if searched.fresh else EXPORTED
    ranks = ALL if any(winner.rank > 1 for winner in searched.winners) else EXPORTED
    objectives = ALL if len(searched.objectives) > 1 else EXPORTED
    columns: list[Column[tuple[Winner, Worth]]] = [
        Column("cell", lambda row: searched.cells.name(row[0].cell), once=True, style="name"),
        Column("rank", lambda row: row[0].rank, views=ranks, once=True),
        Column("number", lambda row: row[0].member.suggestion.number, views=EXPORTED),
        Column("settings", _settings, cell=_settings_cell, once=True, style=""),
        Column("objective", lambda row: row[1].objective, _words, views=objectives),
        Column("search value", lambda row: row[1].values.search, key="search"),
        Column(
            "fresh seeds [95 %]",
            lambda row: row[1].values.confirmed,
            cell=_confirmed_cell,
            key="confirmed",
            views=fresh,
        ),
        Column("confirmed_low", lambda row: row[1].values.low if row[1].seeds else None, views=EXPORTED),
        Column("confirmed_high", lambda row: row[1].values.high if row[1].seeds else None, views=EXPORTED),
        Column("gap", lambda row: row[1].values.gap, cell=_gap_cell, views=fresh),
        Column("seeds", lambda row: row[1].seeds, cell=_seeds_cell, unit="search / fresh" if searched.fresh else ""),
        Column("search_seeds", lambda row: row[1].search_seeds, views=EXPORTED),
        Column("searched_as", lambda row: row[0].chosen, views=EXPORTED),
        Column("confirmed_as", lambda row: row[0].confirmed or None, views=EXPORTED),
        *(_keyed(axis, lambda row: searched.cells.values[row[0].cell]) for axis in searched.cells.axes),
        *(_keyed(field, lambda row: row[0].member.suggestion.values) for field in searched.history.space),
    ]
    rows = [(winner, worth) for winner in searched.winners for worth in winner.worth]
    return Table("winners", "Winners of the search", rows, columns)


def suggestion_table(searched: Searched) -> Table[SuggestionRecord]:
    """``search.csv``: a row per suggestion.

    A field that did not apply, and an objective that was not measured, is empty. ``identity`` is that of the last
    row, or of the first cell's where a suggestion runs in several.
    """

    def cells(member: SuggestionRecord) -> list[int]:
        return sorted({row.cell for row in member.trials})

    def cell(member: SuggestionRecord) -> str | None:
        there = cells(member)
        return ALL_CELLS if len(there) > 1 else searched.cells.name(there[0]) if there else None

    def identity(member: SuggestionRecord) -> str | None:
        row = last_row(member, there[0]) if (there := cells(member)) else None
        return row.identity if row is not None else None

    columns: list[Column[SuggestionRecord]] = [
        _exported("search", lambda member: member.search),
        _exported("cell", cell),
        _exported("number", lambda member: member.suggestion.number),
        *(_keyed(field, lambda member: member.suggestion.values) for field in searched.history.space),
        *(_keyed(name, lambda member: _objectives(searched, member)) for name in searched.objectives),
        _exported("steps", lambda member: member.steps),
        _exported("state", lambda member: member.state.value),
        _exported("rank", lambda member: member.rank or None),
        _exported("identity", identity),
    ]
    return Table("search", "Suggestions", searched.history.suggestions, columns)


def front_table(searched: Searched) -> Table[tuple[str, SuggestionRecord]]:
    """Of a search for several objectives: the members of each cell's Pareto front, at most 40 in all."""
    rows = []
    for cell in range(1 if searched.shared else len(searched.cells.values)):
        name = ALL_CELLS if searched.shared else searched.cells.name(cell)
        rows += [(name, member) for member in on_front(searched.of_cell(cell), searched.history.modes)]
    columns: list[Column[tuple[str, SuggestionRecord]]] = [
        Column("cell", lambda row: row[0], once=True, style="name"),
        Column("suggestion", lambda row: row[1].suggestion.number),
        *(_keyed(name, lambda row: _objectives(searched, row[1]), SHOWN) for name in searched.objectives),
        Column("settings", lambda row: settings_text(row[1].suggestion.values), style=""),
    ]
    return Table("front", "Pareto front", rows[:_MOST_FRONT] if len(searched.objectives) > 1 else (), columns)


def _exported(name: str, value: Callable[[Any], Any]) -> Column[Any]:
    return Column(name, value, views=EXPORTED)


def _keyed(name: str, values: Callable[[Any], Mapping[str, Any]], views: frozenset[str] = EXPORTED) -> Column[Any]:
    """One of the values that a row has by name; empty where it has none."""
    return Column(_words(name), lambda row: values(row).get(name), key=name, views=views)


def _objectives(searched: Searched, member: SuggestionRecord) -> dict[str, float]:
    return dict(zip(searched.objectives, member.values, strict=True)) if member.values is not None else {}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _settings(row: tuple[Winner, Worth]) -> str:
    return settings_text(row[0].member.suggestion.values)


def _settings_cell(row: tuple[Winner, Worth]) -> Cell:
    return Cell(_settings(row), notes=((f"suggestion {row[0].member.suggestion.number}", ""),))


def _confirmed_cell(row: tuple[Winner, Worth]) -> Cell:
    values = row[1].values
    return Cell(with_interval(values.confirmed, values.low, values.high) if row[1].seeds else NOTHING)


def _gap_cell(row: tuple[Winner, Worth]) -> Cell:
    return Cell(gap_text(row[1].values.gap, row[1].values.search) if row[1].seeds else NOTHING)


def _seeds_cell(row: tuple[Winner, Worth]) -> Cell:
    worth = row[1]
    return Cell(f"{worth.search_seeds} / {worth.seeds}" if worth.seeds else str(worth.search_seeds))


def gap_text(gap: float, search: float) -> str:
    """``12 % worse``, ``3 % better``, by the search value; the plain difference where that is zero."""
    if math.isnan(gap):
        return NOTHING
    if gap == 0:
        return "none"
    word = "worse" if gap > 0 else "better"
    if not math.isfinite(gap) or search == 0 or not math.isfinite(search):
        return f"{figure(abs(gap))} {word}"
    share = 100 * abs(gap / search)
    return f"{share:.2g} % {word}" if share < 100 else f"{share:.0f} % {word}"


def space_text(searched: Searched) -> str:
    """``learning rate 0.0001 to 0.1 (logarithmic), activation: linear or tanh``."""
    return "; ".join(f"{last(path)} {_domain(domain)}" for path, domain in searched.history.space.items())


def _domain(domain: Domain) -> str:
    if domain.kind == CHOICE:
        text = f"one of {', '.join(map(brief, domain.values))}"
    else:
        text = f"{brief(domain.low)} to {brief(domain.high)}"
        text += " (logarithmic)" if domain.kind in (LOG_UNIFORM, LOG_INT) else ""
    if domain.when:
        conditions = [f"{last(other)} is {' or '.join(map(brief, values))}" for other, values in domain.when.items()]
        text += f", where {joined(conditions)}"
    return text


def _what(searched: Searched) -> str:
    history = searched.history
    goals = joined([f"{'least' if m == 'min' else 'greatest'} {n.replace('_', ' ')}" for n, m in _goals(searched)])
    total, searches = len(history.suggestions), len({member.search for member in history.suggestions})
    where = f", {_each(searched)}" if searches > 1 else f", each in all {len(history.cells)} cells" * searched.shared
    return (
        f"Searched for the {goals} with {_ALGORITHMS.get(history.algorithm, history.algorithm)}: "
        f"{_count(total, 'suggestion')}{where}, in {_count(history.rounds, 'round')}; "
        f"{_SCHEDULERS.get(history.scheduler, history.scheduler)}."
    )


def _each(searched: Searched) -> str:
    sizes = sorted(Counter(member.search for member in searched.history.suggestions).values())
    many = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    return f"{many} in each of {len(sizes)} cells"


def _goals(searched: Searched) -> list[tuple[str, str]]:
    return list(zip(searched.objectives, searched.history.modes, strict=True))


def _cost(searched: Searched) -> str:
    """Steps of the suggestions that measured anything, and of the same ones all trained to the end."""
    history = searched.history
    members = [member for member in history.suggestions if member.steps > 0 and member.values is not None]
    cells = len(history.cells) if searched.shared else 1
    spent = cells * sum(member.steps for member in members)
    whole = cells * history.steps * len(members)
    text = f"{spent:,} optimizer steps were trained"
    if whole and spent < whole:
        text += f", {100 * spent / whole:.3g} % of the {whole:,} that all of them to the end would take"
    return f"{text}."


def _endings(searched: Searched) -> list[str]:
    states = Counter(member.state for member in searched.history.suggestions)
    words = {
        SuggestionState.DONE: "trained to the end",
        SuggestionState.STOPPED: "stopped early",
        SuggestionState.DIVERGED: "diverged",
        SuggestionState.FAILED: "failed",
        SuggestionState.RUNNING: "still to end",
    }
    parts = [f"{states[state]} {word}" for state, word in words.items() if states[state]]
    text = f"Of the suggestions, {joined(parts)}." if parts else "Nothing has been suggested yet."
    return [text + (" The search is not over." if states[SuggestionState.RUNNING] else "")]


def _gaps(searched: Searched) -> list[str]:
    first = [winner for winner in searched.winners if winner.rank == 1]
    if not first:
        return ["No suggestion has come to its end yet."]
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
    missing = f"{_count(waiting, 'winner')} still to be retrained with fresh seeds."
    if not worth:
        return f"{label}: {missing}"
    worse = sum(one.values.gap > 0 for one in worth)
    seeds = joined(sorted({str(one.seeds) for one in worth}, key=int))
    text = (
        f"On {seeds} fresh seeds and fresh data the {label} of {worse} of {_count(len(worth), 'winner')} is worse "
        "than the search saw"
    )
    mean = mean_gap([one.values for one in worth], range(len(worth)))
    if mean.cells:
        over = f"mean gap over {mean.cells} cells" if mean.cells > 1 else "gap"
        text += f"; {over}: {gap_text(mean.mean, 1.0)}"
        if not math.isnan(mean.low):
            text += f", 95 % interval {_percent(mean.low)} to {_percent(mean.high)}"
    return f"{text}. {missing if waiting else ''}".strip()


def _percent(share: float) -> str:
    """A gap with its sign: worse is positive."""
    return f"{number(100 * share, 1)} %"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
