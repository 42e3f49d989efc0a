"""The empty database of MLflow that the cache keeps is the one that MLflow makes, and names no folder."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

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
