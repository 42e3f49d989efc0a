"""Several drivers share a study, and one is killed: the tables are those of one driver, and each trial ran once.

Every driver is the real command line. The task says which process asked for which batch.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from drill_study import CHECKPOINT_EVERY, STEPS, STUDY, Drill, Outcome, study_text
from memsweep.sweep.store.lease import LeaseFile
from memsweep.sweep.tracking.run_content import IDENTITY
from sweeping import runs_of
from tally import Tally

pytestmark = pytest.mark.drill

HORIZONS = [*range(1_000_000, 2_000_000, 100_000)]
SHARED = ("sweep", STUDY, "--share", "--no-page")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The results of one driver."""
    drill = Drill.make(tmp_path_factory.mktemp("undisturbed") / "drill", study_text(HORIZONS))
    ended = drill.command("sweep", STUDY, "--inline", "--no-page")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Outcome.of(drill)


@pytest.fixture
def drill(tmp_path: Path) -> Drill:
    return Drill.make(tmp_path / "drill", study_text(HORIZONS))


def trained_twice(drill: Drill) -> list[tuple[int, int]]:
    """Horizon and step of each batch that was asked for again."""
    asked = [(batch.horizon, batch.step) for batch in drill.asked()]
    return sorted(pair for pair in set(asked) if asked.count(pair) > 1)


def written_once(drill: Drill) -> bool:
    """Whether MLflow has the study once, each trial once, and all of it as finished."""
    _, parents, children = runs_of(drill.results)
    names = [run.data.tags[IDENTITY] for run in children]
    ended = {run.info.status for run in (*parents, *children)} == {"FINISHED"}
    return len(parents) == 1 and sorted(names) == sorted(drill.store.identities()) and ended


def drivers_with_packs(drill: Drill) -> int:
    """How many drivers hold packs, by their lease files."""
    files = [LeaseFile.of(file.read_bytes()) for file in (drill.store.folder / "lease").glob("*.json")]
    return sum(bool(file.share and {*file.share.taken} - {"lead"}) for file in files)


@pytest.mark.parametrize(
    ("count", "how"),
    [
        (2, "--inline"),
        pytest.param(3, "--inline", marks=pytest.mark.long),
        pytest.param(2, "--ray", marks=pytest.mark.long),
    ],
)
def test_drivers_divide_a_study(drill: Drill, undisturbed: Outcome, count: int, how: str) -> None:
    drill.slow()
    with ExitStack() as stack:
        processes = [stack.enter_context(drill.running(*SHARED, how)) for _ in range(count)]
        drill.reach(processes[0], lambda: drill.asked() and drivers_with_packs(drill) == count)
        drill.quick()
        said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * count, said
    assert sum("leads; this one takes packs" in out for out, _ in said) == count - 1
    assert sum("report:" in out for out, _ in said) == 1
    parts = [int(number) for out, _ in said for number in re.findall(r"(\d+) trials? of 20 had their result here", out)]
    assert len(parts) == count - 1
    assert min(*parts, 20 - sum(parts)) > 0, parts  # every driver ran packs, the leader too
    assert trained_twice(drill) == []
    assert Outcome.of(drill).equals(undisturbed)
    assert written_once(drill)
    assert [*(drill.store.folder / "lease").iterdir()] == []


@pytest.mark.parametrize("victim", ["the leader", pytest.param("another driver", marks=pytest.mark.long)])
def test_a_driver_is_killed_and_the_others_run_what_it_had_not_stored(
    drill: Drill, undisturbed: Outcome, tally: Tally, victim: str
) -> None:
    drill.slow()
    with ExitStack() as stack:
        first = stack.enter_context(drill.running(*SHARED, "--inline"))
        drill.reach(first, drill.asked)  # it leads
        others = [stack.enter_context(drill.running(*SHARED, "--inline")) for _ in range(2)]
        killed = first if victim == "the leader" else others[0]
        drill.reach(killed, lambda: at_work(drill, killed) >= 2 * CHECKPOINT_EVERY)
        killed.kill()
        killed.wait(timeout=30)
        before, own = drill.now(), {batch.horizon for batch in drill.asked() if batch.pid == killed.pid}
        drill.quick()
        left = [process for process in (first, *others) if process is not killed]
        said = [process.communicate(timeout=300) for process in left]
    assert [process.returncode for process in left] == [0, 0], said
    assert sum("report:" in out for out, _ in said) == 1
    lost, again = drill.cost_since(before)
    equal = Outcome.of(drill).equals(undisturbed)
    tally.record(f"one of three drivers killed: {victim}", 1, lost, again, equal)
    assert (lost, again, equal) == (0, 0, True)
    twice = trained_twice(drill)
    assert {horizon for horizon, _ in twice} <= own - before.ended
    assert len(twice) <= 2 * CHECKPOINT_EVERY < STEPS  # it went on from its checkpoint
    assert written_once(drill)


def at_work(drill: Drill, process: subprocess.Popen[str]) -> int:
    """Batches of the pack that it trains now."""
    own = [batch for batch in drill.asked() if batch.pid == process.pid]
    return sum(batch.horizon == own[-1].horizon for batch in own) if own else 0
