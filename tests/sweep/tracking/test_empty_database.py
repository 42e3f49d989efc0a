"""The empty database of MLflow that the cache keeps is the one that MLflow makes, and names no folder."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from memsweep.sweep.tracking.uri import default_uri, is_whole, make_whole


def made(results: Path) -> list[str]:
    """The SQL of the database of a new results folder, without its place and the time.

    Its lines are in order, because MLflow adds constraints and indices in one that varies.
    """
    results.mkdir()
    make_whole(default_uri(results), results)
    with contextlib.closing(sqlite3.connect(results / "mlflow.db")) as database:
        text = "\n".join(database.iterdump()).replace(results.as_uri(), "HERE")
    return sorted(line.strip().rstrip(",") for line in re.sub(r"\d{13}", "TIME", text).splitlines())


def test_a_copy_is_what_mlflow_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first folder's database is MLflow's, the second's a copy, and the third's MLflow's after damage."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("MEMSWEEP_CACHE", str(cache))
    by_mlflow = made(tmp_path / "first")
    (kept,) = cache.iterdir()
    assert str(tmp_path).encode() not in kept.read_bytes()
    before = kept.read_bytes()
    assert made(tmp_path / "second") == by_mlflow
    assert any("HERE/mlartifacts/0" in line for line in by_mlflow)
    assert kept.read_bytes() == before  # it was read, and not made again
    kept.write_bytes(before[:5000])
    assert made(tmp_path / "third") == by_mlflow
    assert is_whole(f"sqlite:///{kept}")


@pytest.mark.parametrize("name", ["why?1", "a%41b", "x #y"])
def test_a_database_lies_in_its_folder_whatever_that_is_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a URI ? and % stand for something else: the runs of two folders would be in one file outside of both."""
    monkeypatch.setenv("MEMSWEEP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / name
    folder.mkdir()
    uri = default_uri(folder)
    make_whole(uri, folder)
    assert is_whole(uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    MlflowClient(uri).create_experiment("own")
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
        assert ("own",) in database.execute("SELECT name FROM experiments").fetchall()
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert {file.parts[0] for file in files} == {name, "cache"}
