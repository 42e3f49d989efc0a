"""The store: one immutable result per trial identity, on a local disk or in a bucket.

A study is a folder. ``records/<identity>.json`` is the commit point of a result: it is written after all its tables.
It holds the size and the hash of each file, so that a damaged one is detected. ``pandas.read_parquet`` on the folder of
a table gives that table of the whole study. Files in ``weights`` may be deleted: a result is whole without them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import StoreError, one_of
from memsweep.sweep.store import record as records_json
from memsweep.sweep.store import tables as table_files
from memsweep.sweep.store.filesystem import Location, at_once, storage_errors
from memsweep.sweep.store.form import OtherSchemaError
from memsweep.sweep.store.layout import (
    CHECKPOINTS,
    IDENTITY,
    SET_ASIDE,
    STATES,
    WEIGHTS,
    failure_file,
    file_name,
    record_file,
    table_file,
)
from memsweep.sweep.store.record import Record, StoredFailure, file_of
from memsweep.sweep.store.tables import to_safetensors
from memsweep.sweep.store.unwritable import FallbackSlot, fallback_folder

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor

    Weights = Mapping[int, Mapping[str, Tensor]]


class Store:
    """The results of one study. Nothing is created before the first write.

    Args:
        location: the study's folder, ``<results>/<folder_name(study)>``.
    """

    def __init__(self, location: Location | Path | str) -> None:
        self.location = Location.at(location)

    @property
    def folder(self) -> Path:
        """The folder on this machine's disk.

        Raises:
            StoreError: the study lies in a bucket.
        """
        if self.location.local is None:
            raise StoreError(f"{self.location} is no folder of this machine. Give a local --results.")
        return self.location.local

    def write(
        self,
        identity: str,
        record: Mapping[str, Any],
        tables: Mapping[str, pd.DataFrame],
        weights: Weights | None = None,
    ) -> bool:
        """Add a result: its tables and weights first, its record last.

        Results are immutable: when this identity is stored already, nothing is written.

        Args:
            identity: the trial's identity, also ``record["identity"]``.
            record: see ``memsweep.sweep.store.record``; non-finite numbers are allowed in its summary only.
            tables: by names of ``memsweep.sweep.store.tables.names``; one without rows gets no file.
            weights: seed -> name -> tensor; None: the result keeps none.

        Returns:
            Whether this call stored the result.

        Raises:
            StoreError: the record or a table is malformed, or the storage cannot take it; nothing is stored then.
        """
        return self.commit(identity, self.encode(identity, record, tables, weights))

    @staticmethod
    def encode(
        identity: str,
        record: Mapping[str, Any],
        tables: Mapping[str, pd.DataFrame],
        weights: Weights | None = None,
    ) -> dict[str, bytes]:
        """The files of a result, for ``commit``: path in the study's folder -> content, the record last.

        Args:
            identity, record, tables, weights: see ``write``.

        Raises:
            StoreError: the record or a table is malformed.
        """
        unknown = set(tables) - set(table_files.names())
        if unknown:
            allowed = one_of(table_files.names())
            raise StoreError(f"the result of {identity} has unknown tables {one_of(unknown)}; allowed: {allowed}.")
        if record.get("identity") != identity:
            raise StoreError(f"the record of {record.get('identity')!r} was to be stored as {identity!r}.")
        filled = [name for name in table_files.names() if len(tables.get(name, ()))]
        data = {name: table_files.to_parquet(name, tables[name], identity) for name in filled}
        described = {name: file_of(data[name], table_files.definition(name).version) for name in filled}
        if weights is not None:
            data[WEIGHTS] = to_safetensors(weights)
            described[WEIGHTS] = file_of(data[WEIGHTS])
        whole = {**record, "files": described}
        files = {table_file(name, identity): content for name, content in data.items()}
        return files | {record_file(identity): records_json.encode(whole)}

    def commit(self, identity: str, files: Mapping[str, bytes]) -> bool:
        """Add a result by its files, see ``write``.

        Args:
            identity: of the trial.
            files: as ``encode`` gives them.

        Returns:
            Whether this call stored the result (False: it was here already).

        Raises:
            StorageError: the storage does not take it; nothing is stored then.
        """
        if self.has(identity):
            return False
        self._commit(files)
        with contextlib.suppress(StoreError):  # a failure beside a result counts nowhere
            self._forget_failure(identity)
        return True

    def copy_from(self, other: Store, identity: str) -> bool:
        """Copy a result from another study, byte for byte: its record still names the study that computed it.

        Returns:
            Whether this call stored the result (False: it was here already).

        Raises:
            StoreError: ``other`` does not hold it, or holds it damaged.
        """
        record = other.record(identity)
        data = {name: other.bytes_of(name, record) for name in _filled(record)}
        for name in data:  # a damaged result must not spread
            other.arrow(name, record)
        if other.has_weights(record):
            data[WEIGHTS] = other.bytes_of(WEIGHTS, record)
        with storage_errors("read", other.location):
            last = other.location.read(record_file(identity))
        return self.commit(
            identity,
            {table_file(n, identity): part for n, part in data.items()} | {record_file(identity): last},
        )

    def set_aside(self, identity: str) -> None:
        """Move the files of a result to ``.set-aside``, record first, so that it is computed again.

        Raises:
            StoreError: the storage does not allow it.
        """
        aside = f"{SET_ASIDE}/{identity}.{time.time_ns()}"
        with storage_errors("write", self.location):
            for path in [
                record_file(identity),
                *(table_file(name, identity) for name in (*table_files.names(), WEIGHTS)),
            ]:
                folder, _, file = path.partition("/")
                with contextlib.suppress(FileNotFoundError):
                    self.location.move(path, f"{aside}/{folder}{os.path.splitext(file)[1]}")

    def has(self, identity: str) -> bool:
        """Whether the result of this trial is stored."""
        with storage_errors("read", self.location):
            return self.location.exists(record_file(identity))

    def identities(self) -> frozenset[str]:
        """The identities of all stored results; one listing of a folder."""
        return self._stored_names("records")

    def record(self, identity: str) -> Record:
        """The record of one result.

        Raises:
            StoreError: it is not stored, or its file is damaged or of a version that is not known.
        """
        where = f"{self.location}/{record_file(identity)}"
        with storage_errors("read", where):
            try:
                data = self.location.read(record_file(identity))
            except FileNotFoundError:
                raise StoreError(
                    f"{self.location} holds no result of {identity}. Run the sweep to compute it."
                ) from None
        record = records_json.decode(data, identity, where)
        table_files.require_known(record["files"], where)
        return record

    def records(self) -> list[Record]:
        """The records of all results, in the order of their identities."""
        return at_once(self.record, sorted(self.identities()))

    def table(self, name: str) -> pd.DataFrame:
        """One table of the whole study, in the order of the identities; empty (with its columns) without results.

        Args:
            name: one of ``memsweep.sweep.store.tables.names``.

        Raises:
            StoreError: a file of a stored result is missing or damaged; the message names it.
        """
        if name not in table_files.names():
            raise StoreError(f"there is no table {name!r}; the tables are {one_of(table_files.names())}.")
        import pyarrow as pa

        parts = at_once(lambda record: self.arrow(name, record), self.records())
        frame: pd.DataFrame = pa.concat_tables([table_files.schema(name).empty_table(), *parts]).to_pandas()
        return frame

    def tables(self, identity: str, names: Sequence[str] | None = None) -> dict[str, pd.DataFrame]:
        """All tables of one result, or some of them.

        Raises:
            StoreError: a file is missing or damaged.
        """
        return self.result(identity, names)[1]

    def result(self, identity: str, names: Sequence[str] | None = None) -> tuple[Record, dict[str, pd.DataFrame]]:
        """The record and all tables of one result, or some of them; each file is read once.

        Raises:
            StoreError: a file is missing or damaged.
        """
        record = self.record(identity)
        return record, self.tables_of(record, names)

    def tables_of(self, record: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, pd.DataFrame]:
        """All tables of the result with this record, or some of them.

        Raises:
            StoreError: a file is missing or damaged.
        """
        wanted = table_files.names() if names is None else names
        parts = at_once(lambda name: self.arrow(name, record), wanted)
        return {name: part.to_pandas() for name, part in zip(wanted, parts, strict=True)}

    def outcomes(self, identities: Iterable[str]) -> dict[str, str]:
        """How the trials of these stored results ended, in the words of their records.

        Raises:
            StoreError: a record is missing or damaged.
        """
        names = list(identities)
        return dict(zip(names, at_once(lambda name: str(self.record(name)["outcome"]), names), strict=True))

    def arrow(self, name: str, record: Mapping[str, Any]) -> pa.Table:
        """One table of the result with this record, checked.

        Raises:
            StoreError: its file is missing or damaged.
        """
        if name not in record["files"]:
            return table_files.schema(name).empty_table()
        where = f"{self.location}/{table_file(name, record['identity'])}"
        data, version = self.bytes_of(name, record), record["files"][name]["version"]
        return table_files.from_parquet(name, data, record["identity"], where, version)

    def has_weights(self, record: Mapping[str, Any]) -> bool:
        """Whether the weights of the result with this record are here."""
        with storage_errors("read", self.location):
            return WEIGHTS in record["files"] and self.location.exists(table_file(WEIGHTS, record["identity"]))

    def check(self, identities: Iterable[str]) -> dict[str, str]:
        """The damaged ones of these stored results: identity -> fault. Reads every file of each.

        Raises:
            OtherSchemaError: one was written by a version that this one does not know.
        """
        faults = self.faults(identities)
        for fault in faults.values():
            if isinstance(fault, OtherSchemaError):
                raise fault
        return {name: str(fault) for name, fault in faults.items()}

    def faults(self, identities: Iterable[str]) -> dict[str, StoreError]:
        """The unusable ones of these stored results: identity -> reason. Reads every file of each."""
        names = sorted(identities)
        faults = zip(names, at_once(self._fault, names), strict=True)
        return {name: fault for name, fault in faults if fault is not None}

    def fail(self, identity: str, failure: Mapping[str, Any]) -> None:
        """Store why a trial has no result (outcome, error, traceback); the next attempt replaces it."""
        content = records_json.failure_json({**failure, "identity": identity})
        self._commit({failure_file(identity): content})

    def failures(self, among: Collection[str] | None = None) -> dict[str, StoredFailure]:
        """The last failure of each trial that has no result: identity -> what was given to ``fail``.

        An unreadable file becomes a failure with that error, because failures only explain.

        Args:
            among: these trials, which have no results; None: all.
        """
        names = sorted(self._stored_names("failures") - self.identities() if among is None else among)
        failures = zip(names, at_once(self._stored_failure, names), strict=True)
        return {name: failure for name, failure in failures if failure is not None}

    def slot(self, name: str) -> FallbackSlot:
        """The file of the checkpoint of this name; it lies on this machine while the storage does not take it."""
        return self._slot(f"{CHECKPOINTS}/{name}.pt")

    def forget_checkpoints(self) -> None:
        """Delete all checkpoints of a study that has ended.

        Raises:
            StoreError: the storage does not allow it.
        """
        with storage_errors("write", self.location):
            (fallback_folder(self.location) / CHECKPOINTS).delete_all()
            (self.location / CHECKPOINTS).delete_all()

    def state_slot(self, identity: str) -> FallbackSlot:
        """The file of the final state of this trial, from which a trial of its search may go on."""
        return self._slot(file_name(STATES, identity, "pt"))

    def forget_states(self, identities: Iterable[str] | None = None) -> None:
        """Delete the final states of these trials (None: all), if they exist, once no trial will go on from them.

        Raises:
            StoreError: the storage does not allow it.
        """
        with storage_errors("write", self.location):
            if identities is None:
                (fallback_folder(self.location) / STATES).delete_all()
                (self.location / STATES).delete_all()
                return
            at_once(lambda identity: self.state_slot(identity).delete(), list(identities))

    def _slot(self, path: str) -> FallbackSlot:
        return FallbackSlot(self.location.slot(path), fallback_folder(self.location).slot(path))

    def _commit(self, files: Mapping[str, bytes]) -> None:
        with storage_errors("write", self.location):
            self.location.clean()
            self.location.write_all(files)

    def bytes_of(self, name: str, record: Mapping[str, Any]) -> bytes:
        """The bytes of the file of a table, or of the weights, checked against the hash in the record.

        Raises:
            StoreError: the file is missing or damaged.
        """
        path = table_file(name, record["identity"])
        where = f"{self.location}/{path}"
        with storage_errors("read", where):
            try:
                data = self.location.read(path)
            except FileNotFoundError:
                raise StoreError(f"{where} is missing though its record exists. {records_json.MEND}") from None
        if record["files"].get(name, {}).get("sha256") != file_of(data)["sha256"]:
            raise StoreError(f"{where} is damaged: it is not what was written. {records_json.MEND}")
        return data

    def _fault(self, identity: str) -> StoreError | None:
        try:
            record = self.record(identity)
            for name in (*_filled(record), *([WEIGHTS] if self.has_weights(record) else [])):
                self.bytes_of(name, record)
        except StoreError as error:
            return error
        return None

    def _stored_failure(self, identity: str) -> StoredFailure | None:
        where = f"{self.location}/{failure_file(identity)}"
        try:
            with storage_errors("read", where):
                return records_json.read_failure(self.location.read(failure_file(identity)), where)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # a success removed it just now
                return None
            return {"identity": identity, "outcome": "failed", "error": str(error), "traceback": ""}

    def _forget_failure(self, identity: str) -> None:
        with storage_errors("write", self.location):
            self.location.delete(failure_file(identity))

    def _stored_names(self, folder: str) -> frozenset[str]:
        with storage_errors("read", self.location):
            names = self.location.names(folder)
        stems = (os.path.splitext(name) for name in names)
        return frozenset(stem for stem, suffix in stems if suffix == ".json" and IDENTITY.fullmatch(stem))


def _filled(record: Mapping[str, Any]) -> list[str]:
    """The tables of a result that have rows, and so a file."""
    return [name for name in table_files.names() if name in record["files"]]
