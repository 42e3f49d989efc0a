"""The journal says where every row stands, whatever has been cut out of its files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from memsweep.errors import StoreError
from memsweep.outcome import Outcome
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import (
    GIVE_UP_AFTER,
    Journal,
    State,
    TrialStatus,
    ending,
    read_statuses,
    recovered_statuses,
)

A, B, C = "a" * 32, "b" * 32, "c" * 32
RAISED = {"outcome": "failed", "error": "ValueError: 17 is too much", "traceback": "..."}


def states(rows: dict[str, TrialStatus]) -> dict[str, str]:
    return {name: row.state.value for name, row in rows.items()}


def test_every_outcome_is_a_state_and_every_state_explains_itself() -> None:
    assert {outcome.value for outcome in Outcome} <= {state.value for state in State}
    assert all(state.explanation for state in State)
    assert [state for state in State if state.has_result] == [State.DONE, State.DIVERGED, State.STOPPED_EARLY]


def test_rows_are_there_before_anything_runs_and_come_back_as_they_were_noted(tmp_path: Path) -> None:
    place = Location.at(tmp_path)
    journal = Journal(place, {A: TrialStatus(), B: TrialStatus()})
    assert states(read_statuses(place)) == {A: "queued", B: "queued"}
    journal.note([A, B], State.RUNNING)
    journal.note([A], State.DONE)
    journal.note([B], State.FAILED, failure=RAISED)
    journal.flush()
    assert read_statuses(place) == journal.trials
    assert states(journal.trials) == {A: "done", B: "failed"}
    assert journal.trials[B].kind == "failed: ValueError: # is too much"


def test_three_failures_of_one_kind_are_enough_and_a_result_forgets_them() -> None:
    row = TrialStatus()
    for error in ("17 is too much", "18 is too much"):
        row = row.to(State.FAILED, RAISED | {"error": error}).to(State.QUEUED)
    assert (row.failures, row.given_up) == (GIVE_UP_AFTER - 1, False)
    assert row.to(State.FAILED, RAISED | {"error": "19 is too much"}).given_up
    other = row.to(State.FAILED, RAISED | {"error": "no such file"})
    assert (other.failures, other.given_up) == (1, False)
    assert row.to(State.DONE) == TrialStatus(State.DONE, row.to(State.DONE).since)


def test_a_new_driver_queues_what_a_dead_one_left_running_and_believes_the_store() -> None:
    rows = {
        "running": TrialStatus(State.RUNNING, failures=1, kind="w"),
        "stopped": TrialStatus(State.PREEMPTED),
        "lost": TrialStatus(State.DONE),
        "failed": TrialStatus(State.FAILED, failures=2, kind="w"),
        "stored": TrialStatus(State.RUNNING),
        "gone": TrialStatus(State.RUNNING),
        "back": TrialStatus(State.CANCELLED),
    }
    planned = ["running", "stopped", "lost", "failed", "stored", "back", "new"]
    found = recovered_statuses(rows, planned, {"stored": "diverged"})
    assert states(found) == {
        **dict.fromkeys(("running", "stopped", "lost", "back", "new"), "queued"),
        "failed": "failed",
        "stored": "diverged",
        "gone": "cancelled",
    }
    assert (found["running"].failures, found["failed"].failures) == (1, 2)


@pytest.mark.parametrize("clock", ["2026-01-01T00:00:00+00:00", "2026-12-31T00:00:00+00:00"], ids=["behind", "ahead"])
def test_a_failure_that_a_dead_driver_did_not_count_counts_once_whatever_the_workers_clock_says(clock: str) -> None:
    """A worker stored it and ended; the driver died before it heard of it."""
    running = TrialStatus(State.RUNNING, "2026-06-15T00:00:00+00:00")
    failure = {**RAISED, "time": clock}
    status = recovered_statuses({A: running}, [A], {}, {A: failure})[A]
    assert (status.state, status.failures) == (State.FAILED, 1)
    again = recovered_statuses({A: status.to(State.RUNNING)}, [A], {}, {A: failure})[A]
    assert (again.state, again.failures) == (State.QUEUED, 1)


def test_a_failure_that_another_driver_stored_counts_though_the_leader_never_heard_of_it() -> None:
    """The journal of the leader, which was killed, has the trial as waiting."""
    failure = {**RAISED, "time": "2026-06-15T00:00:00+00:00"}
    found = recovered_statuses({A: TrialStatus(), B: TrialStatus()}, [A, B], {B: "done"}, {A: failure})
    assert (found[A].state, found[A].failures) == (State.FAILED, 1)
    assert ending(found, [A, B]) == "failed"
    again = recovered_statuses({A: found[A].to(State.QUEUED)}, [A], {}, {A: failure})[A]
    assert (again.state, again.failures) == (State.QUEUED, 1)


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.PREEMPTED])
@pytest.mark.parametrize("kind", [State.FAILED, State.OUT_OF_MEMORY])
def test_a_trial_that_is_given_up_does_not_wait(state: State, kind: State) -> None:
    """Its driver died when it had counted the last failure, or tried once more because it was told to."""
    given_up = TrialStatus(state, "2026-06-15T00:00:00+00:00", GIVE_UP_AFTER, f"{kind}: it was killed")
    found = recovered_statuses({A: given_up}, [A], {})
    assert (found[A].state, found[A].failures) == (kind, GIVE_UP_AFTER)
    assert ending(found, [A]) == "failed"


def test_a_long_journal_is_many_small_files_and_old_drivers_are_forgotten(tmp_path: Path) -> None:
    place = Location.at(tmp_path)
    for _ in range(4):
        journal = Journal(place, {f"{number:032x}": TrialStatus() for number in range(700)})
        for number, name in enumerate(journal.trials):
            journal.note([name], State.RUNNING)
            if number % 50 == 0:
                journal.flush()
        journal.flush()
        assert read_statuses(place) == journal.trials
    drivers = {path.name[:6] for path in (tmp_path / "journal").iterdir()}
    assert drivers == {"000002", "000003"}
    assert max(len(path.read_text().splitlines()) for path in (tmp_path / "journal").glob("*.00000[1-9].*")) <= 500 + 50


def test_a_stray_segment_with_the_last_number_of_six_digits_hides_nothing(tmp_path: Path) -> None:
    place = Location.at(tmp_path)
    Journal(place, {A: TrialStatus(State.DONE)})
    place.write("journal/999999.000000.jsonl", (tmp_path / "journal" / "000000.000000.jsonl").read_bytes())
    for state in (State.RUNNING, State.FAILED):
        Journal(place, {A: TrialStatus(state)})
        assert states(read_statuses(place)) == {A: state}


@pytest.mark.parametrize("seed", range(20))
def test_damaged_files_cost_the_lines_that_are_damaged_and_no_more(tmp_path: Path, seed: int) -> None:
    """Whatever is cut off, zeroed or flipped: reading never raises and never invents a row or a state."""
    place, chance = Location.at(tmp_path), random.Random(seed)
    journal = Journal(place, {A: TrialStatus(), B: TrialStatus()})
    journal.note([A], State.RUNNING)
    journal.note([A], State.DONE)
    journal.flush()
    again = Journal(place, journal.trials | {C: TrialStatus()})
    again.note([C], State.RUNNING)
    again.flush()
    newest = sorted((tmp_path / "journal").iterdir())[-chance.choice([1, 2])]
    data = newest.read_bytes()
    cut = chance.randrange(len(data))
    harm = [data[:cut], data[:cut] + bytes(len(data) - cut), data[:cut] + bytes([data[cut] ^ 255]) + data[cut + 1 :]]
    newest.write_bytes(chance.choice(harm))
    rows = read_statuses(place)
    assert rows.keys() <= {A, B, C}
    assert rows[A].state is State.DONE  # the driver before had written it, too
    assert rows[B].state is State.QUEUED
    assert rows.get(C, TrialStatus()).state in (State.QUEUED, State.RUNNING)
    Journal(place, recovered_statuses(rows, [A, B, C], {A: "done"}))
    assert states(read_statuses(place)) == {A: "done", B: "queued", C: "queued"}


def test_a_journal_that_cannot_be_written_says_so_and_goes_on(tmp_path: Path) -> None:
    place = Location.at(tmp_path)
    journal = Journal(place, {A: TrialStatus()})
    folder = tmp_path / "journal"
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("in the way")
    journal.note([A], State.RUNNING)
    journal.flush()
    assert str(place) in journal.trouble
    folder.unlink()
    (tmp_path / "elsewhere").rename(folder)
    journal.note([A], State.DONE)
    journal.flush()
    assert journal.trouble == ""
    assert states(read_statuses(place)) == {A: "done"}
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("in the way")
    with pytest.raises(StoreError, match="cannot"):
        Journal(place, {A: TrialStatus()})
