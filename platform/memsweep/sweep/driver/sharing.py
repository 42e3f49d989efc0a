"""Which packs of a plan this driver may start, alone or beside others, and what the others have stored of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from memsweep.sweep.driver.claims import LOOK_INTERVAL, PATIENCE, Claims
from memsweep.sweep.store.record import StoredFailure
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.retry import through_outages
from memsweep.sweep.worker.job import PackJob

if TYPE_CHECKING:
    from memsweep.sweep.planning.plan import Pack

_AHEAD = 4
"""A driver takes one pack for so many that it can run at once: few requests, and few packs that wait for a full one."""
_SHARE_OF_TIME = 0.05  # of a driver's time for looks at what the others have stored, where they are quick
_LONGEST_PAUSE = PATIENCE / 2  # seconds between two looks: the leader must not be gone before it is heard

OnFound = Callable[[Mapping[str, str], Mapping[str, StoredFailure]], None]
"""Told of trials that other drivers have ended: identity -> outcome, identity -> failure."""


def open_packs(
    packs: Sequence[Pack], claims: Claims | None, store: Store, before: Mapping[str, str | None]
) -> Sequence[Pack]:
    """Those of these packs that this driver may still get: no other one holds them or has ended their trials.

    Args:
        packs: of a plan.
        claims: what this driver holds of a study that several drivers share; None: it has all.
        store: the study's results.
        before: times of the failures that there were when this driver began, whose trials are tried again.
    """
    if claims is None:
        return packs
    theirs, ended = through_outages(claims.elsewhere), {*through_outages(store.identities)}
    failures = through_outages(store.failures)
    ended |= {name for name, failure in failures.items() if failure.get("time") != before.get(name)}
    return [
        pack
        for pack in packs
        if pack.whole not in theirs and not ended.issuperset(trial.identity for trial in pack.trials)
    ]


class Division(Protocol):
    """How the packs of a plan are divided between drivers."""

    def begin(self, jobs: Iterable[PackJob]) -> None:
        """These jobs are to run next, and no others."""

    def any(self) -> bool:
        """Whether this driver may start one of them now."""

    def first(self, packs: Collection[str]) -> str | None:
        """The first of these packs that it may start; None where there is none."""

    def free(self, packs: Collection[str]) -> int:
        """How many of these packs no other driver holds."""

    def started(self, pack: str) -> None:
        """A pack has started."""

    def settled(self, name: str) -> None:
        """A trial has a result, or has failed for good."""


class Undivided:
    """All packs are for this driver."""

    def begin(self, jobs: Iterable[PackJob]) -> None:
        """Nothing is to be noted."""

    def any(self) -> bool:
        return True

    def first(self, packs: Collection[str]) -> str | None:
        return next(iter(packs), None)

    def free(self, packs: Collection[str]) -> int:
        return len(packs)

    def started(self, pack: str) -> None:
        """Nothing is to be noted."""

    def settled(self, name: str) -> None:
        """Nothing is to be given back."""


class Divided:
    """Several drivers run the packs; each takes a pack before it starts it, and gives it back when its trials ended.

    Args:
        claims: what this driver holds.
        store: the study's results.
        on_found: told of what other drivers have ended.
        slots: the most packs that this driver could run at once so far.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        claims: Claims,
        store: Store,
        on_found: OnFound,
        slots: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claims, self._store, self._on_found, self._slots, self._clock = claims, store, on_found, slots, clock
        self._whole: dict[str, str] = {}  # trial -> its pack in the plan
        self._left: dict[str, set[str]] = {}  # such a pack -> its trials that have not ended
        self._waiting: dict[str, PackJob] = {}  # jobs that have not started
        self._jobs: dict[str, list[str]] = {}  # a pack of the plan -> the jobs of this batch that run trials of it
        self._ready: dict[str, None] = {}  # those of them that this driver holds
        self._unread: list[str] = []  # packs that it has taken, before it knows what is stored of them
        self._due: set[str] = set()  # packs that are to be given back
        self._failed_before = {name: failure.get("time") for name, failure in store.failures().items()}
        self._next_look = clock() + LOOK_INTERVAL

    def begin(self, jobs: Iterable[PackJob]) -> None:
        self._waiting, self._jobs = {job.pack: job for job in jobs}, {}
        for job in self._waiting.values():
            self._jobs.setdefault(job.whole, []).append(job.pack)
            for name in (name for name, _ in job.members if name not in self._whole):
                self._whole[name] = job.whole
                self._left.setdefault(job.whole, set()).add(name)
        self._ready = {}
        self._make_ready(self._claims.held.difference(self._unread))

    def _make_ready(self, taken: Collection[str]) -> None:
        jobs = (pack for whole in taken for pack in self._jobs.get(whole, ()))
        self._ready |= {pack: None for pack in jobs if pack in self._waiting}

    def any(self) -> bool:
        self._give_back()
        self._look()
        return bool(self._ready) or self.first(self._waiting) is not None

    def first(self, packs: Collection[str]) -> str | None:
        if (mine := self._mine(packs)) is None and self._take(packs):
            mine = self._mine(packs)
        return mine

    def free(self, packs: Collection[str]) -> int:
        theirs = self._claims.elsewhere()
        return sum(pack in self._waiting and self._waiting[pack].whole not in theirs for pack in packs)

    def _mine(self, packs: Collection[str]) -> str | None:
        return next((pack for pack in self._ready if pack in packs), None)

    def _take(self, packs: Iterable[str]) -> bool:
        """Takes some of these packs; whether it got any that have trials left."""
        wanted = (self._waiting[pack].whole for pack in packs if pack in self._waiting)
        self._unread = self._unread or self._claims.take(wanted, max(1, self._slots() // _AHEAD))
        if not self._unread:
            return False
        # Another driver may have ended their trials since the last look. Its failures count once it has given the
        # pack back: before, it may try again.
        names = {name for whole in self._unread for name in self._left[whole]}
        outcomes = self._store.outcomes(filter(self._store.has, names))
        failures = self._store.failures(names - outcomes.keys())
        before = self._failed_before
        new = {name: failure for name, failure in failures.items() if failure.get("time") != before.get(name)}
        taken, self._unread = self._unread, []
        self._make_ready(taken)
        self._on_found(outcomes, new)
        return any(self._left[whole] for whole in taken)

    def _look(self) -> None:
        """Finds what other drivers have stored of the jobs that wait; not too often."""
        if (began := self._clock()) < self._next_look:
            return
        others = [job for pack, job in self._waiting.items() if pack not in self._ready]
        names = {name for job in others for name, _ in job.members if name in self._left[job.whole]}
        if names and (stored := self._store.identities() & names):
            self._on_found(self._store.outcomes(stored), {})
        pause = max(LOOK_INTERVAL, (self._clock() - began) / _SHARE_OF_TIME)
        self._next_look = self._clock() + min(pause, _LONGEST_PAUSE)

    def started(self, pack: str) -> None:
        self._waiting.pop(pack, None)
        self._ready.pop(pack, None)

    def settled(self, name: str) -> None:
        if (whole := self._whole.get(name)) is None or name not in self._left[whole]:
            return
        self._left[whole].discard(name)
        if not self._left[whole]:
            for pack in self._jobs.get(whole, ()):
                self.started(pack)  # nothing of it is left to start
            self._due.add(whole)
            self._give_back()

    def _give_back(self) -> None:
        self._claims.release(self._due)
        self._due = set()
