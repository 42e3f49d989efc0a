"""The selection bias of a search: how much worse its winners are on seeds and data that were not used to select them.

The best of many noisy values is too good by chance. Its confirmed value, over fresh seeds, has no such bias.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from memsweep.config.schema.search import MAX
from memsweep.stability.comparison.signed_rank import CONFIDENCE

SMALLEST_CELLS = 3
"""Cells without which the mean gap has no interval."""


@dataclass(frozen=True)
class Gap:
    """A winner's value in the search and on fresh seeds.

    Attributes:
        search: median over the seeds that selected it.
        confirmed: median over the fresh seeds.
        low, high: 95 % interval of the confirmed median, from order statistics: it holds whatever the distribution;
            open (infinite) below six seeds.
        gap: confirmed against search, positive where the confirmed value is worse.
        gap_low, gap_high: interval of the gap; the search's value counts as exact, because papers report it.
    """

    search: float
    confirmed: float
    low: float
    high: float
    gap: float
    gap_low: float
    gap_high: float

    @property
    def relative(self) -> float:
        """The gap as a fraction of the search's value; nan where that is 0 or infinite."""
        return self.gap / abs(self.search) if self.search and math.isfinite(self.search) else math.nan


@dataclass(frozen=True)
class MeanGap:
    """The relative gap over the cells of a study.

    Attributes:
        mean: over cells.
        low, high: its 95 % interval, Student's t over cells; nan below ``SMALLEST_CELLS``.
        cells: how many had a relative gap.
        left_out: how many had none: a winner that diverged on most fresh seeds, or a search value of 0.
    """

    mean: float
    low: float
    high: float
    cells: int
    left_out: int


def optimism(search: Sequence[float], confirmed: Sequence[float], mode: str) -> Gap:
    """The gap of one winner.

    Args:
        search: values of the seeds that selected it (or their median alone).
        confirmed: values of the fresh seeds; a diverged one is inf (radii: 0), and nan counts as the worst.
        mode: ``min`` or ``max``, whichever is better.
    """
    sign = -1.0 if mode == MAX else 1.0
    selected, fresh = (np.sort(_worst_for_nan(values, sign)) for values in (search, confirmed))
    low, high = median_interval(fresh)
    before, after = _median(selected), _median(fresh)
    ends = sorted((_gap(before, low, sign), _gap(before, high, sign)))
    return Gap(before, after, low, high, _gap(before, after, sign), ends[0], ends[1])


def median_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Order statistics between which the median lies with 95 % confidence or more; infinite where too few."""
    import scipy.stats

    ordered = np.sort(np.asarray(values, float))
    n = len(ordered)
    tail = (1.0 - CONFIDENCE) / 2
    # the k-th smallest is above the median with the chance that fewer than k values are below it
    k = int((scipy.stats.binom.cdf(np.arange(n), n, 0.5) <= tail).sum())
    return (float(ordered[k - 1]), float(ordered[-k])) if k else (-math.inf, math.inf)


def mean_gap(gaps: Sequence[Gap], cells: Sequence[Hashable]) -> MeanGap:
    """The mean relative gap over cells.

    Args:
        gaps: of the winners.
        cells: of each winner; several winners of one cell are not independent, and count by their mean.
    """
    import scipy.special

    by_cell = {
        cell: float(np.mean([gap.relative for gap, own in zip(gaps, cells, strict=True) if own == cell]))
        for cell in dict.fromkeys(cells)
    }
    known = np.array([value for value in by_cell.values() if math.isfinite(value)])
    n, left_out = len(known), len(by_cell) - len(known)
    mean = float(known.mean()) if n else math.nan
    if n < SMALLEST_CELLS:
        return MeanGap(mean, math.nan, math.nan, n, left_out)
    reach = float(scipy.special.stdtrit(n - 1, (1.0 + CONFIDENCE) / 2) * known.std(ddof=1) / math.sqrt(n))
    return MeanGap(mean, mean - reach, mean + reach, n, left_out)


def _worst_for_nan(values: Sequence[float], sign: float) -> np.ndarray:
    array = np.asarray(values, float)
    return np.where(np.isnan(array), sign * math.inf, array)


def _median(ordered: np.ndarray) -> float:
    if not len(ordered):
        return math.nan
    low, high = (float(value) for value in ordered[[(len(ordered) - 1) // 2, len(ordered) // 2]])
    return low if low == high else (low + high) / 2  # equal infinities have no mean of their own


def _gap(search: float, confirmed: float, sign: float) -> float:
    return 0.0 if search == confirmed else sign * (confirmed - search)
