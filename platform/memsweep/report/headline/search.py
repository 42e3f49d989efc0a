"""What a search found: the best settings, and whether they move with the size. Too little resolves nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memsweep.errors import counted
from memsweep.report.analysis.search.searched import Searched
from memsweep.report.analysis.search.winners import Winner, misfit
from memsweep.report.naming.cells import last
from memsweep.report.naming.numbers import as_sentences, figure, is_number, joined, number, show, with_interval
from memsweep.stability.verdict.trend import Slope, slope_weights

SMALLEST_SIZES = 3
"""Sizes of a trend: between two, any two values make a line."""
FRESH_SEEDS = 6
"""Fresh seeds from which on a median has a 95 % interval (``selection_bias.median_interval``)."""
CONFIRM_SEEDS = 10
"""Fresh seeds that the advice asks for: studies of memsweep have as many."""
_MOST_CELLS = 4  # cells whose settings a sentence names
_LETTERS = {"width": "m", "horizon": "T"}


def tunes_many(searched: Searched) -> bool:
    """Whether a search tunes many models, each at one size."""
    shades = [searched.cells.shade(winner.cell) for winner in first_winners(searched)]
    return len(shades) > _MOST_CELLS and not all(map(is_number, shades))


def first_winners(searched: Searched) -> list[Winner]:
    """The best of each cell."""
    return [winner for winner in searched.winners if winner.rank == 1]


def search_sentence(searched: Searched) -> str:
    """What was asked of the searched fields: their best values, and whether they move with the size.

    Empty without a winner. Of several objectives a winner is one of a front, which no trend follows from.
    """
    first = first_winners(searched)
    if not first:
        return ""
    sizes = {searched.cells.shade(winner.cell) for winner in first}
    fields = [field for field in searched.history.space if _is_positive(searched, field)]
    fronted = any(winner.front > 1 for winner in first)
    if fields and not fronted and len(sizes) > 1 and all(map(is_number, sizes)):
        return " ".join(_moves(searched, first, field) for field in fields[:2])
    if len(first) == 1:
        return _only_winner(searched, *first)
    named = [f"{winner.settings} for `{searched.cells.name(winner.cell)}`{_standing(winner)}" for winner in first]
    more = f" and {len(named) - _MOST_CELLS} more cells" if len(named) > _MOST_CELLS else ""
    what = "settings on the Pareto fronts" if fronted else "the best settings"
    text = f"{what} are {joined(named[:_MOST_CELLS])}{more}"
    return as_sentences([text if searched.fresh else f"on the seeds that chose them, {text}"])


def _standing(winner: Winner) -> str:
    """`` (one of 3 on its front; fits its target in 0 of 3 seeds)``: what keeps a winner from being the best alone."""
    said = [f"one of {winner.front} on its front"] if winner.front > 1 else []
    said += [_equal(winner)] if winner.equal else []
    said += [text] if (text := misfit(winner)) else []
    return f" ({'; '.join(said)})" if said else ""


def _equal(winner: Winner) -> str:
    """``2 other suggestions have its value in the search``."""
    return (
        f"{counted(winner.equal, 'other suggestion')} {'has' if winner.equal == 1 else 'have'} its value in the search"
    )


def lacking(searched: Searched) -> str:
    """The override of ``memsweep extend`` by which winners get intervals on fresh seeds; empty where they have them."""
    first = first_winners(searched)
    sizes = {searched.cells.shade(winner.cell) for winner in first}
    lacks = first and not _is_confirmed(first) and len(sizes) >= SMALLEST_SIZES
    return f"confirm.seeds={CONFIRM_SEEDS}" if lacks else ""


def _is_confirmed(first: Sequence[Winner]) -> bool:
    """Whether every winner has an interval on fresh seeds."""
    return all(winner.worth[0].seeds >= FRESH_SEEDS for winner in first)


def exponent(searched: Searched, winners: Sequence[Winner], field: str) -> Slope:
    """The exponent of a field's best value in the size, over all sizes.

    Its range is that of all exponents whose values lie between the suggestions that do worse than the winner.

    Args:
        searched: the search.
        winners: of cells that differ in their size alone, at least two.
        field: positive everywhere.
    """
    sizes = np.array([float(searched.cells.shade(winner.cell)) for winner in winners])
    weights = slope_weights(sizes)
    best = np.log([float(winner.member.suggestion.values[field]) for winner in winners])
    low, high = np.log(np.array([searched.bracket(winner, field) for winner in winners])).T
    return Slope(
        estimate=float(weights @ best),
        low=float(np.where(weights > 0, weights * low, weights * high).sum()),
        high=float(np.where(weights > 0, weights * high, weights * low).sum()),
    )


def _is_positive(searched: Searched, field: str) -> bool:
    """Whether all values that may be suggested are numbers above 0, so that a power of the size may describe them."""
    return all(is_number(end) and end > 0 for end in searched.history.space[field].ends)


def _only_winner(searched: Searched, winner: Winner) -> str:
    seeds = winner.worth[0].seeds
    values = []
    for one in winner.worth:
        known = one.values
        said = with_interval(known.confirmed, known.low, known.high) if seeds else figure(known.search)
        values.append(f"{last(one.objective)} {said}")
    count = len(searched.history.suggestions)
    which = f"One of {winner.front} on the Pareto front" if winner.front > 1 else "The best"
    which = f"One of the {winner.equal + 1} best" if winner.equal else which
    where = f"on {counted(seeds, 'fresh seed')}" if seeds else "on the seeds that chose it, which flatter it"
    missed = f"; {_equal(winner)}" if winner.equal else ""
    missed += f"; it {text}" if (text := misfit(winner)) else ""
    return f"{which} of {counted(count, 'suggestion')} is {winner.settings}, with {joined(values)} {where}{missed}."


def _moves(searched: Searched, first: Sequence[Winner], field: str) -> str:
    """``From width 4 to 16 the best learning rate falls under `direct` (m^−1.10, possible: −1.50 to −0.60).``"""
    lines: dict[str, list[Winner]] = {}
    for winner in sorted(first, key=lambda winner: float(searched.cells.shade(winner.cell))):
        lines.setdefault(searched.cells.picture(winner.cell), []).append(winner)
    sizes = sorted({float(searched.cells.shade(winner.cell)) for winner in first})
    size, name = last(searched.cells.hue), last(field)
    name += " of the last stage" if any(winner.turns for winner in first) else ""
    if len(sizes) < SMALLEST_SIZES:
        return (
            f"Not resolved: whether the best {name} moves with {size}. {len(sizes)} {size}s: a trend needs "
            f"{SMALLEST_SIZES}."
        )
    between = f"from {size} {show(sizes[0])} to {show(sizes[-1])}"
    if not _is_confirmed(first):
        return f"Not resolved: whether the best {name} moves {between}. {_lacks(searched, first)}."
    moving, staying, short = [], [], []
    for line, winners in lines.items():
        count = len({searched.cells.shade(winner.cell) for winner in winners})
        if count < SMALLEST_SIZES:
            short.append(f"`{line}` has winners at {counted(count, size)}: a trend needs {SMALLEST_SIZES}")
            continue
        found = exponent(searched, winners, field)
        text = f"({_LETTERS.get(size, size)}^{_possible(found)})"
        under = f" under `{line}`" if len(lines) > 1 else ""
        if found.high < 0.0 or found.low > 0.0:
            moving.append(f"{'falls' if found.high < 0.0 else 'rises'}{under} {text}")
        else:
            staying.append((under, text))
    if not moving:
        found_so = "; ".join([*(f"{text.strip('()')}{under}" for under, text in staying), *short])
        open_ = f"{_lacks(searched, first)}{' leave it open' if staying else ''}"
        return f"Not resolved: whether the best {name} moves {between} ({found_so}). {open_}."
    parts = [f"{between[:1].upper()}{between[1:]} the best {name} {joined(moving)}"]
    if staying:
        parts.append(f"no trend is resolved{joined([f'{under} {text}' for under, text in staying])}")
    return f"{'; '.join([*parts, *short])}."


def _possible(found: Slope) -> str:
    """``−1.10, possible: −1.50 to −0.60``: the range of what was suggested, which is no confidence interval."""
    return f"{number(found.estimate)}, possible: {number(found.low)} to {number(found.high)}"


def _lacks(searched: Searched, first: Sequence[Winner]) -> str:
    """``4 suggestions a cell, none retrained on fresh seeds``."""
    least = min(len(searched.of_cell(winner.cell)) for winner in first)
    seeds = [winner.worth[0].seeds for winner in first]
    said = f"{counted(least, 'suggestion')} a cell"
    if not any(seeds):
        return f"{said}, none retrained on fresh seeds"
    if not all(seeds):
        return f"{said}, {sum(map(bool, seeds))} of {len(seeds)} winners retrained on fresh seeds"
    few = f", {counted(min(seeds), 'fresh seed')}: an interval needs {FRESH_SEEDS}" if min(seeds) < FRESH_SEEDS else ""
    return f"{said}{few}"
