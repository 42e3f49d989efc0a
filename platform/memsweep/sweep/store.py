"""The store: one immutable result per trial identity, on a local or shared disk.

A study is a folder. ``records/<identity>.json`` is the commit point of a result: it is written last, so a result
either is there with all its tables or is not there. ``pandas.read_parquet`` on ``curves``, ``replicas``, ``memory``
or ``history`` gives that table of the whole study.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import StoreError, one_of
from memsweep.sweep import record as records_json
from memsweep.sweep import tables as table_files
from memsweep.sweep.atomic import Staged, remove_stale
from memsweep.sweep.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

MLFLOW_DATABASE, MLFLOW_ARTIFACTS = "mlflow.db", "mlartifacts"
"""Names beside the studies in the results folder, which no study's folder may take."""

_IDENTITY = re.compile(r"[0-9A-Za-z_-]{1,128}")
_LONGEST_FOLDER_NAME = 255  # bytes: the limit of every common file system


def folder_name(name: str) -> str:
    """The folder of a study: its name, percent-encoded outside ``[A-Za-z0-9._-]``.

    Two different names never share a folder, and no name leaves the results folder or takes a name that the
    tracking database needs.

    Raises:
        StoreError: the name is empty, or longer than a file system allows.
    """
    encoded = urllib.parse.quote(name, safe="", errors="surrogatepass").replace("~", "%7E")
    if encoded.strip(".") == "" or encoded.lower().startswith((MLFLOW_DATABASE, MLFLOW_ARTIFACTS)):
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}" if encoded else ""
    if not 0 < len(encoded) <= _LONGEST_FOLDER_NAME:
        raise StoreError(
            f"the study name {name[:60]!r} makes a folder name of {len(encoded)} bytes; 1 to {_LONGEST_FOLDER_NAME} "
            "are allowed (a character outside A-Z a-z 0-9 . _ - takes at least three). Give the study another name."
        )
    return encoded


def find_elsewhere(results: Path, identities: Iterable[str]) -> dict[str, Path]:
    """Which study folders below ``results`` hold these results: identity -> folder (the first by name).

    Lists each study's records once; nothing is opened.
    """
    wanted = set(identities)
    found: dict[str, Path] = {}
    if not wanted or not results.is_dir():
        return found
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        if wanted.isdisjoint(here := Store(folder).identities()):
            continue
        for identity in wanted & here:
            found.setdefault(identity, folder)
    return found


class Store:
    """The results of one study. Nothing is created on the disk before the first write.

    Args:
        folder: the study's folder, ``results/<folder_name(study)>``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def write(self, identity: str, record: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> bool:
        """Add a result: its tables first, its record last.

        Results are immutable: when this identity is stored already, nothing is written.

        Args:
            identity: the trial's identity, also ``record["identity"]``.
            record: see ``memsweep.sweep.record``; non-finite numbers are allowed in its summary only.
            tables: any of ``curves``, ``replicas``, ``memory``, ``history``; a table that is left out has no rows.

        Returns:
            Whether this call stored the result.

        Raises:
            StoreError: the record or a table is malformed, or the disk cannot take it; nothing is stored then.
        """
        if self.has(identity):
            return False
        unknown = set(tables) - set(TABLES)
        if unknown:
            raise StoreError(
                f"the result of {identity} has unknown tables {one_of(unknown)}; allowed: {one_of(TABLES)}."
            )
        if record.get("identity") != identity:
            raise StoreError(f"the record of {record.get('identity')!r} was to be stored as {identity!r}.")
        files = {
            self._table(name, identity): table_files.to_parquet(name, tables.get(name), identity) for name in TABLES
        }
        self._commit(files | {self._record(identity): records_json.encode(record)})
        self._forget_failure(identity)
        return True

    def adopt(self, other: Store, identity: str) -> bool:
        """Copy a result from another study, byte for byte: its record still names the study that computed it.

        Returns:
            Whether this call stored the result (False: it was here already).

        Raises:
            StoreError: ``other`` does not hold it, or holds it damaged.
        """
        if self.has(identity):
            return False
        other.record(identity)  # a damaged result must not spread
        other.tables(identity)
        with explained("read", other.folder):
            files = {self._table(name, identity): other._table(name, identity).read_bytes() for name in TABLES}
            files[self._record(identity)] = other._record(identity).read_bytes()
        self._commit(files)
        self._forget_failure(identity)
        return True

    def set_aside(self, identity: str) -> None:
        """Move a result out of the way, record first, so that it can be computed anew; the files stay in .set-aside.

        Raises:
            StoreError: the disk does not allow it.
        """
        aside = self.folder / ".set-aside" / f"{identity}.{time.time_ns()}"
        with explained("write", self.folder):
            aside.mkdir(parents=True)
            for path in [self._record(identity), *(self._table(name, identity) for name in TABLES)]:
                with contextlib.suppress(FileNotFoundError):
                    os.replace(path, aside / f"{path.parent.name}{path.suffix}")

    def has(self, identity: str) -> bool:
        """Whether the result of this trial is stored."""
        return self._record(identity).is_file()

    def identities(self) -> frozenset[str]:
        """The identities of all stored results; one listing of a folder."""
        return _listed(self.folder / "records")

    def record(self, identity: str) -> dict[str, Any]:
        """The record of one result.

        Raises:
            StoreError: it is not stored, or its file is damaged or of another schema.
        """
        path = self._record(identity)
        with explained("read", path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                raise StoreError(f"{self.folder} holds no result of {identity}. Run the sweep to compute it.") from None
        return records_json.decode(data, path)

    def records(self) -> list[dict[str, Any]]:
        """The records of all results, in the order of their identities."""
        return [self.record(identity) for identity in sorted(self.identities())]

    def table(self, name: str) -> pd.DataFrame:
        """One table of the whole study, in the order of the identities; empty (with its columns) without results.

        Args:
            name: ``curves``, ``replicas``, ``memory`` or ``history``.

        Raises:
            StoreError: a file of a stored result is missing or damaged; the message names it.
        """
        return self._read(name, sorted(self.identities()))

    def tables(self, identity: str) -> dict[str, pd.DataFrame]:
        """All four tables of one result.

        Raises:
            StoreError: a file is missing or damaged.
        """
        return {name: self._read(name, [identity]) for name in TABLES}

    def fail(self, identity: str, failure: Mapping[str, Any]) -> None:
        """Note why a trial has no result (outcome, error, traceback); the next try writes over it."""
        path = self._failure(identity)
        self._commit({path: records_json.to_json({**failure, "identity": identity}, f"the failure of {identity}")})

    def failures(self) -> dict[str, dict[str, Any]]:
        """The last failure of each trial that has no result: identity -> what was given to ``fail``."""
        found = {}
        for identity in sorted(_listed(self.folder / "failures") - self.identities()):
            path = self._failure(identity)
            with explained("read", path), contextlib.suppress(FileNotFoundError):  # a success may remove it just now
                found[identity] = records_json.from_json(path.read_bytes(), path)
        return found

    def _commit(self, files: Mapping[Path, bytes]) -> None:
        """Write files in order, so that the last one is the commit point; first all bytes, then all names."""
        staging = self.folder / ".partial"
        with explained("write", self.folder), contextlib.ExitStack() as cleanup:
            staging.mkdir(parents=True, exist_ok=True)
            remove_stale(staging)
            staged = []
            for path, data in files.items():
                path.parent.mkdir(exist_ok=True)
                staged.append(Staged(path, data, staging))
                cleanup.callback(staged[-1].discard)
            for file in staged:
                file.commit()

    def _read(self, name: str, identities: list[str]) -> pd.DataFrame:
        import pyarrow as pa
        import pyarrow.dataset as ds

        if name not in TABLES:
            raise StoreError(f"there is no table {name!r}; the tables are {one_of(TABLES)}.")
        if not identities:
            return table_files.empty(name)
        paths = [self._table(name, identity) for identity in identities]
        schema = table_files.schema(name)
        try:
            dataset = ds.dataset([str(path) for path in paths], schema=schema, format="parquet")
            frame: pd.DataFrame = dataset.to_table().to_pandas()
        except (pa.ArrowException, OSError) as error:
            raise StoreError(_damage(paths, error)) from error
        return frame

    def _forget_failure(self, identity: str) -> None:
        with explained("write", self.folder):
            self._failure(identity).unlink(missing_ok=True)

    def _record(self, identity: str) -> Path:
        return self._file("records", identity, "json")

    def _failure(self, identity: str) -> Path:
        return self._file("failures", identity, "json")

    def _table(self, name: str, identity: str) -> Path:
        return self._file(name, identity, "parquet")

    def _file(self, kind: str, identity: str, suffix: str) -> Path:
        if not _IDENTITY.fullmatch(identity):
            raise StoreError(f"{identity!r} is no trial identity: letters, digits, '-' and '_' are allowed.")
        return self.folder / kind / f"{identity}.{suffix}"


def _listed(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    return frozenset(
        stem for stem, suffix in map(os.path.splitext, names) if suffix == ".json" and _IDENTITY.fullmatch(stem)
    )


def _damage(paths: list[Path], error: Exception) -> str:
    """The sentence about tables that could not be read: Arrow's own errors do not always name the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in paths:
        if not path.is_file():
            return f"{path} is missing though its record exists. {records_json.mend(path)}"
        try:
            pq.ParquetFile(path).read()
        except (pa.ArrowException, OSError) as cause:
            return f"{path} is damaged ({cause}). {records_json.mend(path)}"
    return f"{paths[0].parent} cannot be read: {error}. Run the same command again; if it stays, check the disk."


@contextlib.contextmanager
def explained(verb: str, path: Path) -> Iterator[None]:
    """Disk errors in our words.

    Raises:
        StoreError: in place of the OSError that the body met.
    """
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot {verb} {path}: {error.strerror or error}. Check the disk's free space and the folder's "
            "permissions, then run the same command again: finished results are kept."
        ) from error
