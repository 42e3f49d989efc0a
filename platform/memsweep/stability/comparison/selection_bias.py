"""The selection bias of a search: how much worse its winners are on seeds and data that were not used to select them.

The best of many noisy values is too good by chance. Its confirmed value, over fresh seeds, has no such bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memsweep.config.schema.search import MAX
from memsweep.stability.comparison.signed_rank import CONFIDENCE

SMALLEST_CELLS = 3
"""Cells without which the mean ratio has no interval."""


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
    def ratio(self) -> float:
        """The worse of the two values over the better one, or its inverse where the confirmed value is the better one.

        Above 1 where the confirmed value is worse; nan where a value is infinite or not positive.
        """
        less, more = sorted((self.search, self.confirmed))
        if not (less > 0.0 and math.isfinite(more)):
            return math.nan
        return more / less if self.gap > 0.0 else less / more


@dataclass(frozen=True)
class SearchBias:
    """Confirmed values against those of the search, over the cells of a study.

    Values near zero differ by large factors either way, and an arithmetic mean of ratios is above 1 where neither side
    is worse. So their logarithms are averaged, and beside the size of the bias stands whether there is one.

    Attributes:
        ratio: geometric mean over cells of ``Gap.ratio``; above 1 where confirmed values are worse.
        low, high: its 95 % interval, Student's t over the logarithms; nan below ``SMALLEST_CELLS``.
        cells: how many had a ratio.
        left_out: how many had none: a value is 0, negative or infinite.
        worse, better: in how many the confirmed value is worse, and better.
        p: of the sign test, two-sided: the chance of so unequal a split if both are as likely; 1 without any.
    """

    ratio: float
    low: float
    high: float
    cells: int
    left_out: int
    worse: int
    better: int
    p: float


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


def search_bias(gaps: Sequence[Gap]) -> SearchBias:
    """How confirmed values compare with those of the search, over cells.

    Args:
        gaps: of the winners, one of each cell.
    """
    import scipy.special
    import scipy.stats

    worse, better = (sum(sign * gap.gap > 0.0 for gap in gaps) for sign in (1.0, -1.0))
    p = min(1.0, 2.0 * float(scipy.stats.binom.cdf(min(worse, better), worse + better, 0.5)))
    logs = np.log([gap.ratio for gap in gaps])
    logs = logs[np.isfinite(logs)]
    n, mean, reach = len(logs), float(logs.mean()) if len(logs) else math.nan, math.nan
    if n >= SMALLEST_CELLS:
        reach = float(scipy.special.stdtrit(n - 1, (1.0 + CONFIDENCE) / 2) * logs.std(ddof=1) / math.sqrt(n))
    ends = math.exp(mean - reach), math.exp(mean + reach)
    return SearchBias(math.exp(mean), *ends, n, len(gaps) - n, worse, better, p)


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
