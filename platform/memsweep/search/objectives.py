"""The objectives of a search, read from stored results."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from memsweep.config.schema.search import BALL_OF
from memsweep.errors import StoreError
from memsweep.stability.comparison.metrics import median

if TYPE_CHECKING:
    from memsweep.sweep.store.results import Store


class Objectives:
    """Objectives of stored trials, each read once.

    Args:
        store: the study's results.
        names: of metrics (``stability.comparison.metrics``).
    """

    def __init__(self, store: Store, names: Sequence[str]) -> None:
        self._store, self._names = store, names
        self._known: dict[str, tuple[float, ...]] = {}

    def ended(self, identity: str, failed: Collection[str]) -> bool:
        """Whether a trial has a result, or will not get one in this run."""
        return identity in failed or self.of(identity) is not None

    def of(self, identity: str) -> tuple[float, ...] | None:
        """The objectives of a trial, medians over its seeds; None while it has no result that can be read.

        Raises:
            StoreError: the storage does not answer.
        """
        if identity not in self._known and self._store.has(identity):
            try:
                self._known[identity] = self._read(identity)
            except StoreError as error:
                if isinstance(error.__cause__, OSError) and self._store.location.local is None:
                    raise
                return None  # damaged: it runs again
        return self._known.get(identity)

    def mean(self, identities: Iterable[str]) -> tuple[float, ...] | None:
        """The objectives of a suggestion over its trials, one in each cell; None where a trial has no result."""
        values = [self.of(identity) for identity in identities]
        known = [one for one in values if one is not None]
        if not known or len(known) < len(values):
            return None
        return tuple(mean(column) for column in zip(*known, strict=True))

    def _read(self, identity: str) -> tuple[float, ...]:
        record = self._store.record(identity)
        tables = self._store.tables(identity) if BALL_OF.keys() & set(self._names) else {}
        return tuple(median(name, record["summary"], tables) for name in self._names)


def mean(values: Sequence[float]) -> float:
    """Geometric where all are positive, so that no cell outweighs the others by its scale; else arithmetic."""
    if len(values) == 1 or not all(math.isfinite(value) for value in values):
        return sum(values) / len(values)
    if all(value > 0 for value in values):
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)
