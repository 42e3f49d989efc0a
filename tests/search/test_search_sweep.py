"""A search as a sweep: real trials, the plan, the round log, the report, and every verb on it."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from memsweep.cli import main
from memsweep.report.read.study import load_study
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.lease import hold_lease
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from paths import ROOT
from sweeping import BASE, ready

STUDY = "found"
SEARCH = """
grid: {model.width: [2, 3]}
search:
  training.learning_rate: {log_uniform: [1e-4, 1]}
  trials: 4
  batch: 2
  startup: 2
  scheduler: {name: asha, grace: 10, reduction: 2}
confirm: {seeds: 3, top: 1}
claims: [{metric: error, direction: greater, left: {model.width: 2}, right: {model.width: 3}}]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("search") / f"{STUDY}.yaml"
    path.write_text(f"# A small search.\n{BASE}{SEARCH}")
    return path


@pytest.fixture(scope="module")
def whole(file: Path) -> Path:
    """Results of the search in one go."""
    results = ready(file.parent / "whole")
    assert verb("sweep", results, str(file)) == 0
    return results


def verb(name: str, results: Path, *words: str) -> int:
    return main([name, *words, "--results", str(results), "--workspace", str(ROOT), "--inline"])


def rows(results: Path) -> list[str]:
    plan = read_plan(Location.at(results / STUDY))
    assert plan is not None
    return list(plan.rows)


def rounds(results: Path) -> dict[str, bytes]:
    """The round log, file by file."""
    folder = results / STUDY / "search"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def same(one: Path, other: Path) -> None:
    """Two searches did and found the same, bit for bit."""
    assert rows(one) == rows(other)
    assert rounds(one) == rounds(other)
    for name in table_names():
        pd.testing.assert_frame_equal(
            Store(one / STUDY).table(name), Store(other / STUDY).table(name), check_exact=True
        )


@pytest.mark.drill
def test_a_search_that_is_stopped_again_and_again_ends_with_the_same_table(file: Path, whole: Path) -> None:
    results = file.parent / "stopped"
    code = verb("sweep", results, str(file), "--max-trials", "3")
    assert code == 3
    for _ in range(20):
        code = verb("resume", results, STUDY, "--max-trials", "4")
        if code == 0:
            break
        assert code == 3
    assert code == 0
    same(results, whole)


@pytest.mark.drill
@pytest.mark.long
@pytest.mark.s3
@pytest.mark.usefixtures("s3")
def test_a_search_in_a_bucket_is_the_one_on_a_disk(
    file: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its round log, too, stopped and gone on with."""
    monkeypatch.chdir(tmp_path)  # the database of runs lies in the working folder
    uri = f"s3://studies/{uuid.uuid4().hex}"
    words = ["--results", uri, "--workspace", str(ROOT), "--inline"]
    assert main(["sweep", str(file), "--max-trials", "7", *words]) == 3
    assert main(["resume", STUDY, *words]) == 0
    place = Location.at(uri) / STUDY
    plan = read_plan(place)
    assert plan is not None
    assert list(plan.rows) == rows(whole)
    for name, content in rounds(whole).items():
        assert place.read(f"search/{name}") == content
    for name in table_names():
        pd.testing.assert_frame_equal(Store(place).table(name), Store(whole / STUDY).table(name), check_exact=True)


def test_suggestions_run_where_a_process_runs_the_study(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = file.parent / "looked_at"
    assert verb("sweep", results, str(file), "--max-trials", "3") == 3
    words, store = ("status", STUDY, "--results", str(results)), Store(results / STUDY)
    capsys.readouterr()
    assert main([*words]) == 0
    assert "in a round that has not ended); more rounds follow" in (told := capsys.readouterr().out)
    assert " running" not in told.replace("not running", "")
    with hold_lease(store.location, lambda: None):
        assert main([*words]) == 0
    assert "in a round that has not ended); more rounds follow" in capsys.readouterr().out


def test_the_same_command_again_does_nothing(file: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = rounds(whole)
    assert verb("sweep", whole, str(file)) == 0
    told = capsys.readouterr().out
    assert f"{len(rows(whole))} done, nothing to run" in told
    assert rounds(whole) == before


@pytest.mark.more
def test_another_folder_of_results_is_reused_round_after_round(
    file: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = file.parent / "other.yaml"
    other.write_text(file.read_text())
    assert verb("sweep", whole, str(other)) == 0
    assert "nothing to run" in capsys.readouterr().out


def test_rows_that_were_stopped_are_never_finished_ones(whole: Path) -> None:
    store = Store(whole / STUDY)
    stopped = [record for record in store.records() if record["config"]["training"]["until"]]
    assert stopped
    assert {record["outcome"] for record in stopped} <= {"stopped_early", "diverged"}
    finished = [record for record in store.records() if not record["config"]["training"]["until"]]
    assert not {record["identity"] for record in stopped} & {record["identity"] for record in finished}
    trained = store.table("replicas").set_index("identity")["steps"]
    for record in stopped:
        assert (trained[record["identity"]] <= record["config"]["training"]["until"]).all()


@pytest.mark.more
def test_extend_prolongs_the_search_and_its_confirmation(
    file: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Path(shutil.copytree(whole, tmp_path / "results"))
    before = set(rows(results))
    assert verb("extend", results, str(file), "search.trials=7") == 0
    after = set(rows(results))
    confirmations = {name for name in before if _seeds(results, name) == 3}
    assert before - after <= confirmations  # a new best may have taken a winner's place
    assert len(after) > len(before)
    assert verb("extend", results, str(file), "search.trials=7") == 0  # as after a stop: the same words add nothing
    assert set(rows(results)) == after
    assert verb("extend", results, str(file), "search.algorithm=random") == 2
    assert "differs from the stored one" in capsys.readouterr().err


def test_confirmations_that_an_extension_takes_up_again_are_not_left(
    file: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Path(shutil.copytree(whole, tmp_path / "results"))
    before = set(rows(results))
    capsys.readouterr()
    assert verb("extend", results, str(file), "search.trials=5", "--json") == 0
    told, after = json.loads(capsys.readouterr().out), set(rows(results))
    kept = {name for name in before & after if _seeds(results, name) == 3}
    assert kept, "no winner stayed: the test needs one"
    assert (told["trials"], told["reused"]) == (len(after), len(before & after))
    assert (told["left"], set(told["finished"])) == (0, after - before)


def _seeds(results: Path, name: str) -> int:
    return int(Store(results / STUDY).record(name)["config"]["training"]["seeds"])


def test_states_that_were_handed_on_are_gone_when_all_is_done(whole: Path) -> None:
    folder = whole / STUDY / "states"
    assert not folder.exists() or not list(folder.iterdir())


def test_a_measurement_of_a_search_advises_no_trials_for_it(whole: Path) -> None:
    """They would take the search's own out of its plan: a sweep makes these by itself."""
    command = f"memsweep measure {STUDY} perturbation.reference=self --inline"
    study = replace(load_study(Location.at(whole / STUDY)), name="own", measured=STUDY, search=None, command=command)
    study = replace(study, source="", location=Location.at(whole / "own"))
    assert study.extended_by("training.seeds=9") == ""
    assert study.extended_by("perturbation.starts=3").startswith(command)
