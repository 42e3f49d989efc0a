"""The results of a study that were read so far, in few large tables."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from memsweep.errors import StoreError
from memsweep.recurrence.freed_memory import give_back_freed_memory
from memsweep.sweep.store.filesystem import at_once
from memsweep.sweep.store.form import OtherSchemaError
from memsweep.sweep.store.record import Record
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names, schema
from memsweep.sweep.store.tables import not_measured as without

_TOGETHER = 500  # results whose small tables become one
_WORDS = {"identity", "ball", "norm", "method", "reading"}


class Known:
    """The results that were read so far, which are not read again; records by identity, and one table for many."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._absent: dict[str, list[str]] = {}
        self._parts: dict[str, Any] = {}
        self._tables: dict[str, list[pa.Table]] = {name: [_compact(schema(name).empty_table())] for name in names()}

    def read(self, store: Store, identities: Sequence[str]) -> dict[str, str]:
        """Read the results that are not known yet; returns what is wrong with each damaged one, by identity."""
        new, faults = [identity for identity in identities if identity not in self.records], dict[str, str]()
        for at in range(0, len(new), _TOGETHER):
            some = new[at : at + _TOGETHER]
            parts: dict[str, list[pa.Table]] = {name: [] for name in names()}
            for identity, result in zip(some, at_once(partial(_read, store), some), strict=True):
                if isinstance(result, str):
                    faults[identity] = result
                    continue
                record, tables = result
                record["config"] = self.shared(record["config"])
                record["provenance"] = self.shared(record["provenance"])
                self.records[identity] = record
                if absent := [f"{name}.{column}" for name in names() for column in without(name, tables[name])]:
                    self._absent[identity] = absent
                for name, part in parts.items():
                    part.append(tables[name])
            for name, part in parts.items():  # thousands of small tables take five times the memory of one
                self._tables[name] += [_compact(pa.concat_tables(part))] if part else []
        pa.default_memory_pool().release_unused()
        give_back_freed_memory()
        return faults

    def shared(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The same settings, of which each part is one object for all trials that have an equal one: most do."""
        return {sys.intern(key): self._parts.setdefault(json.dumps(part), part) for key, part in settings.items()}

    def absent(self, chosen: Sequence[str]) -> dict[str, int]:
        """Column that some of these trials lack, as ``table.column`` -> their number."""
        return dict(Counter(column for identity in chosen for column in self._absent.get(identity, ())))

    def tables(self, chosen: Sequence[str]) -> dict[str, pd.DataFrame]:
        """The tables of some trials, in their order. Columns that repeat a few words are categories."""
        return {name: self._table(name, chosen) for name in names()}

    def _table(self, name: str, chosen: Sequence[str]) -> pd.DataFrame:
        self._tables[name] = [whole := pa.concat_tables(self._tables[name]).unify_dictionaries().combine_chunks()]
        frame: pd.DataFrame = whole.to_pandas(split_blocks=True)  # numbers stay where they are
        frame["identity"] = frame["identity"].cat.set_categories(chosen)
        places = frame["identity"].cat.codes.to_numpy()
        if (places < 0).any() or (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            frame = frame.iloc[order[places[order] >= 0]]
        return frame.reset_index(drop=True)


def _compact(table: pa.Table) -> pa.Table:
    """In one piece, with each of a few repeated words once."""
    for place, name in enumerate(table.column_names):
        if name in _WORDS:
            table = table.set_column(place, name, table[name].dictionary_encode())
    return table.combine_chunks()


def _read(store: Store, identity: str) -> tuple[Record, dict[str, pa.Table]] | str:
    """A result with all its tables, or what is wrong with it."""
    try:
        record = store.record(identity)
        return record, {name: store.arrow(name, record) for name in names()}
    except OtherSchemaError:
        raise  # it may be whole
    except StoreError as error:
        if isinstance(error.__cause__, OSError) and store.location.local is None:
            raise  # the bucket is away: that says nothing of the result
        return str(error)
