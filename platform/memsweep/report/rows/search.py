"""A search as the sentences and plain rows that page and terminal print."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from memsweep.config.schema.search import CHOICE, LOG_INT, LOG_UNIFORM, NONE, Domain
from memsweep.report.analysis.search.searched import Searched, on_front
from memsweep.report.analysis.search.winners import Winner, Worth
from memsweep.report.analysis.summary import joined
from memsweep.report.naming.cells import ALL_CELLS, brief, last, settings_text
from memsweep.report.style import figure, number, with_interval
from memsweep.search.suggestions import SuggestionState
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
    NONE: "nobody is stopped early",
    "asha": "asha stops the worse ones early",
    "hyperband": "hyperband stops the worse ones early",
    "median": "who falls below the median of the others is stopped early",
    "pbt": "the worst take over weights and settings of the best on the way (population-based training)",
}
_MOST_FRONT = 40


def sentences(searched: Searched) -> list[str]:
    """What the search was and what it cost, what ended how, and what its winners are worth."""
    return [_what(searched), _cost(searched), *_endings(searched), *_gaps(searched)]


def winner_table(searched: Searched) -> list[dict[str, Any]]:
    """A row of texts per winner: its cell, settings, and for each objective what the search and fresh seeds say."""
    rows = []
    for winner in searched.winners:
        number = winner.member.suggestion.number
        rows.append(
            {
                **{"cell": searched.cells.name(winner.cell), "rank": winner.rank, "number": number},
                "settings": settings_text(winner.member.suggestion.values),
                "worth": [worth_texts(worth) for worth in winner.worth],
            }
        )
    return rows


def worth_texts(worth: Worth) -> dict[str, str]:
    """``search``, ``confirmed`` with its interval, ``gap`` in percent of the search value, and ``seeds``, as texts."""
    known, found = worth.seeds > 0, worth.found
    return {
        "objective": worth.objective.replace("_", " "),
        "search": figure(found.search),
        "confirmed": with_interval(found.confirmed, found.low, found.high) if known else "–",
        "gap": gap_text(found.gap, found.search) if known else "–",
        "seeds": f"{worth.search_seeds} / {worth.seeds}" if known else str(worth.search_seeds),
    }


def gap_text(gap: float, search: float) -> str:
    """``12 % worse``, ``3 % better``, by the search value; the plain difference where that is zero."""
    if math.isnan(gap):
        return "–"
    if gap == 0:
        return "none"
    word = "worse" if gap > 0 else "better"
    if not math.isfinite(gap) or search == 0 or not math.isfinite(search):
        return f"{figure(abs(gap))} {word}"
    share = 100 * abs(gap / search)
    return f"{share:.2g} % {word}" if share < 100 else f"{share:.0f} % {word}"


def front_table(searched: Searched) -> list[dict[str, Any]]:
    """Of a search for several objectives: the members of each cell's Pareto front, at most 40 in all."""
    if len(searched.objectives) < 2:
        return []
    rows = []
    for cell in range(1 if searched.shared else len(searched.cells.values)):
        for member in on_front(searched.of_cell(cell), searched.history.modes):
            name = ALL_CELLS if searched.shared else searched.cells.name(cell)
            values = [figure(value) for value in member.values or ()]
            settings = settings_text(member.suggestion.values)
            rows.append({"cell": name, "number": member.suggestion.number, "values": values, "settings": settings})
    return rows[:_MOST_FRONT]


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
            "The winners have not been measured anew (confirm): their values are the best of many on the seeds that "
            "chose them, and so too good."
        ]
    return [text for index, _ in enumerate(searched.objectives) if (text := _gap(searched, first, index))]


def _gap(searched: Searched, first: Sequence[Winner], objective: int) -> str:
    worth = [winner.worth[objective] for winner in first if winner.worth[objective].seeds]
    waiting = len(first) - len(worth)
    label = searched.objectives[objective].replace("_", " ")
    missing = f"{_count(waiting, 'winner')} still to be measured anew."
    if not worth:
        return f"{label}: {missing}"
    worse = sum(one.found.gap > 0 for one in worth)
    seeds = joined(sorted({str(one.seeds) for one in worth}, key=int))
    text = (
        f"On {seeds} fresh seeds and fresh data the {label} of {worse} of {_count(len(worth), 'winner')} is worse "
        "than the search saw"
    )
    mean = mean_gap([one.found for one in worth], range(len(worth)))
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
