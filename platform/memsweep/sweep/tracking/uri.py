"""Where MLflow keeps runs: its tracking URI and settings, the place of artifacts, and a folder that was moved.

MLflow makes every artifact location absolute, and reads a relative one from wherever a process happens to be. So the
database of a results folder that was moved or copied names other places, and is mended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import sqlite3
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from pathlib import Path

from memsweep.errors import ConfigError, one_of
from memsweep.redaction import redacted
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import MLFLOW_ARTIFACTS, MLFLOW_DATABASE

SERVERS = ("http", "https")
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")

_MODE = "workflowType=machine_learning"
_IN_MEMORY = re.compile(r":memory:|file:")
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_CONFIGURE_LOGGING": "false",  # it would write to the terminal
    # A request that fails is repeated twice within a second or two; longer outages are the tracker's.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    # Two lines on standard output for every run, and one more request.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def prepare_environment() -> None:
    """Set the variables that MLflow reads at its import, where the user has not; nothing of it goes to the terminal.

    The tracker says at the end what is not in MLflow, and why.
    """
    for name in ("mlflow", "alembic", "sqlalchemy"):
        logger = logging.getLogger(name)
        logger.propagate = False
        logger.handlers = [logging.NullHandler()]
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def home(results: Location | Path) -> Path:
    """The folder of the default database: the results folder; where that is a bucket, ``results`` right here."""
    local = Location.at(results).local
    return (local if local is not None else Path("results")).resolve()


def default_uri(results: Location | Path) -> str:
    """The tracking URI of the results folder's own database."""
    return _of_file(home(results) / MLFLOW_DATABASE)


def _of_file(database: Path) -> str:
    """The URI of a file: in one, % and ? stand for something else."""
    return f"sqlite:///{str(database).replace('%', '%25').replace('?', '%3F')}"


def tracking_uri(uri: str | None, results: Location | Path) -> str:
    """The tracking URI: the given one, else ``MLFLOW_TRACKING_URI``, else SQLite in ``home(results)``.

    A relative path of SQLite, which ``mlflow.set_tracking_uri`` leaves in the environment, becomes absolute: MLflow
    keeps a connection for each URI, and that of one folder would serve the next.

    Raises:
        ConfigError: the URI is neither a server nor a database.
    """
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not chosen:
        return default_uri(results)
    scheme = chosen.partition(":")[0].partition("+")[0].lower() if "://" in chosen else ""
    if scheme not in SERVERS + DATABASES:
        raise ConfigError(
            [
                f"{redacted(chosen)!r} is neither a server nor a database; allowed are URIs that begin with "
                f"{one_of(f'{name}://' for name in SERVERS + DATABASES)} (MLflow's file store is no longer "
                "maintained). Unset it for SQLite in the results folder."
            ],
            "the tracking URI",
        )
    path = Path(chosen.partition(":///")[2])
    if scheme == "sqlite" and path.name and not path.is_absolute() and not _IN_MEMORY.match(path.name):
        return f"{chosen.partition(':///')[0]}:///{path.resolve()}"
    return chosen


def is_whole(uri: str) -> bool:
    """False for an SQLite database that is lost, damaged or locked; true for all others, which are not asked."""
    scheme, _, path = uri.partition(":///")
    if scheme.partition("+")[0].lower() != "sqlite":
        return True
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{urllib.parse.quote(urllib.parse.unquote(path))}?mode=ro", uri=True)
        ) as database:
            return bool(database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error:
        return False


def artifact_location(uri: str, results: Location | Path) -> str | None:
    """Where artifacts go: beside the default database for a database; None leaves it to a server."""
    if uri.partition(":")[0].lower() in SERVERS:
        return None
    return (home(results) / MLFLOW_ARTIFACTS).as_uri()


def runs_page(experiment: str, run: str, metric: str) -> str:
    """The path of MLflow's page that shows the trials' runs of a sweep in charts.

    Without the mode it opens for language models, whatever the experiment's kind. With a filter alone, or in the order
    of time, the trials' runs are folded below the sweep's own, and the charts are empty.

    Args:
        experiment: its id.
        run: the id of the sweep's own run.
        metric: the order of the runs, the smallest first.
    """
    trials = urllib.parse.quote(f"tags.mlflow.parentRunId = '{run}'", safe="")
    order = urllib.parse.quote(f"metrics.`{metric}`", safe="")
    return (
        f"/#/experiments/{experiment}/runs?{_MODE}&compareRunsMode=CHART&searchFilter={trials}"
        f"&orderByKey={order}&orderByAsc=true"
    )


def run_page(experiment: str, run: str, artifact: str = "") -> str:
    """The path of MLflow's page of one run, or of one of its artifacts."""
    return f"/#/experiments/{experiment}/runs/{run}{f'/artifacts/{artifact}' if artifact else ''}?{_MODE}"


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
    draft = database.with_name(f".{database.name}.{os.getpid()}")
    try:
        if not _copied(_kept(), draft, _root(results)):
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

            made = SqlAlchemyStore(_of_file(draft), _root(results))
            made._dispose_engine()
            _keep(draft)
        if not database.exists():
            draft.replace(database)
    finally:
        draft.unlink(missing_ok=True)


def _kept() -> Path | None:
    """Where this user's cache has an empty database of this MLflow, whose hundred steps to its tables cost a second."""
    from mlflow.version import VERSION

    from memsweep.recurrence.compiled.build import cache
    from memsweep.recurrence.compiled.compiler import CannotBuildError

    try:
        return cache() / f"mlflow-{VERSION}.db"
    except CannotBuildError:  # no folder that is this user's alone
        return None


def _copied(kept: Path | None, database: Path, root: str) -> bool:
    """Copies the kept empty database, whose own experiment then lies below ``root``; false where none is whole."""
    if kept is None or not kept.is_file() or not is_whole(_of_file(kept)):
        return False
    shutil.copyfile(kept, database)
    try:
        _place_default(database, f"{root}/{_DEFAULT}", round(1000 * time.time()))
    except sqlite3.Error:  # not MLflow's tables
        database.unlink()
        return False
    return True


def _keep(made: Path) -> None:
    """Keeps a copy of an empty database, which names no folder; a cache that cannot be written to stays as it is."""
    if (kept := _kept()) is None:
        return
    draft = kept.with_name(f".{kept.name}.{os.getpid()}")
    try:
        shutil.copyfile(made, draft)
        _place_default(draft, "", 0)
        draft.replace(kept)
    except (OSError, sqlite3.Error):
        draft.unlink(missing_ok=True)


def _place_default(database: Path, place: str, made: int) -> None:
    """Gives MLflow's own experiment its place, and the time when it was made, in milliseconds."""
    with _opened(f"file:{urllib.parse.quote(str(database))}") as opened:
        opened.execute("PRAGMA secure_delete = ON")  # no page of the file keeps the other path
        opened.execute(
            "UPDATE experiments SET artifact_location = ?, creation_time = ?, last_update_time = ? "
            "WHERE experiment_id = ?",
            (place, made, made, _DEFAULT),
        )


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
