"""Wilcoxon's signed-rank test of paired differences: its p-value, the interval that belongs to it, and its power.

The null hypothesis: whatever the size of a difference, it is as likely to be positive as negative.
"""

from __future__ import annotations

import functools
import math

import numpy as np

POWER = 0.8
CONFIDENCE = 0.95
MOST_SEEDS = 1000
"""Pairs; an effect that needs more is none."""
MOST_EXACT = 200
"""Pairs up to which the null distribution is exact; beyond, it is normal to more digits than matter."""
_EFFICIENCY = 3.0 / math.pi


def signed_rank(differences: np.ndarray) -> float:
    """P(rank sum of the positive differences at least as large), if each sign is as likely; zeros are left out."""
    import scipy.stats

    nonzero = differences[differences != 0]
    if not nonzero.size:
        return 1.0
    if nonzero.size > MOST_EXACT:
        test = scipy.stats.wilcoxon(nonzero, alternative="greater", correction=True, method="asymptotic")
        return float(test.pvalue)
    doubled = np.rint(2 * scipy.stats.rankdata(np.abs(nonzero))).astype(int)  # middle ranks of ties are halves
    chances = _null(doubled)
    return float(min(1.0, chances[int(doubled[nonzero > 0].sum()) :].sum()))


def _null(ranks: np.ndarray) -> np.ndarray:
    """The distribution of the sum of those ranks whose coin shows heads: chances of 0, 1, ..., sum of all."""
    chances = np.zeros(int(ranks.sum()) + 1)
    chances[0] = 1.0
    reach = 1
    for rank in ranks:
        shifted = chances[:reach].copy()
        chances[:reach] *= 0.5
        chances[rank : rank + reach] += 0.5 * shifted
        reach += int(rank)
    return chances


def hodges_lehmann(differences: np.ndarray) -> tuple[float, float, float]:
    """The median of all pairs' means with its 95 % interval: the shifts that the two-sided test does not refuse."""
    n = len(differences)
    if not n:
        return math.nan, -math.inf, math.inf
    first, second = np.triu_indices(n)
    with np.errstate(invalid="ignore"):
        means = (differences[first] + differences[second]) / 2
        # a pair of which one is infinitely better and the other infinitely worse shows no difference
        walsh = np.sort(np.where(np.isnan(means), 0.0, means))
        middle = float(np.median(walsh))
    outside = _least_likely(n)
    bounds = (walsh[outside - 1], walsh[-outside]) if outside else (-math.inf, math.inf)
    return 0.0 if math.isnan(middle) else middle, float(bounds[0]), float(bounds[1])


def seeds_needed(standardized: float, level: float, untied: float = 1.0) -> int:
    """Pairs of which a test at this level has ``POWER``, and of which it can reach the level at all.

    Args:
        standardized: mean over standard deviation of the differences, above 0; nan where it is not known: then only
            the second condition counts.
        level: of the one-sided test.
        untied: share of pairs that are no ties.

    Returns:
        At most ``MOST_SEEDS`` + 1, which stands for all that are more.
    """
    least = math.ceil(math.ceil(-math.log2(level) - 1e-9) / untied)
    low, high = max(least, 2), MOST_SEEDS + 1
    if math.isnan(standardized) or low >= high:
        return min(low, high)
    while low < high:  # power grows with the number of pairs
        middle = (low + high) // 2
        low, high = (low, middle) if _power(standardized, middle, level) >= POWER else (middle + 1, high)
    return low


def _power(standardized: float, n: int, level: float) -> float:
    """Of the one-sided t test of as many pairs as are worth n of them under the signed-rank test."""
    import scipy.special

    if math.isinf(standardized):
        return 1.0
    worth = _EFFICIENCY * n
    limit = scipy.special.stdtrit(worth - 1.0, 1.0 - level)
    return 1.0 - float(scipy.special.nctdtr(worth - 1.0, standardized * math.sqrt(worth), limit))


@functools.cache
def _least_likely(n: int) -> int:
    """How many sums of ranks at each end are together less likely than (1 - ``CONFIDENCE``) / 2."""
    import scipy.stats

    tail = (1.0 - CONFIDENCE) / 2
    if n > MOST_EXACT:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        return int(n * (n + 1) / 4 - 0.5 - spread * float(scipy.stats.norm.isf(tail)))
    return int(np.searchsorted(np.cumsum(_null(np.arange(1, n + 1))), tail, side="right"))
