"""resume, extend, retry, status: each says what it will do, does that and no more."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from memsweep.cli import main
from memsweep.config.load.study import load_study
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import GIVE_UP_AFTER, Journal, State, TrialStatus, read_statuses
from memsweep.sweep.store.lease import hold_lease
from memsweep.sweep.store.record import sealed
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from paths import ROOT
from sweeping import BASE, ready, runs_of, snapshot, sweep

STUDY = "small"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A study file, and the results of its sweep: four trials."""
    folder = tmp_path_factory.mktemp("verbs")
    study = folder / f"{STUDY}.yaml"
    study.write_text(f"# Four small trials.\n{BASE}grid: {{model.width: [2, 3], task.horizon: [8, 10]}}\n")
    assert sweep(study, ready(folder / "results"), "--inline") == 0
    return study, folder / "results"


@pytest.fixture
def study(swept: tuple[Path, Path]) -> Path:
    return swept[0]


@pytest.fixture
def results(swept: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the results, to be broken."""
    return Path(shutil.copytree(swept[1], tmp_path / "results"))


def verb(name: str, results: Path, *words: str) -> int:
    return main([name, *words, "--results", str(results), "--workspace", str(ROOT)])


def tables(results: Path) -> dict[str, pd.DataFrame]:
    store = Store(results / STUDY)
    return {name: store.table(name) for name in table_names()}


def test_resume_finishes_what_is_missing_and_mends_what_is_damaged(
    results: Path, swept: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    store, whole = Store(results / STUDY), tables(swept[1])
    lost, cut, zeroed, *kept = sorted(store.identities())
    (store.folder / "records" / f"{lost}.json").unlink()
    record = store.folder / "records" / f"{cut}.json"
    record.write_bytes(record.read_bytes()[:100])
    table = store.folder / "curves" / f"{zeroed}.parquet"
    table.write_bytes(bytes(table.stat().st_size))
    before = snapshot(store.folder)
    assert verb("resume", results, STUDY, "--inline") == 0
    told = capsys.readouterr().out
    assert f"{STUDY}: 4 trials: 1 done, 3 to run in 1 pack, 1 of them only measured, from stored weights" in told
    assert f"{cut}: damaged, recomputed: " in told
    assert f"{zeroed}: damaged, recomputed: " in told
    for name, frame in tables(results).items():
        pd.testing.assert_frame_equal(frame, whole[name], check_exact=True)
    for name in kept:
        untouched = {path for path in before if Path(path).stem == name}
        assert {f"{folder}/{name}.parquet" for folder in ("curves", "replicas")} < untouched
        assert all(snapshot(store.folder)[path] == before[path] for path in untouched)
    assert len(list((store.folder / ".set-aside").iterdir())) == 2
    _, parents, children = runs_of(results)
    assert [run.info.status for run in parents] == ["FINISHED"]  # resume goes on with the sweep's own run
    assert len(children) == 4


@pytest.mark.more
def test_resume_of_a_finished_study_trains_nothing(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(results / STUDY / "records")
    assert verb("resume", results, STUDY, "--inline") == 0
    told = capsys.readouterr().out
    assert "4 trials: 4 done, nothing to run" in told
    assert "4/4 done, 4 of them reused" in told
    assert snapshot(results / STUDY / "records") == before


@pytest.mark.parametrize("lost", ["report/index.html", "mlflow.db", "a page of mlflow.db", "the description"])
def test_what_a_complete_study_lacks_is_made_again(tmp_path: Path, lost: str) -> None:
    """A run notes that the study is complete; the next run does nothing only where all of that is still there."""
    study, results = tmp_path / f"{STUDY}.yaml", ready(tmp_path / "results")
    text = f"# One small trial.\n{BASE}grid: {{model.width: [2]}}\n"
    study.write_text(text)
    assert sweep(study, results, "--inline") == 0
    page, database = results / STUDY / "report/index.html", results / "mlflow.db"
    written = page.stat().st_mtime_ns
    match lost:
        case "report/index.html":
            page.unlink()
        case "mlflow.db":
            database.unlink()
        case "a page of mlflow.db":
            data = bytearray(database.read_bytes())
            data[100:4096] = bytes(3996)
            database.write_bytes(data)
        case _:
            study.write_text(text.replace("One", "A"))
    assert sweep(study, results, "--inline") == 0
    assert page.stat().st_mtime_ns > written
    if lost == "mlflow.db":
        assert len(runs_of(results)[2]) == 1


def test_resume_with_other_code_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plan.json", "plan.copy.json"):
        path = results / STUDY / name
        plan = json.loads(path.read_text())
        plan["trials"][0]["identity"] = "f" * 32
        path.write_text(json.dumps(sealed(plan)))
    before = snapshot(results)
    assert verb("resume", results, STUDY, "--inline") == 2
    assert "1 of the 4 trials of 'small' have another identity" in capsys.readouterr().err
    assert snapshot(results) == before


@pytest.mark.more
def test_a_damaged_plan_is_read_from_its_copy(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for damaged in ("plan.json", "plan.copy.json"):
        (results / STUDY / damaged).write_text('{"schema": 2, "study": "sm')
        assert verb("resume", results, STUDY, "--inline") == 0
        assert "4 trials: 4 done" in capsys.readouterr().out
    for damaged in ("plan.json", "plan.copy.json"):
        (results / STUDY / damaged).write_text("")
    assert verb("resume", results, STUDY, "--inline") == 4
    assert "run the study file once more" in capsys.readouterr().err


def test_extend_adds_the_seeds_that_are_missing_and_no_others(
    results: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(results / STUDY / "records")
    assert verb("extend", results, str(study), "training.seeds=5", "--inline") == 0
    told = capsys.readouterr().out
    assert "8 trials: 4 done, 4 to run" in told
    assert "4 trials added to the plan" in told
    assert before.items() <= snapshot(results / STUDY / "records").items()
    replicas = tables(results)["replicas"]
    assert sorted(replicas["seed"].unique()) == [0, 1, 2, 3, 4]
    assert not replicas.duplicated(["width", "horizon", "seed"]).any()
    # the same numbers as those of one trial with all seeds
    alone = ready(results.parent / "alone")
    assert sweep(study, alone, "training.seeds=5", "model.width=2", "task.horizon=8", "--inline") == 0
    ours = replicas[(replicas["width"] == 2) & (replicas["horizon"] == 8)].sort_values("seed")
    theirs = tables(alone)["replicas"].sort_values("seed")
    assert ours["error"].tolist() == theirs["error"].tolist()
    assert verb("extend", results, str(study), "training.seeds=5", "--inline") == 0
    assert "8 trials: 8 done, nothing to run" in capsys.readouterr().out
    assert verb("extend", results, str(study), "--inline") == 2
    assert "has these 4 trials already" in capsys.readouterr().err


@pytest.mark.more
def test_extend_adds_widths_and_resume_knows_them(
    results: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verb("extend", results, str(study), "model.width=4", "--inline") == 0
    assert "6 trials: 4 done, 2 to run" in capsys.readouterr().out
    assert sorted(tables(results)["replicas"]["width"].unique()) == [2, 3, 4]
    assert verb("resume", results, STUDY, "--inline") == 0
    assert "6 trials: 6 done, nothing to run" in capsys.readouterr().out


@pytest.mark.more
def test_a_sweep_of_other_rows_cancels_those_that_it_leaves_out(
    results: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(study, results, "model.width=2", "--inline") == 0
    assert "2 trials no longer planned: cancelled; results stay" in capsys.readouterr().out
    assert len(Store(results / STUDY).identities()) == 4
    assert verb("status", results, STUDY) == 0
    told = capsys.readouterr().out
    assert "2 of 2 trials have a result" in told
    assert "2 cancelled" in told


@pytest.mark.more
def test_what_failed_three_times_in_one_way_is_left_alone_until_forced(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(results / STUDY)
    bad, other = sorted(store.identities())[:2]
    for name in (bad, other):
        store.set_aside(name)
    rows = read_statuses(store.location)
    way = "failed: ValueError: #"
    Journal(
        store.location,
        rows | {bad: TrialStatus(State.FAILED, "", GIVE_UP_AFTER, way), other: TrialStatus(State.FAILED, "", 1, way)},
    )
    store.fail(
        bad, {"outcome": "failed", "error": "ValueError: 1", "traceback": "", "time": "2026-01-01T00:00:00+00:00"}
    )
    assert verb("status", results, STUDY) == 0
    told = capsys.readouterr().out
    assert "ValueError: 1." in told
    assert "tried 3 times at most, and failed in the same way" in told
    assert verb("retry", results, STUDY, "--inline") == 1
    told = capsys.readouterr().out
    assert f"1 trial gave up after 3 failures in the same way: {way}" in told
    assert "memsweep retry small --force" in told
    assert store.has(other)
    assert not store.has(bad)
    assert verb("resume", results, STUDY, "--inline") == 1
    assert not store.has(bad)
    assert verb("retry", results, STUDY, "--force", "--inline") == 0
    assert store.has(bad)
    assert read_statuses(store.location)[bad].failures == 0


def test_what_was_given_up_when_its_driver_died_is_forced_by_the_command_that_is_named(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(results / STUDY)
    bad = min(store.identities())
    store.set_aside(bad)
    given_up = TrialStatus(State.QUEUED, "", GIVE_UP_AFTER, "failed: the worker process died")
    Journal(store.location, read_statuses(store.location) | {bad: given_up})
    assert verb("retry", results, STUDY, "--inline") == 1
    assert "memsweep retry small --force" in capsys.readouterr().out
    assert verb("retry", results, STUDY, "--force", "--inline") == 0
    assert store.has(bad)


@pytest.mark.more
def test_retry_runs_what_failed_and_nothing_else(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(results / STUDY)
    failed, waiting = sorted(store.identities())[:2]
    for name in (failed, waiting):
        store.set_aside(name)
    rows = read_statuses(store.location)
    Journal(store.location, rows | {failed: TrialStatus(State.FAILED, "", 1, "x"), waiting: TrialStatus(State.QUEUED)})
    assert verb("retry", results, STUDY, "--inline") == 0
    assert "1 to run in 1 pack, 1 not now (memsweep resume small" in capsys.readouterr().out
    assert (store.has(failed), store.has(waiting)) == (True, False)
    _, (parent,), _ = runs_of(results)
    assert parent.info.status == "KILLED"  # not all rows have ended
    assert verb("resume", results, STUDY, "--inline") == 0
    assert store.has(waiting)


def test_status_counts_rows_as_a_new_driver_would_find_them(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(results / STUDY)
    ran = sorted(store.identities())[0]
    store.set_aside(ran)
    Journal(store.location, read_statuses(store.location) | {ran: TrialStatus(State.RUNNING)})
    before = snapshot(results)
    assert verb("status", results, STUDY) == 0
    told = capsys.readouterr().out
    assert "3 of 4 trials have a result" in told
    assert "1 queued" in told
    assert " running  " not in told
    assert "not running; to finish it" in told
    assert "to finish it: memsweep resume small" in told
    with hold_lease(store.location, lambda: None):
        assert verb("status", results, STUDY) == 0
        told = capsys.readouterr().out
        assert "1 running" in told
        assert "running: process" in told
        assert verb("resume", results, STUDY, "--inline") == 4
        assert "another driver is at work" in capsys.readouterr().err
    shutil.rmtree(results / STUDY / "lease")
    assert snapshot(results) == before


def test_status_watches_until_nobody_runs_the_study(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps, running = list[float](), contextlib.ExitStack()

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            running.close()

    with running:
        running.enter_context(hold_lease(Store(results / STUDY).location, lambda: None))
        monkeypatch.setattr("memsweep.commands.look.time.sleep", nap)
        assert verb("status", results, STUDY, "--watch") == 0
    shown = capsys.readouterr().out
    assert len(naps) == 2
    assert shown.count("running: process") == 1  # what has not changed is not printed again
    assert shown.rstrip().endswith("not running")
    assert verb("status", results, STUDY, "--watch", "--json") == 2
    assert "leave one of them out" in capsys.readouterr().err


def test_an_unknown_study_is_refused_with_those_that_are_there(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("resume", "retry", "status", "report", "sync"):
        assert verb(name, results, "smal") == 2
        assert "no results of a study 'smal'" in (told := capsys.readouterr().err)
        assert "Did you mean 'small'?" in told
    assert not (results / "smal").exists()


def test_a_study_is_found_by_its_folder_too(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(results / STUDY)]) == 0
    assert "4 of 4 trials have a result" in capsys.readouterr().out


_REPORT = """
import sys
from memsweep import registry
from memsweep.cli import main
assert main(sys.argv[1:]) == 0
print("torch" in sys.modules, "of_the_workspace" in registry.names(registry.PARAMETERIZATION))
"""


@pytest.mark.more
def test_a_report_imports_no_torch_and_nothing_of_the_workspace(results: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "own.py").write_text(
        "from memsweep.models.parameterizations.maps import Exp\n"
        "from memsweep.registry import register_parameterization\n"
        "@register_parameterization('of_the_workspace')\n"
        "class Own(Exp):\n"
        "    '''Exp by another name.'''\n"
    )
    words = ["report", STUDY, "--results", str(results), "--workspace", str(tmp_path)]
    ran = subprocess.run([sys.executable, "-c", _REPORT, *words], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False False"


def test_the_stored_plan_is_the_study_again(results: Path, study: Path) -> None:
    from memsweep.sweep.planning.plan_file import read_plan

    stored = read_plan(Location.at(results / STUDY))
    assert stored is not None
    assert stored.sweep() == load_study(str(study), (), ROOT)
