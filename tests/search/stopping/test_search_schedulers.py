"""Early stopping: Ray's rules, decided in the order of rows, rebuilt by replaying the same calls."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memsweep.config.schema.search import SchedulerConfig
from memsweep.search.stopping.schedulers import Decisions, Report, Scheduler, scheduler

EARLY = ("asha", "hyperband", "median")
Curve = Callable[[int, int], float]


@dataclass
class Table:
    """A search's rows: what each member trained to, and the calls that decided it.

    Attributes:
        looks: number -> the steps at which its rows ended.
        ended: numbers on which it was decided that they train no more.
        stopped: those of them that had not come to the end.
        calls: (numbers that entered, reports, more, decisions), round by round.
    """

    looks: dict[int, list[int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)
    calls: list[tuple[list[int], list[Report], bool, Decisions]] = field(default_factory=list)


def searched(asked: Scheduler, steps: int, members: int, batch: int, curve: Curve) -> Table:
    """Rounds as the driver makes them: decide, let in new ones up to ``batch`` rows, run them."""
    table, rows, entered = Table(), list[tuple[int, int]](), 0
    for _ in range(10_000):
        reports = [Report(number, step, curve(number, step)) for number, step in rows]
        more = entered < members
        decided = asked.report(reports, more)
        rows = [(number, step) for number, step in sorted(decided.items()) if step is not None]
        ended = {number for number, step in decided.items() if step is None}
        assert not ended & table.ended
        table.ended |= ended
        table.stopped |= {number for number in ended if table.looks[number][-1] < steps}
        new = list(range(entered, min(members, entered + max(0, batch - len(rows)))))
        rows += [(number, asked.first(number)) for number in new]
        entered += len(new)
        table.calls.append((new, reports, more, decided))
        for number, step in rows:
            table.looks.setdefault(number, []).append(step)
        if not rows and not more:
            assert table.ended == set(range(members))
            return table
    raise AssertionError("it never ends")


def slow(number: int, step: int) -> float:
    """SuggestionRecord n ends best the smaller n is, and its rank shows at every step."""
    return number + 100.0 / step


@pytest.mark.parametrize("name", EARLY)
@pytest.mark.parametrize("batch", [1, 4, 30])
def test_every_member_ends_or_is_stopped_and_a_replay_decides_the_same(name: str, batch: int) -> None:
    config = SchedulerConfig(name=name, grace=100, interval=200, reduction=3.0)
    table = searched(scheduler(config, 1000, 50), 1000, 20, batch, lambda n, step: (n * 7) % 20 + 100.0 / step)
    assert set(table.looks) == set(range(20))
    for number, looks in table.looks.items():
        assert looks == sorted(set(looks))
        assert all(look % 50 == 0 for look in looks)
        assert (looks[-1] == 1000) != (number in table.stopped)
    assert any(looks[-1] == 1000 for looks in table.looks.values())
    assert table.stopped, "nobody was stopped"

    again = scheduler(config, 1000, 50)
    for new, reports, more, decided in table.calls:
        assert again.report(reports, more) == decided
        for number in new:
            assert again.first(number) == table.looks[number][0]


@settings(max_examples=60, deadline=None)
@given(
    data=st.lists(st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.inf, math.nan, 1.0])), min_size=1, max_size=30),
    name=st.sampled_from(EARLY),
    batch=st.integers(1, 12),
    grace=st.sampled_from([50, 100, 250, 1000, 3000]),
    reduction=st.sampled_from([1.5, 2.0, 2.7, 3.0, 4.0]),
)
@example([0.0] * 8, "hyperband", 1, 250, 1.5)  # the last one, alone in its bracket, was never decided
def test_whatever_the_values_the_search_ends_and_no_diverged_member_trains_on(
    data: list[float], name: str, batch: int, grace: int, reduction: float
) -> None:
    config = SchedulerConfig(name=name, grace=grace, interval=150, reduction=reduction)
    if list(config.problems()):  # a study with these settings is refused
        config = dataclasses.replace(config, reduction=2.0)
    table = searched(scheduler(config, 1000, 50), 1000, len(data), batch, lambda n, step: data[n] + 10.0 / step)
    for number, looks in table.looks.items():
        assert looks == sorted(set(looks))
        assert looks[-1] == 1000 or number in table.stopped
        assert math.isfinite(data[number]) or len(looks) == 1
    assert len(table.looks) == len(data)
    # with a bracket to itself, or as the first at its rung, somebody alive always ends
    if np.isfinite(data).any() and name != "hyperband":
        assert any(looks[-1] == 1000 and math.isfinite(data[n]) for n, looks in table.looks.items())


def test_halving_passes_those_in_the_best_third_of_who_was_there() -> None:
    """Against the rule written out: the cutoff is the percentile of those recorded before."""
    random = np.random.default_rng(0)
    values = random.normal(size=(40, 3))
    looks = (100, 300, 900)
    asked = scheduler(SchedulerConfig(name="asha", grace=100, reduction=3.0), 2000, 100)
    recorded: list[list[float]] = [[], [], []]
    passed = 0
    for number in range(40):
        assert asked.first(number) == 100
        for rung, step in enumerate(looks):
            value = values[number, rung]
            bent = [one / (1 + abs(one)) for one in recorded[rung]]
            good = not bent or value / (1 + abs(value)) <= np.percentile(bent, 100 / 3) + 1e-15
            recorded[rung].append(value)
            following = [*looks, 2000][rung + 1]
            assert asked.report([Report(number, step, value)]) == {number: following if good else None}
            if not good:
                break
            passed += 1
    assert passed > 10


def test_the_median_rule_compares_the_best_with_running_means() -> None:
    asked = scheduler(SchedulerConfig(name="median", grace=100, interval=100), 400, 50)
    for number in range(5):
        assert asked.first(number) == 100
    # the means of the others at 100 are what they reported; the first three had too few to be judged by
    first = asked.report([Report(n, 100, float(n)) for n in range(3)])
    assert first == {0: 200, 1: 200, 2: 200}
    assert asked.report([Report(3, 100, 1.5), Report(4, 100, 0.5)]) == {3: None, 4: 200}
    # at 200 only who got there counts: the means of 0 and 1 are 0.5 and 3, 2's best is 2
    assert asked.report([Report(0, 200, 1.0), Report(1, 200, 5.0)]) == {0: 300, 1: 300}
    assert asked.report([Report(4, 200, 0.4), Report(2, 200, 9.0)]) == {4: 300, 2: None}
    assert asked.report([Report(0, 400, 0.0)]) == {0: None}


def test_brackets_of_different_haste_are_halved_when_they_are_full() -> None:
    """900 steps in units of 100, by threes: 3 members go to the end, 5 are looked at from 300, 9 from 100."""
    config = SchedulerConfig(name="hyperband", grace=100, reduction=3.0)
    for batch in (3, 4, 17):
        table = searched(scheduler(config, 900, 100), 900, 17, batch, slow)
        looks = table.looks
        assert [looks[n] for n in range(3)] == [[900]] * 3
        assert [looks[n] for n in range(3, 8)] == [[300, 900]] * 2 + [[300]] * 3
        assert [looks[n] for n in range(8, 17)] == [[100, 300, 900]] + [[100, 300]] * 2 + [[100]] * 6


def test_a_bracket_that_stays_open_waits_until_nobody_enters() -> None:
    asked = scheduler(SchedulerConfig(name="hyperband", grace=100, reduction=3.0), 900, 100)
    assert [asked.first(number) for number in range(7)] == [900] * 3 + [300] * 4
    assert asked.report([Report(number, 300, float(number)) for number in range(3, 7)]) == {}
    assert asked.report([]) == {}
    assert asked.report([], more=False) == {3: 900, 4: 900, 5: None, 6: None}


def test_the_survivor_of_a_bracket_trains_to_the_end_where_steps_are_no_power() -> None:
    """2000 steps in units of 250: Ray would end the last bracket's winner at 1500."""
    table = searched(
        scheduler(SchedulerConfig(name="hyperband", grace=250, reduction=3.0), 2000, 250), 2000, 8, 8, slow
    )
    assert [table.looks[n] for n in range(8)] == [[2000]] * 3 + [[500, 2000]] * 2 + [[500]] * 3


def test_diverged_members_lose_their_bracket() -> None:
    asked = scheduler(SchedulerConfig(name="hyperband", grace=100, reduction=3.0), 900, 100)
    for number in range(17):
        asked.first(number)
    dead = [Report(number, 60, math.nan if number % 2 else math.inf) for number in range(8, 15)]
    assert asked.report(dead) == dict.fromkeys(range(8, 15))
    # of nine, three pass: the two alive, and a dead one that needs no room
    decided = asked.report([Report(15, 100, 5.0), Report(16, 100, 4.0)])
    assert {number: step for number, step in decided.items() if step} == {15: 300, 16: 300}
    # at 300 the dead one has lost already
    assert asked.report([Report(15, 300, 3.0)]) == {}
    assert asked.report([Report(16, 300, 2.0)]) == {15: None, 16: 900}
    # it diverges in its last stretch: nothing waits for it
    assert asked.report([Report(16, 700, math.inf)]) == {16: None}


@pytest.mark.parametrize("name", [*EARLY, "none"])
def test_with_no_look_before_the_end_everybody_ends(name: str) -> None:
    asked = scheduler(SchedulerConfig(name=name, grace=500), 500, 100)
    assert [asked.first(number) for number in range(5)] == [500] * 5
    reports = [Report(0, 500, 3.0), Report(1, 500, 1.0), Report(2, 120, math.inf), Report(3, 500, math.nan)]
    assert asked.report(reports) == dict.fromkeys(range(4))


def test_looks_are_rounded_up_to_validations() -> None:
    asked = scheduler(SchedulerConfig(name="asha", grace=110, reduction=2.5), 1000, 50)
    assert asked.first(0) == 150
    # 150 * 2.5 = 375, and once more 937.5, which rounds to the end
    assert asked.report([Report(0, 150, 1.0)]) == {0: 400}
    assert asked.report([Report(0, 400, 1.0)]) == {0: 950}
    assert asked.report([Report(0, 950, 1.0)]) == {0: 1000}


def test_no_global_random_number_is_drawn() -> None:
    np.random.seed(5)
    known = np.random.get_state()[1].tolist()
    for name in EARLY:
        searched(scheduler(SchedulerConfig(name=name, grace=100, interval=100), 1000, 50), 1000, 12, 4, slow)
    assert np.random.get_state()[1].tolist() == known


def test_population_based_training_is_no_early_stopping() -> None:
    with pytest.raises(ValueError, match="stops nobody"):
        scheduler(SchedulerConfig(name="pbt"), 1000, 50)


def steps_of(table: Table) -> Sequence[int]:
    return [looks[-1] for looks in table.looks.values()]


def test_halving_saves_steps_and_keeps_the_best() -> None:
    """Where ranks show early, all three find the best, in less than 0.7 of the steps (median: the mildest)."""
    for name in EARLY:
        config = SchedulerConfig(name=name, grace=100, interval=100, reduction=3.0)
        order = np.random.default_rng(3).permutation(27)
        table = searched(scheduler(config, 900, 50), 900, 27, 6, lambda n, step, order=order: slow(int(order[n]), step))
        best = int(np.flatnonzero(order == 0)[0])
        assert sum(steps_of(table)) < 27 * 900 * 0.7, name
        assert table.looks[best][-1] == 900 or name == "hyperband"
