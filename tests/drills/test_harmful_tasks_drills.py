"""Tasks that do harm, on real Ray and in processes of their own, which they may hang, kill and copy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harmful_work import HUNGRY, RAISED, Site, healthy, job_of, members, poisoned, same_bits, swept, workspace_in
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.planning.identity import identity
from memsweep.sweep.worker.execute import PackReport
from memsweep.sweep.worker.failure import TIME_LIMIT
from memsweep.sweep.worker.job import take_report
from paths import python_path
from processes import carriers_of, wait_for
from tally import Tally


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace_in(tmp_path_factory.getbasetemp() / "poison")  # one for the process


@pytest.fixture
def site(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("PYTHONPATH", python_path())
    return Site(workspace, tmp_path)


HANGING = """
import sys
from pathlib import Path
from harmful_work import Site, counted, job_of, members, registry
site = Site(Path(sys.argv[1]), Path(sys.argv[2]))
registry.discover(site.workspace)
job = job_of(site, members(sys.argv[3]), time_limit=3.0, inline=sys.argv[4] == "inline")
counted(job, lambda *_: None)
"""


@pytest.mark.drill
@pytest.mark.parametrize(
    ("poison", "inline"),
    [
        ("sleep", True),
        ("native", False),
        pytest.param("native", True, marks=pytest.mark.long),
        pytest.param("sleep", False, marks=pytest.mark.long),
    ],
)
def test_a_worker_that_hangs_tells_the_store_and_ends(site: Site, poison: str, inline: bool, tally: Tally) -> None:
    words = [str(site.workspace), str(site.results), poison, "inline" if inline else "worker"]
    command = [sys.executable, "-c", HANGING, *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1, ended.stderr
    first, sick, last = map(identity, members(poison))
    ((name, failure),) = site.store.failures().items()
    assert (name, failure["cause"], failure["outcome"]) == (sick, TIME_LIMIT, "failed")
    assert f"in {'native' if poison == 'native' else '<lambda>'}" in failure["traceback"]
    assert site.store.identities() == {first}
    said = take_report(site.store, job_of(site, members(poison)).pack)
    if inline:
        assert said is None
        assert ended.stderr.startswith("memsweep: TimeLimitError: the time limit of this trial, 3 s, was exceeded")
    else:
        assert said is not None
        report = PackReport.from_json(said)
        assert (report.finished, report.culprits, set(report.failed)) == ({first: "done"}, (sick,), {sick, last})
        assert "its worker ended at another trial's time limit" in report.failed[last]["error"]
    whole = members("none")[:1]
    tally.record("poison: a hanging trial", 1, site.lost(whole), site.rerun(), same_bits(site, whole))


@pytest.mark.drill
@pytest.mark.long
def test_a_worker_whose_interpreter_is_stuck_ends_at_last(site: Site, tally: Tally) -> None:
    command = [sys.executable, "-c", HANGING, str(site.workspace), str(site.results), "stuck", "worker"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    whole = members("none")[:1]
    tally.record("poison: a hanging trial", 1, site.lost(whole), site.rerun(), same_bits(site, whole))
    assert ended.returncode == 1
    assert "in stuck" in ended.stderr
    assert site.store.identities() == {identity(whole[0])}


def judge(
    site: Site,
    packs: list[list[TrialConfig]],
    sick: dict[str, tuple[str, str]],
    note: Callable[[int, int, int, bool], None],
    **resources: float,
) -> None:
    """Sweep on Ray; the sick trials end as they shall (identity -> outcome and words), the others as they do alone."""
    everybody = [config for pack in packs for config in pack]
    expected = {name: outcome for name, (outcome, _) in sick.items() if outcome in ("failed", "out_of_memory")}
    others = [config for config in everybody if identity(config) not in expected]
    summary = swept(site, packs, Launch(), **resources)
    lost, rerun = site.lost(others), site.rerun()
    equal = not lost and same_bits(site, [config for config in others if identity(config) not in sick])
    note(len(sick), lost, rerun, equal)
    assert {name: failure["error"] for name, failure in summary.failed.items() if name not in expected} == {}
    assert {name: failure["outcome"] for name, failure in summary.failed.items()} == expected
    for name in expected:
        assert sick[name][1] in summary.failed[name]["error"], summary.failed[name]["error"]
    assert (lost, rerun, equal) == (0, 0, True)
    assert set(summary.finished) == {identity(config) for config in everybody} - set(expected)


@pytest.mark.drill
@pytest.mark.long
def test_on_ray_whatever_is_raised_costs_nobody_else_anything(
    site: Site, capfd: pytest.CaptureFixture[str], tally: Tally
) -> None:
    sick = {poison: poisoned(poison) for poison in [*RAISED, "interrupt", "shout", "change"]}
    words = RAISED | {"interrupt": "KeyboardInterrupt", "shout": "", "change": "ValueError: everything is changed"}
    outcomes = {
        identity(config): (
            "done" if poison == "shout" else "out_of_memory" if poison in HUNGRY else "failed",
            words[poison],
        )
        for poison, config in sick.items()
    }
    others = iter(healthy(2 * len(sick)))
    packs = [[next(others), config, next(others)] for config in sick.values()]
    judge(site, packs, outcomes, partial(tally.record, "poison: a task that raises, or prints garbage"))
    told = capfd.readouterr()
    assert "poison-garbage" not in told.out + told.err
    assert len(told.out + told.err) < 2_000


@pytest.mark.drill
def test_on_ray_a_changed_process_is_put_back_for_the_next_trial(
    site: Site, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    token = f"memsweep-test-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("MEMSWEEP_TEST_TOKEN", token)
    quiet = ["leave changed", "no folder", "closed", "sleeper", "copy"]
    sick = {poison: poisoned(poison) for poison in quiet}
    others = iter(healthy(2 * len(sick)))
    packs = [[config] for poison in quiet for config in (next(others), sick[poison], next(others))]
    # the poison leaves the numbers of its own trial alone: one worker runs all, in this order
    judge(
        site,
        packs,
        dict.fromkeys(map(identity, sick.values()), ("done", "")),
        partial(tally.record, "poison: a task that changes its process"),
        max_concurrent=1,
    )
    left = [pid for pid in carriers_of(token) if pid != os.getpid()]
    for pid in left:
        assert "sleep" not in Path(f"/proc/{pid}/comm").read_text()
    wait_for(lambda: not [pid for pid in carriers_of(token) if pid != os.getpid()], seconds=30)


@pytest.mark.drill
def test_on_ray_a_worker_that_dies_takes_nobody_with_it(site: Site, tally: Tally) -> None:
    sick = {poison: poisoned(poison) for poison in ("leave", "abort", "segfault")}
    others = iter(healthy(2 * len(sick)))
    packs = [[next(others), config, next(others)] for config in sick.values()]
    judge(
        site,
        packs,
        dict.fromkeys(map(identity, sick.values()), ("failed", "the worker process died")),
        partial(tally.record, "poison: a task that ends its process"),
    )


@pytest.mark.drill
def test_on_ray_what_hangs_ends_at_its_limit(site: Site, tally: Tally) -> None:
    sick = {poison: poisoned(poison) for poison in ("spin", "sleep", "native")}
    others = iter(healthy(2 * len(sick)))
    packs = [[next(others), config, next(others)] for config in sick.values()]
    outcomes = dict.fromkeys(
        map(identity, sick.values()), ("failed", "TimeLimitError: the time limit of this trial, 5 s")
    )
    judge(site, packs, outcomes, partial(tally.record, "poison: a hanging trial"), time_limit=5.0)
    failures = site.store.failures()
    assert [failures[identity(config)]["cause"] for config in sick.values()] == [TIME_LIMIT] * 3


@pytest.mark.drill
def test_on_ray_a_greedy_trial_meets_its_own_limit(site: Site, tally: Tally) -> None:
    sick, others = poisoned("greedy"), healthy(4)
    packs = [[others[0], others[1]], [others[2], sick, others[3]]]
    judge(
        site,
        packs,
        {identity(sick): ("out_of_memory", "GiB at most")},
        partial(tally.record, "poison: a greedy trial"),
        memory=1.0,
    )
    (failure,) = site.store.failures().values()
    assert 0 < failure["peak_memory"] < 4 * 2**30


@pytest.mark.drill
@pytest.mark.parametrize("inline", [True, False])
def test_a_copy_of_the_process_computes_nothing(site: Site, inline: bool, tally: Tally) -> None:
    """It would go on with the trials after its own, beside the process that it is a copy of."""
    words = [str(site.workspace), str(site.results), "copy", "inline" if inline else "worker"]
    subprocess.run([sys.executable, "-c", HANGING, *words], capture_output=True, timeout=120, check=True)
    everybody = members("copy")
    whole = [everybody[0], everybody[2]]
    tally.record(
        "poison: a task that changes its process", 1, site.lost(everybody), site.rerun(), same_bits(site, whole)
    )
    assert site.computed() == 3
    assert site.store.identities() == set(map(identity, everybody))
