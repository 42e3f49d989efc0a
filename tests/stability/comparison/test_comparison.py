"""Paired comparisons against known truths: exact p-values, the error rate of a study, power at the seeds asked for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from memsweep.stability.comparison.metrics import SeedValue
from memsweep.stability.comparison.paired import (
    LEVEL,
    CorrectedTest,
    PairTest,
    Support,
    combine,
    correct,
    holm,
    paired_test,
    support_text,
)
from memsweep.stability.comparison.signed_rank import hodges_lehmann, seeds_needed, signed_rank
from memsweep.stability.verdict.radius import ABOVE, BELOW, BETWEEN


def seeds(values: Sequence[float], censored: str = "", beyond: float | None = None) -> list[SeedValue]:
    return [SeedValue(seed, float(value), censored, beyond) for seed, value in enumerate(values)]


def compared(differences: Sequence[float], direction: str = "greater") -> PairTest:
    """A metric on a linear scale whose pairs have these differences."""
    return paired_test("margin", direction, seeds(differences), seeds([0.0] * len(differences)))


def standardized(mean: float, n: int) -> np.ndarray:
    """So many differences with exactly this mean and standard deviation 1."""
    shape = scipy.stats.norm.ppf((np.arange(n) + 0.5) / n)
    return mean + (shape - shape.mean()) / shape.std(ddof=1)


@settings(max_examples=40)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_the_p_value_counts_all_signs_with_ties_and_zeros(differences: list[int]) -> None:
    there = np.array([value for value in differences if value], float)
    ranks = scipy.stats.rankdata(np.abs(there))
    seen = ranks[there > 0].sum()
    sums = [
        ranks[list(chosen)].sum()
        for r in range(len(there) + 1)
        for chosen in itertools.combinations(range(len(there)), r)
    ]
    expected = np.mean([value >= seen for value in sums]) if there.size else 1.0
    assert signed_rank(np.array(differences, float)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [1, 5, 12, 50])
def test_the_p_value_is_scipys_where_nothing_is_tied(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.3, 1.0, n)
    wanted = scipy.stats.wilcoxon(differences, alternative="greater", method="exact").pvalue
    assert signed_rank(differences) == pytest.approx(wanted, rel=1e-10)


def test_holm_by_a_worked_example() -> None:
    # sorted 0.005, 0.01, 0.03, 0.04, times 4, 3, 2, 1: 0.02, 0.03, 0.06, and 0.04, which may not fall below 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(-3, 9), min_size=7, max_size=7), min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_a_claim_is_supported_exactly_where_its_opposite_is_contradicted(
    studies: list[list[int]], turned: list[bool]
) -> None:
    """Whatever else the study claims, both in its place and beside it."""
    signs = [("less", "greater")[turn] for turn in turned]
    tests = [compared(differences, sign) for differences, sign in zip(studies, signs, strict=False)]
    opposite = compared(studies[0], "less" if signs[0] == "greater" else "greater")
    (claim, *_), (in_place, *_), beside = correct(tests), correct([opposite, *tests[1:]]), correct([*tests, opposite])
    assert claim.adjusted == in_place.against
    for one, other in ((claim, in_place), (beside[0], beside[-1])):
        assert (one.support is Support.SUPPORTED) == (other.support is Support.CONTRADICTED)
        assert (one.support is Support.CONTRADICTED) == (other.support is Support.SUPPORTED)


@pytest.mark.parametrize(
    ("true_claims", "claims", "studies"),
    [
        (0, 3, 150),
        (2, 4, 100),
        pytest.param(0, 8, 3000, marks=[pytest.mark.drill, pytest.mark.long]),
        pytest.param(4, 8, 3000, marks=[pytest.mark.drill, pytest.mark.long]),
    ],
)
def test_one_study_of_twenty_supports_a_claim_that_does_not_hold(true_claims: int, claims: int, studies: int) -> None:
    """And as few contradict one whose two sides are alike."""
    random = np.random.default_rng(true_claims)
    wrong = contradicted = 0
    for _ in range(studies):
        shared = random.normal(size=10)  # all cells are compared with one other: the tests are not independent
        shifts = [2.0 if claim < true_claims else 0.0 for claim in range(claims)]
        tests = [
            paired_test(
                "validation_loss", "greater", seeds(np.exp(random.normal(size=10) + shift)), seeds(np.exp(shared))
            )
            for shift in shifts
        ]
        found = [each.support for each in correct(tests)]
        wrong += Support.SUPPORTED in found[true_claims:]
        contradicted += Support.CONTRADICTED in found
    for errors in (wrong, contradicted):
        assert 0 < errors <= scipy.stats.binom.ppf(0.999, studies, LEVEL)  # a bound that can be broken


@pytest.mark.parametrize(("effect", "tests"), [(0.5, 1), (0.8, 1), (1.2, 4), (1.2, 20), (2.0, 20)])
def test_the_seeds_that_it_asks_for_have_the_power_that_it_says(effect: float, tests: int) -> None:
    """Its answer for an effect, checked on normal differences that have this effect."""
    random, level, repetitions = np.random.default_rng(7), LEVEL / tests, 500
    n = seeds_needed(effect, level)
    power = np.mean([signed_rank(random.normal(effect, 1.0, n)) <= level for _ in range(repetitions)])
    assert 0.74 <= power <= 0.87


def test_the_interval_is_the_shifts_that_the_two_sided_test_keeps() -> None:
    differences = np.random.default_rng(3).normal(1.0, 2.0, 11)
    _, low, high = hodges_lehmann(differences)

    def kept(shift: float) -> bool:
        return min(signed_rank(differences - shift), signed_rank(shift - differences)) > 0.025

    edge = 1e-9
    assert [kept(low - edge), kept(low + edge), kept(high - edge), kept(high + edge)] == [False, True, True, False]
    assert hodges_lehmann(np.array([1.0, 3.0, 8.0]))[0] == pytest.approx((3.0 + 4.5) / 2)  # of 1, 2, 3, 4.5, 5.5, 8
    assert hodges_lehmann(np.ones(5))[1:] == (-math.inf, math.inf)  # 2/32 is more than 5 %
    assert hodges_lehmann(np.array([-math.inf, math.inf]))[0] == 0.0


def test_what_is_said_of_one_claim() -> None:
    supported, against, underpowered, hopeless, tied, nothing = (
        correct([compared(differences)])[0]
        for differences in ([1, 2, 3, 4, 5], [-1, -2, 3, -4], [1, 2, 3, 4], standardized(0.02, 30), [0, 0, 0], [])
    )
    assert (supported.support, supported.adjusted) == (Support.SUPPORTED, 1 / 32)
    assert against.support is hopeless.support is tied.support is Support.NOT_SUPPORTED
    assert (underpowered.support, underpowered.more_seeds) == (Support.UNDERPOWERED, 1)
    assert support_text(underpowered.support, underpowered.more_seeds) == "underpowered: needs 1 more seed"
    assert nothing.support is Support.NOT_MEASURED
    assert correct([compared([-1, -2, -3, -4, -5], "less")])[0].support is Support.SUPPORTED
    assert correct([compared([1, 2, 3, 4, 5], "less")])[0].support is Support.CONTRADICTED
    assert correct([compared([1.0])])[0].more_seeds == 4  # a single pair says nothing of the spread


def test_a_claim_of_several_cells_holds_if_all_its_tests_do() -> None:
    test = compared([1, 2, 3, 4, 5])

    def parts(*supports: tuple[Support, int]) -> list[CorrectedTest]:
        return [CorrectedTest(test, 0.5, 0.5, support, more) for support, more in supports]

    yes, no, few, many, none = (
        (Support.SUPPORTED, 0),
        (Support.NOT_SUPPORTED, 0),
        (Support.UNDERPOWERED, 3),
        (Support.UNDERPOWERED, 9),
        (Support.NOT_MEASURED, 0),
    )
    against = (Support.CONTRADICTED, 0)
    assert combine(parts(yes, yes)) == yes
    assert combine(parts(yes, few, many)) == many
    assert combine(parts(yes, few, no)) == no
    assert combine(parts(yes, none, few)) == few
    assert combine(parts(none, yes)) == (Support.SUPPORTED_IN_PART, 0)
    assert combine(parts(none, none)) == none
    assert combine(parts(yes, none, no, against)) == against
    assert combine([]) == none


def test_censored_radii_are_half_lines() -> None:
    def one(left: SeedValue, right: SeedValue) -> PairTest:
        return paired_test("radius", "greater", [left], [right])

    above, below = SeedValue(0, 3.0, ABOVE), SeedValue(0, 0.1, BELOW)
    between, exact = SeedValue(0, 0.5, BETWEEN, 1.0), SeedValue(0, 0.7)
    assert one(above, above).ties == one(below, below).ties == one(between, exact).ties == 1
    assert one(above, exact).effect == pytest.approx(3.0 / 0.7)  # at least so much
    assert one(exact, below).effect == pytest.approx(7.0)
    assert one(SeedValue(0, 2.0), between).effect == pytest.approx(2.0)
    assert one(SeedValue(0, 0.0), SeedValue(0, 0.0)).ties == 1  # two that diverged
    assert one(exact, SeedValue(0, 0.0)).effect == math.inf
    for left, right in itertools.permutations((above, below, between, exact, SeedValue(0, 0.0)), 2):
        there, back = one(left, right).effect, one(right, left).effect
        assert there == pytest.approx(1.0 / back if back else math.inf)


def test_values_that_are_equal_within_rounding_are_ties() -> None:
    values = np.geomspace(1e-9, 1e3, 8)
    for metric in ("margin", "error"):
        test = paired_test(metric, "greater", seeds(values * (1 + 3e-16)), seeds(values))
        assert (test.ties, test.p, test.effect) == (8, 1.0, float(test.ratio))
        assert paired_test(metric, "greater", seeds(values * (1 + 1e-6)), seeds(values)).ties == 0


def test_pairs_are_seeds_and_a_missing_figure_is_the_worst() -> None:
    left = [SeedValue(3, 1.0), SeedValue(1, 5.0), SeedValue(7, 2.0)]
    right = [SeedValue(1, 2.0), SeedValue(2, 9.0), SeedValue(3, 4.0)]
    test = paired_test("validation_loss", "less", left, right)
    assert (test.n, test.left, test.right, test.ratio) == (2, 3.0, 3.0, True)
    assert test.effect == pytest.approx(math.sqrt(2.5 / 4))
    lost = [SeedValue(0, math.nan), SeedValue(1, 0.5)]
    assert (
        paired_test("margin", "greater", seeds([0.1, 0.1]), lost).p == 0.5
    )  # ranks 2 (infinite) and 1, with -: 2 of 4
    assert paired_test("test_accuracy", "greater", seeds([0.1, 0.1]), lost).n == 1  # who knows what is good
    errors = paired_test("error", "less", seeds([1.0, math.inf, 1.0]), seeds([math.inf, math.inf, 3.0]))
    assert (errors.n, errors.ties, errors.p) == (3, 1, 0.25)
