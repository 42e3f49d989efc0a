"""What a worker says of its pack before it ends its own process, for the driver to find."""

from __future__ import annotations

from memsweep.sweep.store.filesystem import PlaceSlot, storage_errors
from memsweep.sweep.store.results import Store


def leave(store: Store, pack: str, report: str) -> None:
    """Say what came of a pack, in place of a report that can no longer be sent.

    Args:
        store: the study's.
        pack: the pack's identity.
        report: ``PackReport.to_json``.

    Raises:
        StoreError: the storage does not allow it.
    """
    with storage_errors("write", store.location):
        _slot(store, pack).write(report.encode())


def take(store: Store, pack: str) -> str | None:
    """What the worker of this pack left, once; None where it said nothing, as one that was killed.

    Raises:
        StoreError: the storage does not allow it.
    """
    slot = _slot(store, pack)
    with storage_errors("read", store.location):
        if (data := slot.read()) is None:
            return None
        slot.delete()
    return data.decode()


def _slot(store: Store, pack: str) -> PlaceSlot:
    return PlaceSlot(store.location / "last_words", f"{pack}.json")
