"""The runs of a results folder's own database, written to its tables: an import of MLflow takes three seconds of CPU.

What is written is row by row what MLflow's client writes; a test compares all tables. What is rare, or refused by
MLflow, goes to its client: the trash, deletions, names and lengths that are not plain. So does all of a database whose
tables are not of the version that this file knows.
"""

from __future__ import annotations

import contextlib
import math
import posixpath
import re
import shutil
import sqlite3
import sys
import time
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.gate import each_text, gated
from memsweep.sweep.tracking.held import Held, Value

if TYPE_CHECKING:
    from memsweep.sweep.tracking.client import MlflowsClient

KNOWN = frozenset({"dc11669786a5"})
"""Versions of MLflow's tables, as of its migrations: of MLflow 3.17."""

_SECONDS = 30.0  # that another process may hold the database
_LONGEST_NAME, _LONGEST_TEXT, _LONGEST_NOTE = 250, 5000, 8000
_PLAIN = re.compile(r"[\w.\- :/]+", re.ASCII)  # a part of the names that MLflow takes
_OWN = {"mlflow.runName", "mlflow.user"}  # tags that are columns of a run as well


def knows(database: Path) -> bool:
    """Whether the tables of this database are of a version that is known."""
    try:
        with _opened(database) as opened:
            rows = opened.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.Error:
        return False
    return len(rows) == 1 and rows[0][0] in KNOWN


class Tables:
    """Writes and reads MLflow's tables in SQLite; a ``Client``.

    Args:
        database: the file, whose tables ``knows`` knows.
    """

    def __init__(self, database: Path) -> None:
        self._database = database

    @cached_property
    def _mlflow(self) -> MlflowsClient:
        from memsweep.sweep.tracking.client import MlflowsClient

        return MlflowsClient(f"sqlite:///{self._database}")

    def experiment(self, name: str) -> str | None:
        """As of ``Client``."""
        with _opened(self._database) as opened:
            found = opened.execute(
                "SELECT experiment_id, lifecycle_stage FROM experiments WHERE name = ? AND workspace = 'default'",
                (name,),
            ).fetchone()
        if found is None or found[1] == "active":
            return None if found is None else str(found[0])
        return self._mlflow.experiment(name)

    def create_experiment(self, name: str, artifacts: str | None, tags: Mapping[str, str]) -> str | None:
        """As of ``Client``."""
        texts = each_text(tags)
        if not (artifacts and name and len(name) <= _LONGEST_NAME and _are_plain(texts)):
            return self._mlflow.create_experiment(name, artifacts, tags)
        now = _now()
        try:
            with _writing(self._database) as opened:
                row = (name, artifacts, "active", now, now)
                number = opened.execute(
                    "INSERT INTO experiments (name, artifact_location, lifecycle_stage, creation_time, "
                    "last_update_time) VALUES (?, ?, ?, ?, ?)",
                    row,
                ).lastrowid
                opened.executemany(
                    "INSERT INTO experiment_tags (key, value, experiment_id) VALUES (?, ?, ?)",
                    [(key, value, number) for key, value in texts.items()],
                )
        except sqlite3.IntegrityError:  # another process made it
            return None
        return str(number)

    def create_run(self, experiment: str, started: int | None, tags: Mapping[str, str], name: str) -> Held:
        """As of ``Client``."""
        texts, name = each_text(tags), gated(name)
        with _writing(self._database) as opened:
            place = opened.execute(
                "SELECT artifact_location FROM experiments WHERE experiment_id = ? AND lifecycle_stage = 'active'",
                (experiment,),
            ).fetchone()
            if place and place[0] and name and len(name) <= _LONGEST_NAME and _are_plain(texts):
                run, started = uuid.uuid4().hex, started or _now()
                artifacts, texts = f"{place[0]}/{run}/artifacts", texts | {"mlflow.runName": name}
                opened.execute(
                    "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, "
                    "start_time, source_version, lifecycle_stage, artifact_uri, experiment_id) "
                    "VALUES (?, ?, 'UNKNOWN', '', '', 'unknown', 'RUNNING', ?, '', 'active', ?, ?)",
                    (run, name, started, artifacts, int(experiment)),
                )
                _set_tags(opened, run, texts)
                return Held(run, "RUNNING", started, None, artifacts, {}, {}, texts)
        return self._mlflow.create_run(experiment, started, tags, name)

    def log(
        self, run: str, metrics: Sequence[Value] = (), params: Mapping[str, str] = {}, tags: Mapping[str, str] = {}
    ) -> None:
        """As of ``Client``."""
        own, texts = each_text(params), each_text(tags)
        keys = {value.key for value in metrics}
        if _are_names(keys | own.keys()) and _are_short(own.values(), _LONGEST_TEXT) and _are_plain(texts):
            with _writing(self._database) as opened:
                held = dict(opened.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,)))
                if _is_active(opened, run) and own.items() >= {k: v for k, v in held.items() if k in own}.items():
                    new = [(key, value, run) for key, value in own.items() if key not in held]
                    opened.executemany("INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)", new)
                    _add_metrics(opened, run, metrics)
                    _set_tags(opened, run, texts)
                    return
        self._mlflow.log(run, metrics, params, tags)

    def delete_tag(self, run: str, key: str) -> None:
        """As of ``Client``."""
        self._mlflow.delete_tag(run, key)

    def save(self, held: Held, folder: Path, below: str = "") -> None:
        """As of ``Client``."""
        place = urllib.parse.urlsplit(held.artifacts)
        if place.scheme != "file" or place.netloc:
            self._mlflow.save(held, folder, below)
            return
        top = Path(urllib.parse.unquote(place.path)) / below
        top.mkdir(parents=True, exist_ok=True)
        for file in sorted(folder.rglob("*")):  # a folder stands before what is in it
            there = top / file.relative_to(folder)
            there.mkdir(exist_ok=True) if file.is_dir() else shutil.copy2(file, there)

    def end(self, run: str, status: str, ended: int | None = None) -> None:
        """As of ``Client``."""
        with _writing(self._database) as opened:
            if _is_active(opened, run):
                opened.execute(
                    "UPDATE runs SET status = ?, end_time = ? WHERE run_uuid = ?", (status, ended or _now(), run)
                )
                return
        self._mlflow.end(run, status, ended)

    def delete_run(self, run: str) -> None:
        """As of ``Client``."""
        self._mlflow.delete_run(run)

    def tagged(self, experiment: str, key: str, value: str) -> list[Held]:
        """As of ``Client``."""
        with _opened(self._database) as opened:
            found = opened.execute(
                "SELECT run_uuid FROM runs JOIN tags USING (run_uuid) "
                "WHERE experiment_id = ? AND lifecycle_stage = 'active' AND key = ? AND value = ?",
                (experiment, key, value),
            ).fetchall()
            return [_held(opened, run) for (run,) in found]

    def run(self, run: str) -> Held:
        """As of ``Client``."""
        with _opened(self._database) as opened:
            if _is_active(opened, run):
                return _held(opened, run)
        return self._mlflow.run(run)


def _are_names(names: Iterable[str]) -> bool:
    """Whether MLflow takes all of them as names of metrics, parameters or tags."""
    return all(
        _PLAIN.fullmatch(name)
        and len(name) <= _LONGEST_NAME
        and posixpath.normpath(name) == name
        and not name.startswith((".", "/"))
        for name in names
    )


def _are_short(texts: Iterable[str], longest: int) -> bool:
    return all(len(text) <= longest for text in texts)


def _are_plain(tags: Mapping[str, str]) -> bool:
    """Whether MLflow takes all tags as they are, and none is more than a tag."""
    return _are_names(tags) and _are_short(tags.values(), _LONGEST_NOTE) and not _OWN & tags.keys()


def _add_metrics(opened: sqlite3.Connection, run: str, metrics: Sequence[Value]) -> None:
    """Adds values; the latest of a metric is that of the largest step, then time, then value."""
    rows = [(each.key, *_storable(each.value), each.time, each.step, run) for each in metrics]
    columns = "(key, value, is_nan, timestamp, step, run_uuid) VALUES (?, ?, ?, ?, ?, ?)"
    opened.executemany(f"INSERT INTO metrics {columns} ON CONFLICT DO NOTHING", rows)
    opened.executemany(
        f"INSERT INTO latest_metrics {columns} ON CONFLICT DO UPDATE SET value = excluded.value, "
        "is_nan = excluded.is_nan, timestamp = excluded.timestamp, step = excluded.step WHERE "
        "(excluded.step, excluded.timestamp, excluded.value) > (latest_metrics.step, latest_metrics.timestamp, "
        "latest_metrics.value)",
        rows,
    )


def _storable(value: float) -> tuple[float, bool]:
    """A number as MLflow's tables hold it, and whether it is none: they have no infinity."""
    if math.isnan(value):
        return 0.0, True
    return (math.copysign(sys.float_info.max, value) if math.isinf(value) else float(value)), False


def _set_tags(opened: sqlite3.Connection, run: str, tags: Mapping[str, str]) -> None:
    opened.executemany(
        "INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
        [(key, value, run) for key, value in tags.items()],
    )


def _is_active(opened: sqlite3.Connection, run: str) -> bool:
    found = opened.execute("SELECT lifecycle_stage FROM runs WHERE run_uuid = ?", (run,)).fetchone()
    return found is not None and found[0] == "active"


def _held(opened: sqlite3.Connection, run: str) -> Held:
    row = opened.execute(
        "SELECT status, start_time, end_time, artifact_uri FROM runs WHERE run_uuid = ?", (run,)
    ).fetchone()
    metrics = opened.execute("SELECT key, value, is_nan FROM latest_metrics WHERE run_uuid = ?", (run,))
    params = opened.execute("SELECT key, value FROM params WHERE run_uuid = ?", (run,))
    tags = opened.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (run,))
    numbers = {key: math.nan if is_nan else value for key, value, is_nan in metrics}
    return Held(run, row[0], row[1] or 0, row[2], row[3], numbers, dict(params), dict(tags))


def _now() -> int:
    return int(1000 * time.time())


@contextlib.contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    address = f"file:{urllib.parse.quote(str(database))}?mode=rw"  # a file that is lost is not made anew
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=_SECONDS, isolation_level=None)) as opened:
        yield opened


@contextlib.contextmanager
def _writing(database: Path) -> Iterator[sqlite3.Connection]:
    """One transaction, whole or not at all."""
    with _opened(database) as opened:
        opened.execute("BEGIN IMMEDIATE")
        try:
            yield opened
        except BaseException:
            opened.execute("ROLLBACK")
            raise
        opened.execute("COMMIT")
