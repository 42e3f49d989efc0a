"""Whose turn it is where packs ask for different resources: none waits behind one of another kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.driver.sharing import Undivided
from memsweep.sweep.ray.room import Room
from memsweep.sweep.ray.turns import Turns
from memsweep.sweep.worker.execute import PackJob

SMALL, LARGE = ResourcesConfig(), ResourcesConfig(gpus=1.0)


@dataclass
class Held(Room):
    """Room that a test sets."""

    of: dict[ResourcesConfig, int] = field(default_factory=dict)


def job(name: str, asked: ResourcesConfig) -> PackJob:
    return PackJob(name, "study", "folder", "workspace", (), resources=asked)


def given(turns: Turns, most: int = 10) -> list[str]:
    """The packs that Tune would take now."""
    found: list[str] = []
    while len(found) < most and turns.limit > len(found):
        found.append(turns.next())
    return found


def test_small_packs_do_not_wait_behind_large_ones() -> None:
    jobs = [job(name, LARGE) for name in ("L1", "L2", "L3")] + [job(name, SMALL) for name in ("s1", "s2", "s3")]
    open_packs = {each.pack for each in jobs}
    room = Held({SMALL: 2, LARGE: 1})
    turns = Turns(jobs, room, open_packs, len(jobs), Undivided().first)
    assert given(turns) == ["L1", "s1", "s2"]
    assert turns.left(waiting=True) == {LARGE: 3, SMALL: 3}
    assert turns.left(waiting=False) == {LARGE: 1, SMALL: 2}
    open_packs.remove("L1")
    assert (turns.limit, turns.next(), turns.limit) == (3, "L2", 3)
    room.of[SMALL] = 3  # a node came
    assert (turns.limit, turns.next()) == (4, "s3")


def test_packs_that_other_drivers_hold_are_not_left() -> None:
    jobs = [job(name, kind) for kind in (SMALL, LARGE) for name in (f"{kind.card}a", f"{kind.card}b")]
    theirs = {"0.0b", "1.0a", "1.0b"}
    turns = Turns(
        jobs,
        Held({SMALL: 1, LARGE: 0}),
        {each.pack for each in jobs},
        len(jobs),
        Undivided().first,
        lambda packs: len({*packs} - theirs),
    )
    assert turns.left(waiting=True) == {SMALL: 1}


def test_one_at_a_time_is_one_of_all_kinds() -> None:
    jobs = [job("L1", LARGE), job("s1", SMALL)]
    turns = Turns(jobs, Held({SMALL: 2, LARGE: 2}), {"L1", "s1"}, 1, Undivided().first)
    assert given(turns) == ["L1"]


def test_where_there_is_room_for_none_the_first_waits() -> None:
    turns = Turns([job("s1", SMALL), job("L1", LARGE)], Held({SMALL: 0, LARGE: 0}), {"s1", "L1"}, 2, Undivided().first)
    assert (turns.limit, turns.next()) == (0, "s1")


def test_an_experiment_that_has_ended_stays_so_when_a_pack_is_free_again() -> None:
    """Tune asks again while it cleans up; with a yes, it would look as if somebody had stopped the run."""
    from memsweep.sweep.ray.callbacks import GatedVariants

    free = iter([True, False, True])
    gate = GatedVariants(lambda: next(free), lambda: 1)
    assert not gate.is_finished()
    assert gate.is_finished()
    assert gate.is_finished()
    assert gate.closed


def test_an_experiment_in_which_something_runs_goes_on_when_a_pack_is_free_again() -> None:
    from memsweep.sweep.ray.callbacks import GatedVariants

    free = iter([False, True])
    gate = GatedVariants(lambda: next(free), lambda: 1)
    gate._live_trials.add("runs")
    assert gate.is_finished()
    assert not gate.is_finished()
    assert not gate.closed
