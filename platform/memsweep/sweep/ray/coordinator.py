"""Where the driver of a pack and its workers meet: orders go out, shares come in.

Ray Train tells its driver what rank 0 reports, by way of a folder that all nodes reach. The desk is a Ray actor beside
the driver: every worker's word arrives, and no folder is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.sweep.worker.failure import Failure

if TYPE_CHECKING:
    from memsweep.trial import ReplicaMeasurement


@dataclass(frozen=True)
class Order:
    """Trials of one program that a team computes together.

    Attributes:
        names: their identities.
        configs: canonical configs; of chained trials with the carried value in its place.
        padded: see ``memsweep.trial.RunOptions``.
    """

    names: tuple[str, ...]
    configs: tuple[dict[str, Any], ...]
    padded: bool


@dataclass(frozen=True)
class Delivery:
    """What one worker found, or why it did not.

    Attributes:
        findings: of the replicas that were its own.
        origin: the provenance of its process, ``phases`` included.
        failure: why there are no findings; else None.
        can_go_on: whether its checkpoint may help another try.
    """

    findings: list[ReplicaMeasurement] = field(default_factory=list)
    origin: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    can_go_on: bool = False


@dataclass(frozen=True)
class Look:
    """What lies on the desk.

    Attributes:
        fraction: of the current order that is done: the mean over the workers.
        peak_memory: the most bytes that one of the workers has held.
        deliveries: rank -> what it delivered for the current order.
    """

    fraction: float
    peak_memory: int
    deliveries: dict[int, Delivery]


class Desk:
    """The actor; its methods run in one event loop, and those that wait block nobody.

    Args:
        workers: size of the team.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._orders: list[Order | None] = []
        self._fractions: dict[int, float] = {}
        self._peaks: dict[int, int] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._news = asyncio.Condition()
        self._closed = asyncio.Event()

    async def give(self, order: Order | None) -> None:
        """Put an order on the desk; None sends the workers home."""
        async with self._news:
            self._orders.append(order)
            self._fractions.clear()
            self._deliveries.clear()
            self._news.notify_all()

    async def order(self, number: int) -> Order | None:
        """The order of this number, as soon as it is there."""
        async with self._news:
            await self._news.wait_for(lambda: len(self._orders) > number)
            return self._orders[number]

    async def tell(self, rank: int, fraction: float, peak_memory: int) -> None:
        """How far a worker is."""
        self._fractions[rank], self._peaks[rank] = fraction, peak_memory

    async def deliver(self, rank: int, delivery: Delivery) -> None:
        """What came of the current order at a worker."""
        async with self._news:
            self._deliveries[rank] = delivery
            self._fractions[rank] = 1.0
            self._news.notify_all()

    async def look(self, patience: float) -> Look:
        """What lies here, as soon as the order is done or has failed; at the latest after ``patience`` seconds."""
        async with self._news:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait_for(self._settled), patience)
            return Look(
                sum(self._fractions.values()) / self._workers,
                max(self._peaks.values(), default=0),
                dict(self._deliveries),
            )

    async def close(self) -> None:
        """Nobody waits for the current order any more."""
        self._closed.set()

    async def closed(self) -> None:
        """Returns when the desk has been closed."""
        await self._closed.wait()

    def _settled(self) -> bool:
        failed = any(delivery.failure is not None for delivery in self._deliveries.values())
        return failed or len(self._deliveries) == self._workers
