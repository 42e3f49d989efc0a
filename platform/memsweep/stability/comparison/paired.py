"""Paired comparisons of cells: seeds are blocks, and all tests of a study share one error rate.

A claim says that one cell's metric is greater (or less) than another's. The replicas of both cells with the same seed
are a pair. Test: Wilcoxon's signed ranks, one-sided, with the exact null distribution (each difference is as likely
to be positive as negative), ties included. Metrics that vary by factors are compared on a logarithmic scale: there a
difference is a ratio, and the symmetry that the ranks of differences stand on holds where errors multiply. Holm's
correction over all tests of a study: the chance that any claim is supported which does not hold where it was measured
is at most ``LEVEL``.

A claim is *contradicted* where its opposite would be supported if it stood in its place, by the same test with the same
correction. So one pair of cells supports a claim exactly where it contradicts the opposite. If all cells are alike, the
chance that any claim is supported or contradicted is at most twice ``LEVEL``.

A claim that is neither is *underpowered* where more seeds would decide it, if the effect is as large as it looks. The
seeds that it needs: the smallest n of which 2^-n, the smallest p-value that there is, reaches the level at which
Holm's procedure stopped, and of which the one-sided t test of 3 n / pi pairs (Wilcoxon's asymptotic efficiency for
normal differences is 3 / pi) has ``POWER`` at the observed effect, by the noncentral t distribution. It is *not
supported* where the differences point the other way, or need more than ``MOST_SEEDS``.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from memsweep.config.schema.claims import LESS
from memsweep.config.schema.search import MAX, METRICS, MIN
from memsweep.stability.comparison.differences import ROUNDING
from memsweep.stability.comparison.metrics import POSITIVE, SeedValue
from memsweep.stability.comparison.signed_rank import MOST_SEEDS, hodges_lehmann, seeds_needed, signed_rank

LEVEL = 0.05
"""Chance that any of a study's claims is supported although its two sides are alike."""


class Support(enum.StrEnum):
    """What a study says of a claim."""

    SUPPORTED = "supported"
    SUPPORTED_IN_PART = "supported where measured"  # of a claim: some of its pairs of cells are not measured
    CONTRADICTED = "contradicted"
    NOT_SUPPORTED = "not supported"
    UNDERPOWERED = "underpowered"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class PairTest:
    """One cell against another, before the correction for the other tests.

    Attributes:
        n: pairs.
        ties: pairs without a difference: equal within rounding, two radii above the grid, two diverged replicas,
            overlapping bounds.
        left, right: medians over the pairs; of a censored radius, its ``SeedValue.value``.
        ratio: whether effect and interval are ratios left / right; else they are differences left - right.
        effect: Hodges-Lehmann estimate.
        low, high: its 95 % interval, exact for symmetric differences; open where the pairs are too few for one.
        standardized: mean over standard deviation of the differences in the claim's direction; nan below two pairs.
        p: one-sided; 1 without pairs.
        against: that of the opposite claim.
    """

    n: int
    ties: int
    left: float
    right: float
    ratio: bool
    effect: float
    low: float
    high: float
    standardized: float
    p: float
    against: float


@dataclass(frozen=True)
class CorrectedTest:
    """A test among all tests of its study.

    Attributes:
        test: as measured.
        adjusted: p-value under Holm's correction.
        against: that of the opposite claim, if it stood in the place of this one.
        support: what follows.
        more_seeds: pairs that are missing where it is underpowered; 0 else.
    """

    test: PairTest
    adjusted: float
    against: float
    support: Support
    more_seeds: int


def paired_test(metric: str, direction: str, left: Iterable[SeedValue], right: Iterable[SeedValue]) -> PairTest:
    """Test whether the left side's metric is ``greater`` or ``less`` than the right's, seed by seed.

    Seeds of one side alone are left out. A metric that a diverged seed lacks (nan) counts as the worst value; for
    a task's own metric, whose good direction is unknown, the pair is left out.
    """
    pairs = _pairs(metric, left, right)
    ratio = metric in POSITIVE and not any(side.value < 0.0 for pair in pairs for side in pair)
    differences = np.array([_difference(a.bounds, b.bounds, ratio) for a, b in pairs])
    claimed = -differences if direction == LESS else differences
    effect, low, high = (_scaled(value, ratio) for value in hodges_lehmann(differences))
    return PairTest(
        n=len(pairs),
        ties=int((differences == 0).sum()),
        left=_median([a.value for a, _ in pairs]),
        right=_median([b.value for _, b in pairs]),
        ratio=ratio,
        effect=effect,
        low=low,
        high=high,
        standardized=_standardized(claimed),
        p=signed_rank(claimed),
        against=signed_rank(-claimed),
    )


def correct(tests: Sequence[PairTest]) -> list[CorrectedTest]:
    """All tests of a study, in the order given, with Holm's correction; tests without pairs do not count."""
    measured = [index for index, test in enumerate(tests) if test.n]
    own = [tests[index].p for index in measured]
    adjusted = dict(zip(measured, holm(own), strict=True))
    against = {
        index: holm([*own[:place], tests[index].against, *own[place + 1 :]])[place]
        for place, index in enumerate(measured)
    }
    left_over = sum(value > LEVEL for value in adjusted.values())
    level = LEVEL / max(left_over, 1)
    return [
        CorrectedTest(test, adjusted[index], against[index], *_decide(test, adjusted[index], against[index], level))
        if index in adjusted
        else CorrectedTest(test, 1.0, 1.0, Support.NOT_MEASURED, 0)
        for index, test in enumerate(tests)
    ]


def combine(parts: Sequence[CorrectedTest]) -> tuple[Support, int]:
    """A claim that speaks of several pairs of cells holds if all tests do; and the seeds that it still needs.

    One pair that contradicts it is enough against it. Pairs that are not measured say nothing, for or against: a claim
    that all others support is supported where measured.
    """
    supports = {part.support for part in parts}
    if supports == {Support.SUPPORTED, Support.NOT_MEASURED}:
        return Support.SUPPORTED_IN_PART, 0
    for support in (Support.CONTRADICTED, Support.NOT_SUPPORTED, Support.UNDERPOWERED, Support.SUPPORTED):
        if support in supports:
            return support, max(part.more_seeds for part in parts) if support is Support.UNDERPOWERED else 0
    return Support.NOT_MEASURED, 0


def support_text(support: Support, more_seeds: int) -> str:
    """``underpowered: needs 7 more seeds``."""
    plural = "" if more_seeds == 1 else "s"
    return f"{support}: needs {more_seeds} more seed{plural}" if support is Support.UNDERPOWERED else str(support)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (Scand. J. Statist. 6, 1979), in the order given."""
    values = np.asarray(p, float)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)) if len(values) else values
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(steps, 1.0)
    return [float(value) for value in adjusted]


def _decide(test: PairTest, adjusted: float, against: float, level: float) -> tuple[Support, int]:
    if adjusted <= LEVEL:
        return Support.SUPPORTED, 0
    if against <= LEVEL:
        return Support.CONTRADICTED, 0
    if test.standardized <= 0.0:
        return Support.NOT_SUPPORTED, 0
    needed = seeds_needed(test.standardized, level, 1.0 - test.ties / test.n)
    return (Support.NOT_SUPPORTED, 0) if needed > MOST_SEEDS else (Support.UNDERPOWERED, max(needed - test.n, 1))


def _pairs(metric: str, left: Iterable[SeedValue], right: Iterable[SeedValue]) -> list[tuple[SeedValue, SeedValue]]:
    others = {value.seed: _worst_for_nan(metric, value) for value in right}
    pairs = [(_worst_for_nan(metric, value), others[value.seed]) for value in left if value.seed in others]
    return [pair for pair in pairs if not any(math.isnan(side.value) for side in pair)]


def _worst_for_nan(metric: str, value: SeedValue) -> SeedValue:
    worst = {MIN: math.inf, MAX: -math.inf}.get(METRICS.get(metric, ""), math.nan)
    return SeedValue(value.seed, worst) if math.isnan(value.value) else value


def _difference(left: tuple[float, float], right: tuple[float, float], ratio: bool) -> float:
    """The smallest difference that two values between these bounds may have: 0 where they overlap, within rounding.

    Changing the sides changes its sign alone, which is all that the test stands on.
    """
    (low, high), (other_low, other_high) = (_on_scale(bounds, ratio) for bounds in (left, right))
    apart = low - other_high if low > other_high else high - other_low if high < other_low else 0.0
    known = [abs(end) for end in (low, high, other_low, other_high) if math.isfinite(end)]
    size = 1.0 if ratio else max(known, default=0.0)
    return 0.0 if abs(apart) <= ROUNDING * size else apart


def _on_scale(bounds: tuple[float, float], ratio: bool) -> tuple[float, float]:
    if not ratio:
        return bounds
    low, high = (math.log(value) if value > 0.0 else -math.inf for value in bounds)
    return low, high


def _scaled(value: float, ratio: bool) -> float:
    return float(np.exp(np.clip(value, -np.inf, 700.0)) if value != math.inf else value) if ratio else value


def _standardized(claimed: np.ndarray) -> float:
    if len(claimed) < 2:
        return math.nan if (claimed > 0).all() else 0.0
    finite = np.abs(claimed[np.isfinite(claimed)])
    most = float(finite.max(initial=0.0)) or 1.0  # an infinite difference counts like the largest known one
    clipped = np.clip(claimed, -most, most)
    mean, spread = float(clipped.mean()), float(clipped.std(ddof=1))
    return mean / spread if spread > 0.0 else math.copysign(math.inf, mean) if mean else 0.0


def _median(values: Sequence[float] | np.ndarray) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.median(values)) if len(values) else math.nan
