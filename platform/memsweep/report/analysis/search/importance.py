"""How much of a search's objective each searched field explains by itself.

Optuna's evaluators (PED-ANOVA, fANOVA) share out 100 % whatever the noise: of 16 suggestions of an objective that is
noise alone, they give one field 84 and 54 %, without an interval, and know neither cells nor conditional fields. Here
the noise keeps its share, and an interval holds 0 where a field explains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from memsweep.report.analysis.search.searched import Searched
from memsweep.report.naming.numbers import is_number
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

_PARTS, _LEAST = 3, 8
"""Parts of a field's values that are compared; suggestions from which on a share is more than chance."""
_TAIL = 0.025


@dataclass(frozen=True)
class Importance:
    """The share of the variance of an objective's ranks that lies between parts of one field's values.

    Attributes:
        field: its dotted path.
        share: in [0, 1], without what chance alone would give (omega squared); at least 0.
        low, high: its 95 % interval, by the noncentral F distribution.
        suggestions: trained to the end, of all cells.
    """

    field: str
    share: float
    low: float
    high: float
    suggestions: int


def importances(searched: Searched, place: int) -> list[Importance]:
    """The fields of a search of several, the most important first; none where too few suggestions were trained.

    Ranks are of the suggestions of one cell: a cell's own level is no effect of a field. The values of a field of many
    numbers fall into thirds, so that a best value in the middle counts, too.

    Args:
        searched: a search with its results.
        place: of the objective.
    """
    members, ranks = list[SuggestionRecord](), list[float]()
    for cell in range(len(searched.cells.values)):
        done = [one for one in searched.of_cell(cell) if one.state is SuggestionState.DONE and one.values]
        members += done
        values = [one.values[place] for one in done if one.values]
        ranks += [float(rank) / (len(done) + 1) for rank in stats.rankdata(values)]
    if len(searched.history.space) < 2 or len(members) < _LEAST:
        return []
    found = [_importance(field, members, np.array(ranks)) for field in searched.history.space]
    return sorted((one for one in found if one is not None), key=lambda one: -one.share)


def _importance(field: str, members: Sequence[SuggestionRecord], ranks: np.ndarray) -> Importance | None:
    """None for a field with one value only, or that few suggestions have."""
    has = np.array([field in one.suggestion.values for one in members])
    parts = _parts([one.suggestion.values[field] for one in members if field in one.suggestion.values])
    groups = [ranks[has][parts == part] for part in np.unique(parts)]
    count, between = int(has.sum()), len(groups) - 1
    within = count - len(groups)
    if between < 1 or count < _LEAST or within < 2:
        return None
    mean, spread = ranks[has].mean(), sum(((group - group.mean()) ** 2).sum() for group in groups)
    ratio = sum(len(group) * (group.mean() - mean) ** 2 for group in groups) / between / max(spread / within, 1e-12)
    share = max(0.0, between * (ratio - 1) / (between * (ratio - 1) + count))
    low, high = (_share_at(ratio, between, within, count, tail) for tail in (1 - _TAIL, _TAIL))
    return Importance(field, share, low, high, count)


def _parts(values: Sequence[object]) -> np.ndarray:
    """The part that each value belongs to: itself, or of many numbers its third."""
    if len({*map(str, values)}) <= _PARTS or not all(map(is_number, values)):
        return np.array([str(value) for value in values])
    numbers = np.array(values, float)
    return np.digitize(numbers, np.quantile(numbers, [1 / _PARTS, 2 / _PARTS]))


def _share_at(ratio: float, between: int, within: int, count: int, tail: float) -> float:
    """The share under which an F ratio as large as this one has a probability of ``1 - tail``; 0 where none has."""

    def beyond(size: float) -> float:
        return (
            float(stats.ncf.cdf(ratio, between, within, size) if size else stats.f.cdf(ratio, between, within)) - tail
        )

    if beyond(0.0) <= 0:
        return 0.0
    top = 10.0
    while beyond(top) > 0 and top < 1e6:
        top *= 2
    size = brentq(beyond, 0.0, top) if beyond(top) <= 0 else math.inf
    return size / (size + count) if math.isfinite(size) else 1.0
