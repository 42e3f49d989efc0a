"""Reading stored results for a report: one that is damaged is left out and named, and never ends the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memsweep.errors import StoreError
from memsweep.sweep.store.filesystem import at_once, storage_errors
from memsweep.sweep.store.record import MEND
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import TABLES, without_settings


@dataclass(frozen=True)
class Results:
    """What could be read of a study's results.

    Attributes:
        records: identity -> record, in the order in which they were asked for.
        tables: ``curves``, ``replicas``, ``memory``, ``history``, ``alignment``, one frame each over all records.
        damaged: identity -> what is wrong with a result that is left out.
    """

    records: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, pd.DataFrame]
    damaged: Mapping[str, str]


@dataclass(frozen=True)
class _Result:
    record: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    fault: str = ""


def read_results(store: Store, identities: Iterable[str]) -> Results:
    """Read results with all their tables.

    Raises:
        StoreError: the storage does not answer; a file that is damaged raises nothing.
    """
    names = list(identities)
    found = dict(zip(names, at_once(partial(_read, store), names), strict=True))
    whole = {name: result for name, result in found.items() if not result.fault}
    return Results(
        records={name: result.record for name, result in whole.items()},
        tables={table: _together(table, whole.values()) for table in TABLES},
        damaged={name: result.fault for name, result in found.items() if result.fault},
    )


def _read(store: Store, identity: str) -> _Result:
    try:
        record = store.record(identity)
        read = store.arrow if "files" in record else partial(_older, store)
        tables = {name: table for name in TABLES if (table := read(name, record)) is not None}
    except StoreError as error:
        if isinstance(error.__cause__, OSError) and store.location.local is None:
            raise  # the bucket is away: that says nothing of the result
        return _Result(fault=str(error))
    return _Result(record, tables)


def _older(store: Store, name: str, record: Mapping[str, Any]) -> pa.Table | None:
    """A table of an older version, which may lack columns that came later, or the whole table; None then."""
    path = f"{name}/{record['identity']}.parquet"
    with storage_errors("read", store.location / path):
        try:
            data = store.location.read(path)
        except FileNotFoundError:
            return None
    try:
        return without_settings(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False))
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{store.location}/{path} is damaged ({error}). {MEND}") from None  # no fault of the storage


def _together(name: str, results: Iterable[_Result]) -> pd.DataFrame:
    parts = [result.tables[name] for result in results if name in result.tables]
    if not parts:
        return pd.DataFrame()
    # Permissive: of an older version, a column that is null throughout one trial has no type of its own there.
    return pa.concat_tables(parts, promote_options="permissive").to_pandas()
