"""The next round of a study: what is chosen for an open question, and what is declared hopeless."""

from __future__ import annotations

import math
from dataclasses import replace

import decide_rates
import error_rates
import numpy as np
import one_limit
import pytest
from error_rates import AT_LIMIT, FLAT, SHRINKING, Case, Study

from memsweep.stability.verdict.judgement import DEFAULT, SMALLEST_GRID, SMALLEST_SEEDS, Trends, Verdict
from memsweep.stability.verdict.trend import LONG_RANGE, NO_SLOPE, Slope, Trend
from memsweep.studies.decide.choice import (
    EVEN,
    FREE,
    LEAST,
    NEAR,
    REPAIRED,
    ROUND,
    ROUNDS,
    Chosen,
    allotted,
    choose,
    fare_of,
    longer,
)
from memsweep.studies.decide.decisions import hopeless
from memsweep.studies.decide.forecast import chance
from memsweep.studies.decide.options import BELOW, EFFORT, LONGER, SEEDS, STEPS, Option, designs
from memsweep.studies.decide.question import HORIZON, STEP, WIDTH, Design, Obstacle, Question
from paths import ROOT

WRONG = {
    error_rates.AT_LIMIT: Verdict.UNSTABLE,
    error_rates.ONE_AT_LIMIT: Verdict.STABLE,
    error_rates.GROWING: Verdict.STABLE,
}


def question(sigma: float = 0.03, seeds: int = 5, horizons: int = 4) -> Question:
    """An open one: radii that keep their size, with much noise."""
    study = Study(Case(FLAT, "normal", sigma), np.random.default_rng(0))
    evidence = study.weigh(seeds, horizons)
    assert evidence.verdict is Verdict.INCONCLUSIVE
    design = Design(seeds, FLAT.widths, study.horizons[:horizons], FLAT.widths[-1])
    return decide_rates.question_of(evidence, design)


def cost(asked: Question, option: Option) -> float:
    repaired = 1.0 if option.repairs else 0.0
    return repaired + decide_rates.cost_of(option.design) - decide_rates.cost_of(asked.design)


def test_only_the_cells_that_enter_a_slope_get_trials() -> None:
    design = Design(5, (2, 4, 8), (10, 20, 40), 4)
    assert design.cells == ((2, 40), (4, 10), (4, 20), (4, 40), (8, 40))


def test_noise_is_met_by_the_addition_that_costs_least_for_each_verdict_that_is_expected() -> None:
    asked = question()
    chosen = choose(asked, cost)
    assert chosen.option is not None
    assert chosen.chance is not None
    assert chosen.option.design.seeds > 5
    priced = [(cost(asked, each), chance(asked, each)) for each in designs(asked)]
    assert chosen.per_verdict() == min(price / odds for price, odds in priced if odds >= LEAST and price > 0.0)
    assert choose(asked, cost, most=0.9 * chosen.cost).cost < chosen.cost  # what may not be had is no choice
    assert choose(asked, cost) == chosen  # a round follows from the results alone


def test_of_additions_below_the_price_of_a_round_the_likeliest_is_made() -> None:
    asked = question()
    cheapest = choose(asked, cost)
    fare = 20.0 * cheapest.cost
    chosen, below = choose(asked, cost, fare=fare), [each for each in designs(asked) if 0.0 < cost(asked, each) <= fare]
    assert chosen.cost > cheapest.cost
    assert chosen.chance == max(chance(asked, each) for each in below) > cheapest.odds
    assert chosen.cost == min(cost(asked, each) for each in below if chance(asked, each) == chosen.chance)

    def price(asked: Question, option: Option) -> float:
        return 1.0 if option.repairs else cost(asked, option)

    wrong, repair = replace(asked, found=0.5), Option(asked.design, (EFFORT,))
    assert choose(wrong, price).option == repair
    assert choose(wrong, price, fare=fare).option == chosen.option  # the repair is no likelier for being cheap
    assert fare_of(600.0, 2) == 600.0 / ROUNDS / 2
    assert fare_of(math.inf, 2) == 0.0


def test_what_the_rule_lacks_comes_first() -> None:
    asked = question(0.05, 4, 3)
    few = replace(asked, grows=(HORIZON, WIDTH), design=replace(asked.design, widths=(2, 4), top=4), valid_widths=2)
    chosen = choose(few, cost)
    assert chosen.option is not None
    design = chosen.option.design
    assert design.seeds >= SMALLEST_SEEDS
    assert min(len(design.widths), len(design.horizons)) >= SMALLEST_GRID


@pytest.mark.parametrize(
    ("repair", "wrong"),
    [(STEPS, {"misfit": {(8, 800): 2.0}}), (BELOW, {"below": True}), (EFFORT, {"found": 0.5})],
)
def test_what_is_wrong_with_the_trials_is_mended_a_few_times(repair: str, wrong: dict[str, object]) -> None:
    asked = replace(question(), **wrong)  # type: ignore[arg-type]
    chosen = choose(asked, cost)
    assert chosen.option is not None
    assert chosen.option.repairs == (repair,)
    again = choose(asked, cost, (repair,) * REPAIRED[repair])
    assert again.option is None or again.option.repairs == ()


def test_one_cell_that_nearly_fits_is_trained_longer_whatever_the_others_miss() -> None:
    asked = replace(question(), misfit={(2, 800): 50.0 * NEAR, (8, 800): NEAR}, valid_horizons=0, complete=0)
    chosen = choose(asked, cost)
    assert chosen.option is not None
    assert chosen.option.repairs == (STEPS,)


def test_estimates_from_too_few_sizes_make_nothing_hopeless() -> None:
    asked = question()
    far = Obstacle(STEP, -0.4, 0.8, 0.0, 5, 0.95)
    sized = replace(asked, grows=(HORIZON, WIDTH), design=replace(asked.design, widths=(2, 4), top=4), valid_widths=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Question, "aims", ((far,),))
        chosen = choose(sized, cost)
    assert chosen.option is not None
    assert not [*sized.lacks(chosen.option.design)]


def test_seeds_that_differ_much_are_met_by_as_many_more_as_they_take() -> None:
    asked = replace(question(), grows=())
    wide = Obstacle(STEP, 0.07, 0.5, 0.0, 5, 0.95)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Question, "aims", ((wide,),))
        chosen = choose(asked, cost)
        even = [each.design.seeds for each in designs(asked) if chance(asked, each) >= EVEN]
    assert 40 < min(even) <= SEEDS[-1]
    assert chosen.option is not None
    assert chosen.option.design.seeds > 10


def test_a_repair_comes_first_where_it_costs_less_for_its_chance() -> None:
    weak = replace(question(), found=0.5)
    addition = choose(question(), cost)
    assert addition.chance is not None

    def repair(times: float) -> Chosen:
        price = times * EVEN * addition.per_verdict()
        return choose(weak, lambda asked, option: price if option.repairs else cost(asked, option))

    cheap, dear = repair(0.99), repair(1.01)
    assert cheap.option is not None
    assert dear.option is not None
    assert (cheap.option.repairs, dear.option) == ((EFFORT,), addition.option)


def test_a_memory_that_no_seed_learns_is_hopeless() -> None:
    asked = replace(question(), misfit={(8, 800): 50.0}, valid_widths=0, valid_horizons=0, complete=0)
    assert choose(asked, cost).option is None


@pytest.mark.parametrize("seeds", [3, 5])
def test_no_stronger_search_moves_models_that_all_miss_the_target(seeds: int) -> None:
    asked = replace(question(), misfit={(8, 800): 50.0}, valid_widths=0, valid_horizons=0, complete=0, found=0.3)
    asked = replace(asked, design=replace(asked.design, seeds=seeds))
    assert choose(asked, cost).option is None


def test_a_slope_beside_the_limit_is_hopeless_with_the_amount_that_would_decide() -> None:
    study = Study(Case(AT_LIMIT, "normal", 0.03), np.random.default_rng(3), SEEDS[-1])
    evidence = study.weigh(SEEDS[-1], 5)
    design = Design(SEEDS[-1], AT_LIMIT.widths, study.horizons[:5], AT_LIMIT.widths[-1])
    asked = decide_rates.question_of(evidence, design)
    chosen = choose(
        asked, lambda asked, option: cost(asked, option) if option.design.horizons == design.horizons else math.inf
    )
    assert chosen.option is None
    assert chosen.needed is None or chosen.needed.design.seeds > SEEDS[-1]


def short(axis: str, estimate: float, reach: float = 0.3) -> Question:
    """A radius with a slope over a factor of 3 of one axis, which is too short for *unstable*; flat along the other."""
    sizes = {HORIZON: (16, 24, 32, 48), WIDTH: (4, 6, 8, 12)} if axis == HORIZON else {}
    sizes = {HORIZON: (6, 12, 24, 48), WIDTH: (4, 6, 8, 12)} | sizes
    slope, flat = Slope(estimate, estimate - reach, estimate + reach), Slope(0.0, -0.1, 0.1)
    limits = {HORIZON: flat if axis == WIDTH else NO_SLOPE, WIDTH: NO_SLOPE}
    trends = {
        each: Trend((), (), slope if each == axis else flat, limits[each], outside=False) for each in (HORIZON, WIDTH)
    }
    return Question(
        key="",
        name="",
        by_threshold={0.01: Trends(trends[HORIZON], trends[WIDTH])},
        growth=NO_SLOPE,
        limited=False,
        criteria=DEFAULT,
        design=Design(5, sizes[WIDTH], sizes[HORIZON], 12),
        valid_widths=4,
        valid_horizons=4,
        complete=5,
    )


def spans(asked: Question, option: Option, axis: str) -> bool:
    """Whether an axis of the design is long enough for *unstable*."""
    values = option.design.widths if axis == WIDTH else option.design.horizons
    return values[-1] >= LONG_RANGE * values[0]


@pytest.mark.parametrize("axis", [WIDTH, HORIZON])
def test_an_axis_that_is_too_short_for_unstable_is_made_longer_where_the_radius_shrinks_along_it(axis: str) -> None:
    asked = short(axis, -0.7)
    chosen = choose(asked, cost)
    assert chosen.option is not None
    values = chosen.option.design.widths if axis == WIDTH else chosen.option.design.horizons
    assert values[-1] >= LONG_RANGE * values[0]
    short_ones = [each for each in designs(asked) if not spans(asked, each, axis)]
    assert short_ones
    assert max(chance(asked, each) for each in short_ones) < LEAST
    assert choose(replace(short(axis, -0.7), grows=()), cost).option is None


def test_sizes_that_a_model_cannot_have_are_in_no_design() -> None:
    asked = question()
    design = replace(asked.design, widths=(4, 6, 8, 12), top=12)
    asked = replace(asked, design=design, grows=(HORIZON, WIDTH))
    every = {width for each in designs(asked) for width in each.design.widths}
    assert any(width % 2 for width in every)
    even = [*designs(replace(asked, possible=lambda width, horizon: width % 2 == 0))]
    assert all(width % 2 == 0 for each in even for width in each.design.widths)
    assert {10, 16} <= {width for each in even for width in each.design.widths}  # in place of 9 or 10, 17
    now = asked.design
    none = [*designs(replace(asked, possible=lambda width, horizon: False))]
    assert {(each.design.widths, each.design.horizons) for each in none} == {(now.widths, now.horizons)}
    short = [*designs(replace(asked, possible=lambda width, horizon: horizon <= now.horizons[-1]))]
    assert {each.design.horizons[-1] for each in short} == {now.horizons[-1]}
    assert max(each.design.widths[-1] for each in short) > 12


def test_a_forecast_along_a_short_axis_follows_its_slope_and_the_limit_slopes_wider_interval() -> None:
    chosen = [choose(short(WIDTH, slope), cost) for slope in (-0.7, -0.6, -0.5)]
    assert all(each.option is not None for each in chosen)
    assert sorted(each.per_verdict() for each in chosen) == [each.per_verdict() for each in chosen]
    assert chosen[0].cost < chosen[-1].cost
    asked = short(WIDTH, -0.7, 0.45)  # over the range of today its interval would be clear of the limit
    wide = replace(asked.design, widths=(4, 6, 8, 12, 24))
    wider = replace(wide, widths=(*wide.widths, 48))
    many, few = chance(asked, Option(replace(wide, seeds=1000))), chance(asked, Option(wider))
    assert max(many, few) < EVEN < chance(asked, Option(replace(wider, seeds=20)))


def test_a_slope_over_too_short_an_axis_that_stays_above_the_limit_asks_for_no_longer_one() -> None:
    asked = short(WIDTH, -0.15, 0.01)
    assert max(chance(asked, each) for each in designs(asked)) < LEAST


def test_what_a_longer_axis_costs_beyond_the_limit_is_named() -> None:
    chosen = choose(short(WIDTH, -0.5, 0.4), cost)
    why, hours = hopeless(chosen, "more than the limit would be needed")
    assert "10 seeds in the place of 5, width 32, about" in why
    assert hours == chosen.cost / 3600.0

    def beyond_rounds(asked: Question, option: Option) -> float:
        return cost(asked, option) if option.design.seeds > SEEDS[-1] else 0.0

    far = choose(short(WIDTH, -0.3), beyond_rounds)
    assert far.option is None
    why, hours = hopeless(far)
    assert "250 seeds in the place of 5, width 32, about" in why
    assert math.isfinite(hours)


def test_a_repair_and_what_the_rule_lacks_are_told_as_attempts_and_not_as_forecasts() -> None:
    limit = "more than the limit would be needed"
    why, hours = hopeless(choose(replace(question(), below=True), cost), limit)
    assert why.startswith(f"{limit}; what would be tried next, with no forecast of a verdict: smaller radii, about")
    assert math.isfinite(hours)
    few = replace(question(0.05, 4, 3), complete=4, valid_horizons=3, valid_widths=5)
    why, _ = hopeless(choose(few, cost), limit)
    assert "what would be added next, because the rule lacks it: 5 seeds in the place of 4, horizon" in why


def test_all_cells_are_trained_longer_a_few_times_where_seeds_learn_the_target() -> None:
    asked = question()
    chosen = longer(asked, cost)
    assert chosen is not None
    assert chosen.option == Option(asked.design, (LONGER,))
    assert chosen.chance is None
    assert longer(asked, cost, (LONGER,) * REPAIRED[LONGER]) is None
    assert longer(replace(asked, misfit={(8, 800): 2.0}), cost) is None
    assert longer(asked, lambda asked, option: math.inf) is None
    few = question(0.05, 4, 3)
    assert few.gaps
    assert longer(few, cost) is None  # however long, the rule lacks seeds for a verdict


def test_no_horizon_and_no_training_is_added_where_no_horizon_is_long_enough() -> None:
    """The memory does not fall, however far anything looks."""
    asked = replace(question(), since=math.inf)
    assert longer(asked, cost) is None
    assert {option.design.horizons for option in designs(asked)} == {asked.design.horizons}
    assert HORIZON in asked.gaps


def additions(
    costs: dict[int, float], apart: dict[int, str], chances: dict[int, float] | None = None
) -> dict[int, Chosen]:
    """An addition for each question, of conditions of these names."""
    asked, odds = question(), chances or {}
    return {
        place: Chosen(replace(asked, key=apart[place]), Option(asked.design), price, chance=odds.get(place, EVEN))
        for place, price in costs.items()
    }


def test_a_round_takes_cheap_additions_and_a_dear_one_waits_while_it_has_others() -> None:
    costs, apart = {0: 40.0, 1: 3.0, 2: 20.0, 3: 3.0}, {0: "a", 1: "b", 2: "c", 3: "d"}
    every = additions(costs, apart)
    assert allotted(every, math.inf, math.inf) == [1, 3, 2, 0]
    assert allotted(every, 100.0, 100.0) == [1, 3]  # 26 would be more than a quarter
    assert allotted(every, 1000.0, 1000.0) == [1, 3]  # 20 is more than twice the 6 of the cheaper ones
    assert allotted(additions(costs | {1: 7.0}, apart), 1000.0, 1000.0) == [3, 1, 2, 0]
    assert allotted(every, 2000.0, 26.0 / FREE) == [1, 3, 2, 0]  # 26 is free
    assert allotted(additions({0: 40.0, 2: 20.0}, apart), 90.0, 100.0) == [2]
    assert allotted(additions({0: 40.0}, apart), 70.0, 100.0) == [0]  # a lone one takes what it needs
    assert allotted(additions({0: 40.0}, apart), 39.0, 100.0) == []
    one_of_two_balls = additions(costs | {2: 6.0}, apart | {3: "b"})
    assert allotted(one_of_two_balls, 1000.0, 30.0 / ROUND) == [1, 2]


def test_a_likely_verdict_comes_before_a_cheap_addition_that_brings_none() -> None:
    found = additions({0: 40.0, 1: 20.0}, {0: "a", 1: "b"}, {0: 0.9, 1: 0.2})
    assert allotted(found, 50.0, 100.0) == [0]
    assert allotted(additions({0: 40.0, 1: 20.0}, {0: "a", 1: "b"}), 50.0, 100.0) == [1]


def test_rounds_decide_what_noise_left_open_and_leave_what_lies_at_the_limit() -> None:
    noisy = decide_rates.rates(Case(FLAT, "normal", 0.03), 10)
    assert decide_rates.share(noisy, Verdict.STABLE) >= 0.9
    clear = decide_rates.rates(Case(SHRINKING, "normal", 0.03), 10)
    assert decide_rates.share(clear, Verdict.UNSTABLE) >= 0.9
    for case in error_rates.LIMITS[:1]:
        found = decide_rates.rates(case, 5)
        assert decide_rates.share(found, Verdict.INCONCLUSIVE) >= 0.8


@pytest.mark.long
@pytest.mark.more
def test_the_table_of_the_page_is_what_the_simulation_gives_and_errors_are_rare() -> None:
    text = (ROOT / "docs/evidence/decide.md").read_text()
    for case in decide_rates.CASES:
        found = decide_rates.rates(case, decide_rates.STUDIES)
        assert decide_rates.row(case, found) in text
        if wrong := WRONG.get(case.truth):
            assert decide_rates.share(found, wrong) <= (0.1 if case in decide_rates.SKEWED else 0.025)


@pytest.mark.long
@pytest.mark.more
def test_the_tables_of_one_limit_are_what_the_simulation_gives() -> None:
    text, found = (ROOT / "docs/evidence/decide.md").read_text(), one_limit.outcomes()
    for row in (*one_limit.limit_rows(found), *one_limit.chance_rows(found)):
        assert row in text


def test_as_many_additions_bring_a_verdict_as_their_chances_say() -> None:
    found = one_limit.Outcome()
    for seed in range(2):
        one_limit.run(seed, 10, found)
    odds, came = np.array(found.chances, float).T
    error = math.sqrt((odds * (1.0 - odds)).sum()) / len(odds)
    assert len(odds) > 40
    assert abs(came.mean() - odds.mean()) < 3.0 * error
    assert came[odds > 0.5].mean() > 1.5 * came[odds < 0.5].mean()


def test_more_seeds_bring_a_width_back_in_which_one_of_five_misses_the_target() -> None:
    """Longer training of its cell is the other way: the cheaper is taken."""
    asked = replace(question(0.03, 5, 4), valid_widths=3, regained=2, kept=0.8, kept_along=1.0, misfit={(2, 400): 3.0})
    assert asked.gaps == (WIDTH,)
    dear = choose(asked, lambda q, option: 1e9 if option.repairs else cost(q, option))
    assert dear.option is not None
    assert not dear.option.repairs
    assert dear.option.design.seeds * asked.kept >= SMALLEST_SEEDS
    cheap = choose(asked, lambda q, option: 1e-9 if option.repairs else cost(q, option))
    assert cheap.option is not None
    assert cheap.option.repairs == (STEPS,)
    lost = replace(asked, regained=0, kept=0.0)  # no seed fits there
    longer = choose(lost, lambda q, option: 1e9 if option.repairs else cost(q, option)).option
    assert longer is not None
    assert longer.repairs == (STEPS,)


def test_new_widths_count_as_often_as_the_present_ones_fit() -> None:
    """Of four widths the largest alone fits, as in a transformer: to train longer costs more than three new widths."""
    asked = replace(question(), valid_widths=1, entering=(1, 1), misfit={(2, 400): 1.7, (4, 400): 1.2}, grows=(WIDTH,))
    wider = replace(asked.design, widths=(*asked.design.widths, 12, 16, 24))

    def price(question: Question, option: Option) -> float:
        more = len(option.design.widths) - len(question.design.widths)
        return 415.0 if option.repairs else 363.0 if more == 3 else math.inf

    assert asked.odds(wider) == pytest.approx(0.75**3)
    assert replace(asked, valid_widths=5, entering=(5, 5)).odds(wider) == 1.0
    chosen = choose(asked, price)
    assert chosen.option is not None
    assert chosen.option.repairs == (STEPS,)
    dear = choose(asked, lambda asked, option: price(asked, option) * (3.0 if option.repairs else 1.0))
    assert dear.option is not None
    assert not dear.option.repairs
