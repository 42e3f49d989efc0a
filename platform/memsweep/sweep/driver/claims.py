"""The part of a shared study that a driver has taken: packs, and the lead.

Each says in its lease file what it holds. To take something, a driver writes it there, and then reads the files of the
others: where it finds it again, it gives it back, and tries later. Of two that take the same at the same moment both
may give it back, but never do both keep it. The storage only has to show each file as it was written last.

One of the drivers leads: it alone writes plan and journal, calls MLflow and writes the report.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from memsweep.sweep.store.filesystem import storage_errors
from memsweep.sweep.store.lease import LEAD, Holder, Lease, LeaseFile, Share

LOOK_INTERVAL = 1.0
"""Seconds between two looks at the other drivers, while there is nothing to take."""

_SPREAD = 4
"""Drivers take at random among the first packs, so many times as many as all of them take: they seldom collide."""
PATIENCE = 10.0
"""Seconds for which a driver that has ended the study stays, so that the others learn of it."""


class Claims:
    """The part of a shared study that this driver holds.

    Args:
        lease: its lease file.
        clock: monotonic seconds.
    """

    def __init__(self, lease: Lease, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease, self._clock = lease, clock
        self._tried: float | None = None  # time of the last look that found nothing to take
        self._unsure: Set[str] = frozenset()  # what it has written as taken, and another one may have written, too

    @property
    def held(self) -> frozenset[str]:
        """The packs that it holds, and the lead."""
        return frozenset(self._lease.share.taken) - self._unsure

    def take(self, wanted: Iterable[str], most: int) -> list[str]:
        """Takes some of what nobody holds; after a try in vain it takes nothing for a while.

        Args:
            wanted: what it may take, the first ones first.
            most: how many at most.

        Raises:
            StorageError: the storage cannot be read or written; nothing is taken.
        """
        if self._tried is not None and self._clock() - self._tried < LOOK_INTERVAL:
            return []
        with storage_errors("share", self._lease):
            got = self._take(wanted, most)
        self._tried = None if got else self._clock() + random.uniform(-0.5, 0.5) * LOOK_INTERVAL
        return got

    def _take(self, wanted: Iterable[str], most: int) -> list[str]:
        self.release(())  # of what a storage that failed left unsure
        others = self._lease.others()
        gone = _taken(others.values()) | self.held
        free = islice((each for each in wanted if each not in gone), most * (1 + _SPREAD * len(others)))
        chosen = _some([*dict.fromkeys(free)], most)
        share, self._unsure = self._lease.share, {*chosen}
        if not chosen or not self._lease.say(replace(share, taken=(*share.taken, *chosen))):
            return []
        theirs = _taken(self._lease.others().values())
        # a storage may list a new file late
        self._unsure = frozenset({*chosen} & theirs if self._lease.is_listed else chosen)
        got = [each for each in chosen if each not in self._unsure]
        self.release(())
        return got

    def release(self, taken: Iterable[str]) -> None:
        """Gives back what it holds of this, and what it may hold beside another driver.

        Raises:
            StorageError: the storage cannot be written; it holds what it held.
        """
        gone, share = self._unsure | {*taken}, self._lease.share
        if not gone.isdisjoint(share.taken):
            with storage_errors("share", self._lease):
                self._lease.say(replace(share, taken=tuple(each for each in share.taken if each not in gone)))
        self._unsure = frozenset()

    def lead(self) -> bool:
        """Whether this driver leads, which it does from now on if nobody else does."""
        return LEAD in self.held or self.take([LEAD], 1) == [LEAD]

    def elsewhere(self) -> set[str]:
        """The packs and the lead that the others hold.

        Raises:
            StorageError: the storage cannot be read.
        """
        with storage_errors("share", self._lease):
            return _taken(self._lease.others().values())

    def leader(self) -> tuple[Holder, Share] | None:
        """Who leads, and what it says; None where nobody else does."""
        with storage_errors("share", self._lease):
            others = self._lease.others().values()
        return next(((file.holder, file.share) for file in others if file.share and LEAD in file.share.taken), None)

    def cuts(self) -> set[str]:
        """The digests of the packs that the others say."""
        with storage_errors("share", self._lease):
            return {file.share.cut for file in self._lease.others().values() if file.share and file.share.cut}

    def announce(self, cut: str) -> None:
        """Says which packs it runs; where it leads, the plan is written, so that the others may run packs of it.

        Args:
            cut: digest of the packs.
        """
        with storage_errors("share", self._lease):
            self._lease.say(replace(self._lease.share, cut=cut))

    def conclude(self) -> None:
        """Says that the study has ended, keeps the lead alone, and waits a moment for the others to leave."""
        with suppress(OSError):
            self._lease.say(replace(self._lease.share, taken=(LEAD,), concluded=True))
            end = self._clock() + PATIENCE
            while self._lease.others() and self._clock() < end:
                time.sleep(LOOK_INTERVAL / 2)


def _taken(files: Iterable[LeaseFile]) -> set[str]:
    return {each for file in files if file.share for each in file.share.taken}


def _some(free: Sequence[str], most: int) -> list[str]:
    """So many of them at random, in their order."""
    return [free[place] for place in sorted(random.sample(range(len(free)), min(most, len(free))))]
