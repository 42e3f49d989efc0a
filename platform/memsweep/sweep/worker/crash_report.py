"""The crash report: a worker that ends its own process writes the report of its pack for the driver into the store."""

from __future__ import annotations

from memsweep.sweep.store.filesystem import FileSlot, storage_errors
from memsweep.sweep.store.results import Store


def write(store: Store, pack: str, report: str) -> None:
    """Write the report of a pack, which can no longer be sent.

    Args:
        store: the study's.
        pack: the pack's identity.
        report: ``PackReport.to_json``.

    Raises:
        StoreError: the storage does not allow it.
    """
    with storage_errors("write", store.location):
        _slot(store, pack).write(report.encode())


def pop(store: Store, pack: str) -> str | None:
    """Read the report of this pack and delete it; None if there is none, as after a kill.

    Raises:
        StoreError: the storage does not allow it.
    """
    slot = _slot(store, pack)
    with storage_errors("read", store.location):
        if (data := slot.read()) is None:
            return None
        slot.delete()
    return data.decode()


def _slot(store: Store, pack: str) -> FileSlot:
    return FileSlot(store.location / "crash_reports", f"{pack}.json")
