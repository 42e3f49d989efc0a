"""The cost of a trial beside its training does not grow with the study: calls, files, bytes and queries are counted.

Counts, not times: a machine's mood cannot change them. A stage whose cost is linear makes as many more calls from the
second size to the third as from the first to the second; one that looks at every trial for every trial does not.
"""

from __future__ import annotations

import cProfile
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.studies import noop
from memsweep.commands import console
from memsweep.config.load.study import load_study
from memsweep.report.analysis.contents import analyse
from memsweep.report.read.study import load_study as load_stored
from memsweep.report.rows.report import tables_of
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import RunSummary, run
from memsweep.sweep.planning.plan import Plan, identified, make_plan, pack_of
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.ray.backend import JobTable
from memsweep.sweep.store.results import Store
from memsweep.sweep.tracking import Tracker
from memsweep.sweep.worker.execute import PackJob
from memsweep.sweep.worker.timing import Phases, Profile
from paths import ROOT
from sweeping import ready

RATES = (1, 2, 3)
TRIALS = 20  # of the small study, for each rate
SLACK = 1.05


@dataclass(frozen=True)
class Count:
    """Calls that one stage made in this thread, and those among them that opened a file."""

    calls: int
    opened: int


def counted(stage: Callable[[], object]) -> Count:
    profile = cProfile.Profile()
    profile.runcall(stage)
    found = [(str(entry.code), entry.callcount) for entry in profile.getstats()]
    opens = ("<built-in method io.open>", "<built-in method posix.open>", "<built-in method _io.open>")
    return Count(sum(count for _, count in found), sum(count for name, count in found if name in opens))


def planned(folder: Path, rates: int) -> Plan:
    """The study of the benchmark with fewer horizons, widths, seeds and radii."""
    study = folder / "noop.yaml"
    study.write_text(noop.STUDY)
    words = ("grid.task.horizon=[8,16]", "grid.model.width=[2,3]", "training.seeds=2", "perturbation.radii.count=4")
    axis = f"grid.task.rate={[round(0.5 + 0.1 * n, 2) for n in range(rates)]}"
    sweep = load_study(str(study), (*words, "perturbation.balls=[all]", axis), ROOT)
    return make_plan(sweep, identified(sweep), ())


def swept(plan: Plan, results: Path, **options: Any) -> RunSummary:
    done = run(plan, workspace=ROOT, results=results, launch=Launch(inline=True), work=noop.no_work, **options)
    assert len(done.finished) == len(plan.trials)
    return done


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Count]]:
    """Stage -> its counts at the three sizes; one round before fills caches and imports."""
    found: dict[str, list[Count]] = {}
    for rates in (1, *RATES):
        folder = tmp_path_factory.mktemp("size")
        for name, count in _stages(folder, rates):
            found.setdefault(name, []).append(count)
    return {name: counts[1:] for name, counts in found.items()}


def _stages(folder: Path, rates: int) -> Iterator[tuple[str, Count]]:
    plans: list[Plan] = []
    yield "plan", counted(lambda: plans.append(planned(folder, rates)))
    (plan,) = plans
    assert len(plan.trials) == TRIALS * rates
    store = Store(folder / "results" / "noop")
    write_plan(store.folder, plan, {})
    yield "run", counted(lambda: swept(plan, folder / "results"))

    def report() -> None:
        study = load_stored(store.folder)
        contents = analyse(study)
        assert len(contents.findings) == 5 * rates
        assert all(not table.frame().empty for table in tables_of(contents).exported)

    yield "report", counted(report)


@pytest.mark.more
@pytest.mark.parametrize("stage", ["plan", "run", "report"])
def test_calls_and_files_grow_with_the_trials_alone(stages: dict[str, list[Count]], stage: str) -> None:
    small, middle, large = stages[stage]
    assert large.calls - middle.calls <= SLACK * (middle.calls - small.calls)
    assert large.opened - middle.opened <= SLACK * (middle.opened - small.opened)
    assert large.calls > middle.calls > small.calls


def test_the_count_sees_a_stage_that_looks_at_all_for_each() -> None:
    def quadratic(size: int) -> Count:
        return counted(lambda: [abs(one - other) for one in range(size) for other in range(size)])

    small, middle, large = (quadratic(size).calls for size in (20, 40, 60))
    assert large - middle > SLACK * (middle - small)


@pytest.mark.more
def test_a_record_is_as_long_in_large_company_as_in_small(tmp_path: Path) -> None:
    longest = []
    for rates in (1, 3):
        folder = tmp_path / str(rates)
        folder.mkdir()
        swept(planned(folder, rates), folder / "results")
        longest.append(max(path.stat().st_size for path in folder.rglob("records/*.json")))
    assert abs(longest[1] - longest[0]) < 20  # digits of seconds


def jobs(count: int) -> dict[str, PackJob]:
    names = [f"{number:032x}" for number in range(count)]
    return {name: PackJob(name, "s", "/f", "/w", ((name, {"number": number}),)) for number, name in enumerate(names)}


def test_a_worker_is_given_all_jobs_without_a_copy_and_reads_one() -> None:
    """Ray gives every trial the same object: what is unpickled in-band is copied for each of them."""
    sizes = []
    for count in (10, 1000):
        buffers: list[pickle.PickleBuffer] = []
        table = JobTable.of(jobs(count))
        sizes.append(len(pickle.dumps(table, protocol=5, buffer_callback=buffers.append)))
        assert sum(len(buffer.raw()) for buffer in buffers) > 100 * count
    assert sizes[1] < sizes[0] + 100
    table = JobTable.of(jobs(1000))
    assert all(table.job(name) == job for name, job in jobs(1000).items())
    for missing in ("f" * 32, "0" * 31 + "g"):
        with pytest.raises(KeyError):
            table.job(missing)


@contextmanager
def queries() -> Iterator[list[str]]:
    """Every statement that SQLAlchemy sends meanwhile."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    sent: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *others: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with 40 results."""
    folder = tmp_path_factory.mktemp("stored")
    plan = planned(folder, 2)
    swept(plan, folder / "results")
    return ready(folder / "results")


@pytest.mark.more
def test_the_mirror_asks_no_more_for_later_trials(stored: Path) -> None:
    names = sorted(Store(stored / "noop").identities())
    tracker = Tracker(None, stored, "noop")
    counts = []
    for part in (names[:10], names[10:20], names[20:30]):
        with queries() as sent:
            tracker.log_stored(part)
            while tracker.waiting:
                time.sleep(0.01)
        counts.append(len(sent))
    assert counts[2] <= SLACK * counts[1]
    tracker.log_stored(names[30:])
    assert tracker.waiting > 2
    assert tracker.finish() == ""


def test_the_profile_adds_up_and_says_where_the_time_went() -> None:
    clock = iter([0.0, 2.0, 2.0, 5.0, 7.0, 8.0])
    phases = Phases(lambda: next(clock))
    with phases.phase("training"):
        pass
    with pytest.raises(ValueError, match="storing"), phases.phase("perturbation"):
        raise ValueError("storing")
    with phases.phase("training"):
        pass
    assert phases.seconds == {"training": 3.0, "perturbation": 3.0}
    profile = Profile({"starting": 2.0, "training": 60.0, "perturbation": 30.0, "storing": 3.0}, 2, 50.0)
    assert profile.work == 93.0
    assert profile.share("training") == 0.6
    assert profile.scheduling == pytest.approx(0.07)
    assert replace(profile, absent=5.0).scheduling == pytest.approx(1 - 93 / 95)  # a slot came 5 s later
    assert console.profile_text(profile) == (
        "time: work 93 % (training 60, perturbation 30, storing 3), scheduling and idle 7 %"
    )


@pytest.mark.long
@pytest.mark.more
def test_tune_copies_no_list_of_all_jobs_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On real Ray, a trial a job: the calls of the driver beside its waiting, which depends on the clock."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "platform")]))
    copies = []
    for rates in (1, 3, 5):
        folder = tmp_path / str(rates)
        folder.mkdir()
        plan = planned(folder, rates)
        plan = replace(plan, packs=tuple(pack_of([trial]) for trial in plan.trials))
        profile = cProfile.Profile()
        done = profile.runcall(run, plan, workspace=ROOT, results=folder / "results", work=noop.no_work)
        assert len(done.finished) == len(plan.trials)
        assert 0 < done.profile.work < done.profile.slots * done.profile.makespan
        stats = profile.getstats()
        copies.append(sum(entry.callcount for entry in stats if getattr(entry.code, "co_name", "") == "deepcopy"))
    assert copies[2] - copies[1] <= SLACK * (copies[1] - copies[0])
