"""Rewrites stored results in the form of today.

A result whose tables are of an older version is written to ``.upgrade`` first, its record last, and moved from there,
its record last: so an upgrade that ends at any point is finished by the next one. In between it reads as damaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from memsweep.errors import StoreError
from memsweep.sweep.store.filesystem import Location, at_once, storage_errors
from memsweep.sweep.store.record import SCHEMA, Record, encode, file_of, from_json
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import definition, migrated_parquet, names

STAGED = ".upgrade"


@dataclass
class Upgrade:
    """The findings and actions of an upgrade of one study.

    Attributes:
        results: number of stored results.
        older: identities of those in an older form, in order.
        rewritten: identities of those that were rewritten.
        unreadable: identity -> why it stays as it is: damaged, or of a newer version.
    """

    results: int = 0
    older: list[str] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


def upgrade(store: Store, *, write: bool) -> Upgrade:
    """Rewrites the results of a study that have an older form; each one whole or not at all.

    Args:
        store: the study's, which no sweep runs in.
        write: False: only looks.

    Raises:
        StorageError: the storage cannot be read or written.
    """
    if write:
        with storage_errors("read", store.location):
            staged = store.location.names(f"{STAGED}/records")
        finish(store, staged)
    names = sorted(store.identities())
    found = Upgrade(len(names))
    for name, fault in zip(names, at_once(lambda name: _older(store, name), names), strict=True):
        if isinstance(fault, StoreError):
            found.unreadable[name] = str(fault)
        elif fault:
            found.older.append(name)
    for name in found.older if write else ():
        try:
            rewrite(store, name)
            found.rewritten.append(name)
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            found.unreadable[name] = str(error)
    if write:
        with storage_errors("write", store.location):
            (store.location / STAGED).delete_all()
    return found


def rewrite(store: Store, identity: str) -> None:
    """Writes one result in the form of today.

    Raises:
        StoreError: a file of it is damaged, or the storage does not take it.
    """
    record = store.record(identity)
    tables = {
        _table(name, identity): migrated_parquet(name, store.arrow(name, record)) for name in _older_tables(record)
    }
    files = dict(record["files"])
    for name in _older_tables(record):
        files[name] = file_of(tables[_table(name, identity)], definition(name).version)
    content = encode({**record, "files": files})
    with storage_errors("write", store.location):
        if not tables:
            store.location.write(_record(identity), content)
            return
        store.location.write_all(
            {f"{STAGED}/{path}": data for path, data in {**tables, _record(identity): content}.items()}
        )
    finish(store, [f"{identity}.json"])


def finish(store: Store, staged: Iterable[str]) -> None:
    """Moves staged results to their places, unless the result was computed again meanwhile.

    Args:
        store: the study's.
        staged: the files of their records.
    """
    with storage_errors("write", store.location):
        for identity in (name.removesuffix(".json") for name in staged):
            if not store.has(identity) or not _older(store, identity):
                continue
            for path in (_table(name, identity) for name in names()):
                if store.location.exists(f"{STAGED}/{path}"):
                    store.location.move(f"{STAGED}/{path}", path)
            store.location.move(f"{STAGED}/{_record(identity)}", _record(identity))


def _older(store: Store, identity: str) -> bool | StoreError:
    """Whether a result has an older form; or why that cannot be said."""
    try:
        where = f"{store.location}/{_record(identity)}"
        with storage_errors("read", where):
            schema = from_json(store.location.read(_record(identity)), where).get("schema")
        record = store.record(identity)
    except StoreError as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
            raise
        return error
    return schema != SCHEMA or bool(_older_tables(record))


def _older_tables(record: Record) -> list[str]:
    files = record["files"]
    return [name for name in names() if name in files and files[name]["version"] < definition(name).version]


def _record(identity: str) -> str:
    return f"records/{identity}.json"


def _table(name: str, identity: str) -> str:
    return f"{name}/{identity}.parquet"


def studies(results: Location) -> list[Store]:
    """The studies in a folder of results, by name; the folder itself where it is a study."""
    with storage_errors("read", results):
        places = [results, *(results / name for name in results.folders())]
    return [store for store in map(Store, places) if store.identities()]
