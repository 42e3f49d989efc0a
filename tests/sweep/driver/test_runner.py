"""The runner on real Ray and inline: same numbers, only the culprit fails, and a stop is clean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pandas as pd
import pytest

from memsweep.errors import ConfigError, MemsweepError
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.progress import Snapshot
from memsweep.sweep.driver.runner import RunSummary, run
from memsweep.sweep.ray import session
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress
from paths import ROOT, python_path
from processes import carriers_of, wait_for
from runner_work import HOG, KILLER, RAISER, planned, tiny, troubled

INLINE = Launch(inline=True)


@pytest.fixture
def workers_see_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers unpickle what a test gives them to do by its name in ``runner_work``."""
    monkeypatch.setenv("PYTHONPATH", python_path())


@pytest.mark.more
def test_ray_and_inline_give_the_same_numbers_and_only_the_culprits_fail(
    tmp_path: Path, workers_see_the_tests: None, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = planned(
        [
            [tiny(KILLER), tiny(1), tiny(2)],
            [tiny(RAISER), tiny(3)],
            [tiny(HOG), tiny(4, width=3)],
            [tiny(5), tiny(6, width=3)],
        ]
    )
    seed_of = {trial.identity: trial.config.training.first_seed for trial in plan.trials}
    seen: list[Snapshot] = []
    delivered: list[str] = []
    summary = run(
        plan,
        workspace=ROOT,
        results=tmp_path / "ray",
        on_progress=seen.append,
        on_result=delivered.append,
        work=troubled,
    )

    assert sorted(seed_of[name] for name in summary.finished) == [1, 2, 3, 4, 5, 6], summary.failed
    assert (summary.done, summary.diverged, summary.interrupted) == (6, 0, False)
    failed = {seed_of[name]: failure for name, failure in summary.failed.items()}
    assert set(failed) == {KILLER, RAISER, HOG}
    assert failed[RAISER]["error"] == "ValueError: a fault of the task"
    assert failed[HOG]["outcome"] == "out_of_memory"
    assert "worker process died" in failed[KILLER]["error"] or failed[KILLER]["outcome"] == "out_of_memory"
    ray_store = Store(tmp_path / "ray" / "demo")
    assert set(ray_store.failures()) == set(summary.failed)
    assert ray_store.identities() == set(summary.finished)

    assert sorted(delivered) == sorted(summary.finished)
    first, last = seen[0], seen[-1]
    assert (first.total, first.finished, first.failed, first.fraction) == (9, 0, 0, 0.0)
    assert (last.finished, last.failed, last.running, last.eta, last.note) == (6, 3, 0, 0.0, "")
    assert last.fraction == pytest.approx(1.0)
    assert any("again, after a failure" in snapshot.note for snapshot in seen)
    assert capfd.readouterr() == ("", "")  # Ray says nothing, not even of the worker that was killed

    # The same packs with nothing wrong in them, in this process: bit for bit what Ray's workers found.
    alone = planned([[tiny(1), tiny(2)], [tiny(3)], [tiny(4, width=3)], [tiny(5), tiny(6, width=3)]])
    assert run(alone, workspace=ROOT, results=tmp_path / "inline", launch=INLINE).done == 6
    inline_store = Store(tmp_path / "inline" / "demo")
    assert inline_store.identities() == ray_store.identities()
    for name in inline_store.identities():
        mine, theirs = inline_store.tables(name), ray_store.tables(name)
        for table in mine:
            pd.testing.assert_frame_equal(mine[table], theirs[table], check_exact=True)
        assert inline_store.record(name)["summary"] == ray_store.record(name)["summary"]


@pytest.mark.more
def test_inline_has_the_same_failures_and_never_imports_ray(tmp_path: Path) -> None:
    code = f"""
import sys, json
from pathlib import Path
from runner_work import HOG, RAISER, planned, tiny, troubled
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run
plan = planned([[tiny(RAISER), tiny(3)], [tiny(HOG)], [tiny(5)]])
summary = run(plan, workspace=Path({str(ROOT)!r}), results=Path({str(tmp_path)!r}),
              launch=Launch(inline=True), work=troubled)
seeds = {{trial.identity: trial.config.training.first_seed for trial in plan.trials}}
print(json.dumps({{"done": summary.done, "ray": "ray" in sys.modules,
                  "failed": {{seeds[name]: failure["outcome"] for name, failure in summary.failed.items()}}}}))
"""
    done = subprocess.run([sys.executable, "-c", code], env=_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "done": 2,
        "ray": False,
        "failed": {str(RAISER): "failed", str(HOG): "out_of_memory"},
    }


def test_a_failure_is_forgotten_when_the_next_run_succeeds(tmp_path: Path) -> None:
    plan = planned([[tiny(RAISER)]])
    first = run(plan, workspace=ROOT, results=tmp_path, launch=INLINE, work=troubled)
    assert len(first.failed) == 1
    assert run(plan, workspace=ROOT, results=tmp_path, launch=INLINE).done == 1
    assert not Store(tmp_path / "demo").failures()


@pytest.mark.more
def test_an_error_of_the_listener_is_told_after_everything_has_run(tmp_path: Path) -> None:
    def refuse(identity: str) -> None:
        raise OSError("the listener's disk is full")

    plan = planned([[tiny(0)], [tiny(1)]])
    with pytest.raises(OSError, match="listener's disk"):
        run(plan, workspace=ROOT, results=tmp_path, launch=INLINE, on_result=refuse)
    assert len(Store(tmp_path / "demo").identities()) == 2


def silent(job: PackJob, progress: Progress) -> PackReport:
    return PackReport()


def test_a_trial_that_a_worker_does_not_mention_is_not_lost(tmp_path: Path) -> None:
    plan = planned([[tiny(0), tiny(1)]])
    summary = run(plan, workspace=ROOT, results=tmp_path, launch=INLINE, work=silent)
    assert set(summary.failed) == {trial.identity for trial in plan.trials}
    assert set(Store(tmp_path / "demo").failures()) == set(summary.failed)


def test_nothing_left_to_do_starts_nothing(tmp_path: Path) -> None:
    assert run(planned([]), workspace=ROOT, results=tmp_path) == RunSummary()
    assert list(tmp_path.iterdir()) == []


def test_a_pack_that_no_machine_can_hold_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"resources\.cpus is 4096"):
        run(planned([[tiny(0)]], cpus=4096), workspace=ROOT, results=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()


@pytest.mark.more
def test_a_cluster_that_gives_no_answer_is_said_in_words_and_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_JOIN_TIMEOUT", 4.0)  # the real limit only takes longer
    with pytest.raises(
        MemsweepError, match=r"no Ray cluster could be joined at '127\.0\.0\.1:1'.*no answer within 4 s"
    ):
        run(planned([[tiny(0)]]), workspace=ROOT, results=tmp_path, launch=Launch(address="127.0.0.1:1"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.drill
@pytest.mark.parametrize("how", [pytest.param("ctrl-c", marks=pytest.mark.long), "sigterm"])
def test_a_stop_ends_the_run_keeps_results_and_leaves_no_process(tmp_path: Path, how: str) -> None:
    token = f"memsweep-test-{uuid.uuid4().hex}"
    code = f"""
from pathlib import Path
from runner_work import endless, planned, tiny
from memsweep.sweep.driver.runner import run
plan = planned([[tiny(1)], [tiny(2)], [tiny(3)], [tiny(4)]])
summary = run(plan, workspace=Path({str(tmp_path)!r}), results=Path({str(tmp_path)!r}), work=endless)
print(summary.interrupted, summary.done, len(summary.failed))
"""
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=_environment() | {"MEMSWEEP_TEST_TOKEN": token},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a shell gives to a command
    )
    try:
        store = Store(tmp_path / "demo")
        wait_for(lambda: store.failures() or (list(tmp_path.glob("busy-*")) and store.identities()), process.poll)
        assert store.failures() == {}
        if how == "ctrl-c":
            os.killpg(process.pid, signal.SIGINT)  # a terminal signals the whole group
        else:
            process.send_signal(signal.SIGTERM)
        shown, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    assert shown.strip() == "True 1 0"
    assert process.returncode == 0
    assert len(store.identities()) == 1
    wait_for(lambda: not carriers_of(token))


def _environment() -> dict[str, str]:
    """As a person's shell has it: nothing says how Ray shall authenticate, so the runner does."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    return inherited | {"PYTHONPATH": python_path()}
