"""A results folder that was moved or copied: MLflow's database knows places by their absolute paths, and is mended.

MLflow makes every artifact location absolute, and reads a relative one from wherever a process happens to be.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import MLFLOW_ARTIFACTS, MLFLOW_DATABASE
from memsweep.sweep.tracking.uri import artifact_location, default_uri, home

_PLACES = {"experiments": "artifact_location", "runs": "artifact_uri"}
_SECONDS = 30.0  # that another process may hold the database
_DEFAULT = 0  # MLflow's own experiment, which no sweep uses; it lies where the database was made


def is_here(results: Location | Path) -> bool:
    """Whether the default database of a results folder names places in this folder alone; true without a database."""
    database = home(results) / MLFLOW_DATABASE
    if not database.is_file():
        return True
    try:
        with _opened(f"file:{urllib.parse.quote(str(database))}?mode=ro") as opened:
            return not _moves(opened, _root(results))
    except sqlite3.Error:
        return False


def mend(uri: str, results: Location | Path) -> None:
    """Gives every artifact its place in the results folder, where the database is that of the folder.

    Args:
        uri: the tracking URI; a database elsewhere may serve several results folders, and stays as it is.
        results: the results folder.

    Raises:
        ConnectionError: another process holds the database.
    """
    database = home(results) / MLFLOW_DATABASE
    if uri != default_uri(results) or not database.is_file() or is_here(results):
        return
    try:
        with _opened(f"file:{urllib.parse.quote(str(database))}") as opened:
            opened.execute("PRAGMA secure_delete = ON")  # no page of the file keeps the other path
            opened.execute("BEGIN IMMEDIATE")
            for table, before, after in _moves(opened, _root(results)):
                column = _PLACES[table]
                opened.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (after, before))
            opened.execute("COMMIT")
    except sqlite3.OperationalError as error:
        raise ConnectionError(f"{database}: {error}") from error


def make_whole(uri: str, results: Location | Path) -> None:
    """Makes the default database of a results folder, where it lacks one, whole or not at all.

    MLflow makes its tables step by step in the file itself: a full disk or a kill leaves one that it never opens again.

    Args:
        uri, results: as of ``mend``.
    """
    database = home(results) / MLFLOW_DATABASE
    if uri != default_uri(results) or database.exists():
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    draft = database.with_name(f".{database.name}.{os.getpid()}")
    try:
        made = SqlAlchemyStore(f"sqlite:///{draft}", _root(results))
        made._dispose_engine()
        if not database.exists():
            draft.replace(database)
    finally:
        draft.unlink(missing_ok=True)


def _root(results: Location | Path) -> str:
    return artifact_location(default_uri(results), results) or ""


@contextlib.contextmanager
def _opened(address: str) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=_SECONDS, isolation_level=None)) as database:
        yield database


def _moves(database: sqlite3.Connection, root: str) -> list[tuple[str, str, str]]:
    """(table, place that is stored, place in this folder) of all that differ."""
    rows = database.execute("SELECT experiment_id, artifact_location FROM experiments").fetchall()
    old = {place for _, place in rows if place and _is_local(place) and place.endswith(f"/{MLFLOW_ARTIFACTS}")} - {root}
    default = [("experiments", place, f"{root}/{number}") for number, place in rows if number == _DEFAULT]
    moves = [move for move in default if move[1] != move[2] and _is_local(move[1])]
    for table, column in _PLACES.items():
        for (place,) in database.execute(f"SELECT DISTINCT {column} FROM {table}"):
            if before := _above(place, old):
                moves.append((table, place, root + place[len(before) :]))
    return moves


def _above(place: str | None, folders: Iterable[str]) -> str:
    """Which of these folders a place is, or lies in; empty where it is none of them."""
    return next((each for each in folders if place and (place == each or place.startswith(f"{each}/"))), "")


def _is_local(place: str) -> bool:
    return place.startswith(("file:", "/"))
