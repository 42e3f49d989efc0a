"""Population-based training: who takes over whom is a function of scores, numbers and seed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsweep.config.schema.search import Domain, SchedulerConfig
from memsweep.search.stopping.population import PopulationMember, evolve

RATE, DECAY = "training.learning_rate", "training.weight_decay"
SPACE = {RATE: Domain("log_uniform", 1e-4, 1.0), DECAY: Domain("uniform", 0.0, 0.1)}
PBT = SchedulerConfig(name="pbt", quantile=0.25, resample=0.0)


def population(scores: Sequence[float]) -> list[PopulationMember]:
    return [PopulationMember(n, {RATE: 0.01 * (n + 1), DECAY: 0.01}, score) for n, score in enumerate(scores)]


def test_the_worst_quarter_goes_on_from_the_best() -> None:
    members = population([3.0, 1.0, 8.0, 2.0, 5.0, 4.0, 7.0, 6.0])
    evolved = evolve(members, SPACE, PBT, seed=1, step=100)
    assert [one.number for one in evolved] == list(range(8))
    assert {one.number for one in evolved if one.donor != one.number} == {2, 6}
    for one in evolved:
        old = members[one.number]
        if one.donor == one.number:
            assert one.values == old.values
            continue
        donor = members[one.donor]
        assert donor.number in (1, 3)
        for path in SPACE:
            factor = one.values[path] / donor.values[path]
            assert factor == pytest.approx(0.8) or factor == pytest.approx(1.2)


def test_the_same_seed_decides_the_same_in_any_order_and_other_seeds_and_steps_otherwise() -> None:
    members = population([float(n) for n in range(16)])
    known = evolve(members, SPACE, PBT, seed=1, step=100)
    assert evolve(members[::-1], SPACE, PBT, seed=1, step=100) == known
    assert evolve(members, SPACE, PBT, seed=2, step=100) != known
    assert evolve(members, SPACE, PBT, seed=1, step=200) != known
    # each of the best is taken over by somebody, sooner or later, and both factors are used
    many = [evolve(members, SPACE, PBT, seed=seed, step=100) for seed in range(30)]
    assert {one.donor for each in many for one in each if one.donor != one.number} == {0, 1, 2, 3}
    factors = {
        round(one.values[RATE] / members[one.donor].values[RATE], 6)
        for each in many
        for one in each
        if one.donor != one.number
    }
    assert factors == {0.8, 1.2}


def test_equal_members_leave_each_other_alone() -> None:
    assert not any(one.donor != one.number for one in evolve(population([1.0] * 8), SPACE, PBT, seed=0, step=10))
    assert not any(one.donor != one.number for one in evolve(population([1.0]), SPACE, PBT, seed=0, step=10))


def test_all_diverged_members_take_over_somebody_alive_or_nobody_goes_on() -> None:
    scores = [math.inf, math.nan, 2.0, math.inf, math.inf, 5.0, math.inf, math.inf]
    evolved = evolve(population(scores), SPACE, PBT, seed=0, step=10)
    assert {one.number for one in evolved if one.donor != one.number} == {0, 1, 3, 4, 6, 7}
    assert {one.donor for one in evolved if one.donor != one.number} <= {2, 5}
    alone = evolve(population([math.inf]), SPACE, PBT, seed=0, step=10)
    assert alone == []
    assert evolve(population([math.nan, math.inf]), SPACE, PBT, seed=0, step=10) == []


def test_settings_drawn_anew_fill_the_domain() -> None:
    config = SchedulerConfig(name="pbt", quantile=0.5, resample=1.0)
    rates = [
        one.values[RATE]
        for seed in range(60)
        for one in evolve(population([1.0, 2.0]), SPACE, config, seed=seed, step=10)
        if one.donor != one.number
    ]
    assert len(rates) == 60
    logs = [math.log10(rate) for rate in rates]
    assert min(logs) < -3.3
    assert max(logs) > -0.7
    assert abs(sum(logs) / 60 + 2.0) < 0.5


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.one_of(st.floats(), st.sampled_from([1.0, math.inf])), min_size=1, max_size=9),
    quantile=st.floats(0.05, 0.5),
    resample=st.floats(0.0, 1.0),
    seed=st.integers(0, 2**70),
)
def test_whatever_the_scores_settings_stay_in_their_domains(
    scores: list[float], quantile: float, resample: float, seed: int
) -> None:
    space = {**SPACE, "training.steps": Domain("int", 1, 9), "c": Domain("choice", values=("a", "b"))}
    members = [
        PopulationMember(n, {RATE: 1.0, DECAY: 0.0, "training.steps": 1 + n, "c": "a"}, score)
        for n, score in enumerate(scores)
    ]
    config = SchedulerConfig(name="pbt", quantile=quantile, resample=resample)
    evolved = evolve(members, space, config, seed, 10)
    assert len(evolved) == (len(members) if any(map(math.isfinite, scores)) else 0)
    assert sum(one.donor != one.number and math.isfinite(scores[one.number]) for one in evolved) <= len(members) // 2
    for one in evolved:
        assert math.isfinite(scores[one.donor])
        assert all(domain.contains(one.values[path]) for path, domain in space.items())
