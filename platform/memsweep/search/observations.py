"""What the rows of a search found, as the sampler hears it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from memsweep.config.schema.search import BALL_OF
from memsweep.errors import StoreError
from memsweep.stability.comparison.metrics import median

if TYPE_CHECKING:
    from memsweep.sweep.store.results import Store


class Outcomes:
    """Objectives of stored rows, each read once.

    Args:
        store: the study's results.
        objective: names of metrics (``stability.metrics``).
    """

    def __init__(self, store: Store, objective: Sequence[str]) -> None:
        self._store, self._objective = store, objective
        self._found: dict[str, tuple[float, ...]] = {}

    def ended(self, identity: str, failed: Collection[str]) -> bool:
        """Whether a row has a result, or will get none now."""
        return identity in failed or self.of(identity) is not None

    def of(self, identity: str) -> tuple[float, ...] | None:
        """The objectives of a row, medians over its seeds; None while it has no result that can be read.

        Raises:
            StoreError: the storage does not answer.
        """
        if identity not in self._found and self._store.has(identity):
            try:
                self._found[identity] = self._read(identity)
            except StoreError as error:
                if isinstance(error.__cause__, OSError) and self._store.location.local is None:
                    raise
                return None  # damaged: it runs again
        return self._found.get(identity)

    def together(self, identities: Iterable[str]) -> tuple[float, ...] | None:
        """The objectives of a suggestion over its rows, one in each cell; None where a row has no result."""
        found = [self.of(identity) for identity in identities]
        whole = [values for values in found if values is not None]
        if not whole or len(whole) < len(found):
            return None
        return tuple(mean(column) for column in zip(*whole, strict=True))

    def _read(self, identity: str) -> tuple[float, ...]:
        record = self._store.record(identity)
        tables = self._store.tables(identity) if BALL_OF.keys() & set(self._objective) else {}
        return tuple(median(name, record["summary"], tables) for name in self._objective)


def mean(values: Sequence[float]) -> float:
    """Geometric where all are positive, so that no cell outweighs the others by its scale; else arithmetic."""
    if len(values) == 1 or not all(math.isfinite(value) for value in values):
        return sum(values) / len(values)
    if all(value > 0 for value in values):
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)
