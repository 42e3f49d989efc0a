"""A results folder is copied and moved, and worked on in both places: each stands alone."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.sweep.tracking.uri import default_uri, is_here, tracking_uri
from sweeping import BASE, client_of, ready, runs_of, snapshot


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study file and the results of its sweep."""
    folder = tmp_path_factory.mktemp("moved")
    (folder / "small.yaml").write_text(f"{BASE}grid: {{model.width: [2, 3]}}\n")
    ready(folder / "results")
    assert verb("sweep", folder, "--inline", "--no-page") == 0
    return folder


def verb(name: str, folder: Path, *words: str) -> int:
    """A command that names no place: what was typed is stored as it was typed."""
    with contextlib.chdir(folder):
        return main([name, "./small.yaml" if name in ("sweep", "extend") else "small", *words])


def names(folder: Path, text: str) -> list[str]:
    """The files below a folder that hold a text."""
    return [name for name, (content, _) in snapshot(folder).items() if text.encode() in content]


def artifacts(results: Path) -> dict[str, list[str]]:
    """Run -> names of its artifacts, as MLflow lists them; all of them lie in the folder itself, and can be read."""
    _, parents, children = runs_of(results)
    listed = {}
    for run in [*parents, *children]:
        assert run.info.artifact_uri.startswith(f"{(results / 'mlartifacts').as_uri()}/")
        found = client_of(results).list_artifacts(run.info.run_id)
        listed[run.info.run_id] = [item.path for item in found]
        assert all(Path(client_of(results).download_artifacts(run.info.run_id, item.path)).exists() for item in found)
    return listed


def test_what_is_stored_names_no_place(swept: Path) -> None:
    """But MLflow's database, which makes every path absolute, and is mended when it is opened."""
    assert names(swept / "results", str(swept)) in (["mlflow.db"], [])


def test_an_extension_continues_the_study_s_own_run(swept: Path, tmp_path: Path) -> None:
    """Else each trial would have two runs, one of them with the verdicts from before."""
    copy = Path(shutil.copytree(swept, tmp_path / "copy"))
    (before,) = runs_of(copy / "results")[1]
    for word in ("training.seeds=3", "model.width=2,3,4"):
        assert verb("extend", copy, word, "--inline", "--no-page") == 0
    assert verb("sync", copy) == 0
    _, parents, children = runs_of(copy / "results")
    assert [run.info.run_id for run in parents] == [before.info.run_id]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {before.info.run_id}
    trials = [run.data.tags["memsweep.identity"] for run in children]
    assert (len(trials), len(set(trials))) == (5, 5)
    assert {run.info.status for run in (*parents, *children)} == {"FINISHED"}


def test_a_copy_and_the_original_stand_alone(swept: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(swept, tmp_path / "copy"))
    before = snapshot(swept / "results")
    assert verb("extend", copy, "model.width=2,3,4", "--inline", "--no-page") == 0
    assert verb("resume", copy, "--inline", "--no-page") == 0
    assert verb("report", copy) == 0
    assert verb("sync", copy) == 0
    assert snapshot(swept / "results") == before, "the original has changed"
    assert names(copy / "results", str(swept)) == [], "the copy points to the original"
    listed = artifacts(copy / "results")
    assert len(listed) == 4, "the study's own run, and those of its trials"
    assert all(listed.values())
    assert is_here(swept / "results")


def test_a_relative_uri_is_the_database_of_the_folder_it_is_typed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///results/mlflow.db")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert (
            tracking_uri(None, "results") == default_uri("results") == f"sqlite:///{tmp_path}/{name}/results/mlflow.db"
        )
    for kept in ("sqlite:///:memory:", "sqlite:////somewhere/mlflow.db", "postgresql://host/mlflow"):
        assert tracking_uri(kept, "results") == kept


@pytest.mark.more
def test_a_moved_folder_makes_no_old_place_again(swept: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(swept, tmp_path / "old"))
    assert verb("sync", old) == 0
    new = old.rename(tmp_path / "new")
    assert verb("sweep", new, "--inline", "--no-page") == 0, "nothing is left to run, and the paths are mended"
    assert is_here(new / "results")
    assert all(artifacts(new / "results").values())
    assert verb("extend", new, "training.seeds=3", "--inline", "--no-page") == 0
    assert not old.exists()
    assert names(new / "results", str(old) + "/") == []


@pytest.mark.more
def test_a_database_of_many_folders_stays_as_it_is(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that a person put into the folder's database keep their place, and so does a database elsewhere."""
    copy = Path(shutil.copytree(swept, tmp_path / "copy"))
    with sqlite3.connect(copy / "results" / "mlflow.db") as database:
        database.execute("UPDATE experiments SET artifact_location = 's3://mine/mlartifacts' WHERE name = 'Default'")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(copy / 'results' / 'mlflow.db', tmp_path)}")
    assert verb("sync", copy) == 0
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        places = {place for (place,) in database.execute("SELECT artifact_location FROM experiments")}
    assert places == {"s3://mine/mlartifacts", (swept / "results" / "mlartifacts").as_uri()}
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert verb("sync", copy) == 0
    with sqlite3.connect(copy / "results" / "mlflow.db") as database:
        places = {place for (place,) in database.execute("SELECT artifact_location FROM experiments")}
    assert places == {"s3://mine/mlartifacts", (copy / "results" / "mlartifacts").as_uri()}
