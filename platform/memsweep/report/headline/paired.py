"""How far models are behind the best one, seed by seed: the difference, its interval, and whether a test shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from memsweep.errors import counted
from memsweep.report.analysis.losses import LossRow, Quantity, is_equal, tied
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import figure, quoted
from memsweep.stability.comparison.metrics import SeedValue
from memsweep.stability.comparison.paired import LEVEL, PairTest, holm, paired_test

_MOST = 3  # models that a sentence names


def paired_sentence(best: LossRow, others: Sequence[LossRow], by: Quantity, labels: Labels) -> str:
    """``Paired by seed, against the best of these seeds (signed ranks, two-sided): `gru` 2 points behind (p = 0.004).``

    Wilcoxon's test of each model against the best one; the interval is that of the median difference, and needs 6
    seeds. The same seeds have found which is best. So tests are two-sided, and Holm's correction counts all pairs of
    models, of which any could have been asked for: of alike models, some difference is resolved in at most 5 % of
    studies. Models that are equal to the best one, seed by seed, are left out, and count among the pairs. Empty where
    no other model was trained with the seeds of the best one.

    Args:
        best: the first of one task.
        others: the models behind it, in their order.
        by: what ranks them.
        labels: names of conditions.
    """
    tests = [(other, paired_test(*_as_claim(by, best), _seeds(other, by), _seeds(best, by))) for other in others]
    known = [(row, test) for row, test in tests if test.n > 1]
    parted = [row for row, _ in known if not is_equal(best, row, by)]
    if not parted:
        return ""
    pairs, needed = math.comb(len(known) + 1, 2), seeds_of_test(len(known) + 1)
    able = [
        (row, test, p)
        for (row, test), p in zip(known, _adjusted(known, pairs), strict=True)
        if row in parted and test.n >= needed
    ]
    if not able:
        return (
            f"No test parts them: paired by seed, {counted(len(parted), 'difference')} from the best "
            f"{'needs' if len(parted) == 1 else 'need'} {needed} seeds."
        )
    parts = [_part(row, test, p, by.is_share(best), labels) for row, test, p in able[:_MOST]]
    more = [f"{len(able) - _MOST} more"] if len(able) > _MOST else []
    few = len(parted) - len(able)
    more += (
        [f"{counted(few, 'more difference')} {'needs' if few == 1 else 'need'} {needed} common seeds"] if few else []
    )
    about = "signed ranks, two-sided" + (f", Holm over {pairs} pairs" if pairs > 1 else "")
    several = any(row in parted for row in tied([best, *others], by))
    against = f"{quoted([_name(best, labels)])}, a best" if several else "the best"
    return f"Paired by seed, against {against} of these seeds ({about}): {'; '.join([*parts, *more])}."


def seeds_of_test(models: int) -> int:
    """Common seeds with which the test of ``paired_sentence`` can resolve one difference among so many models.

    If one of two is better with all n seeds, its two-sided p-value is 2^(1 - n). Holm's correction counts all pairs.
    """
    return math.ceil(math.log2(2 * math.comb(models, 2) / LEVEL))


def _adjusted(known: Sequence[tuple[LossRow, PairTest]], pairs: int) -> list[float]:
    """Two-sided p-values with Holm's correction; pairs that are not tested count as alike."""
    two_sided = [min(1.0, 2 * test.p) for _, test in known]
    return holm([*two_sided, *[1.0] * (pairs - len(known))])[: len(known)]


def _as_claim(by: Quantity, best: LossRow) -> tuple[str, str]:
    """The metric and the direction in which a model behind the best one lies: losses are compared by their ratio."""
    return ("test_accuracy", "less") if by.is_share(best) else ("error", "greater")


def _seeds(row: LossRow, by: Quantity) -> list[SeedValue]:
    """None where a test of another length has other rows than there are seeds."""
    seeds, values = row.column("seed"), by.values(row)
    return (
        [SeedValue(int(s), float(v)) for s, v in zip(seeds, values, strict=True)] if len(seeds) == len(values) else []
    )


def _part(row: LossRow, test: PairTest, p: float, share: bool, labels: Labels) -> str:
    if share:
        said = f"{_points(-test.effect)} points{_ends(-test.high, -test.low, _points)} behind"
    else:
        effect = f"{figure(test.effect)}{' times the loss' if test.ratio else ''}{_ends(test.low, test.high, figure)}"
        said = effect if test.ratio else f"a loss higher by {effect}"
    open_ = "" if p <= LEVEL else ", not resolved"
    return f"{quoted([_name(row, labels)])} {said}{open_} (p = {p:.2g})"


def _name(row: LossRow, labels: Labels) -> str:
    return labels.machine(row.condition).removeprefix("rule ")


def _points(share: float) -> str:
    return f"{100 * share + 0.0:.1f}".replace("-", "−")


def _ends(low: float, high: float, text: Callable[[float], str]) -> str:
    """`` [1.0, 3.2]``; empty where the seeds are too few for an interval."""
    known = math.isfinite(low) and math.isfinite(high) and low < high
    return f" [{text(low)}, {text(high)}]" if known else ""
