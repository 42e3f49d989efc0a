"""How many packs have room on the session's cluster, look by look, and the request for nodes for those that wait.

More trials than there is room for must not be given to Tune: where one ends, Tune would give its process to a trial
whose own process is just starting, and end that one. So requests of our own ask for nodes, and Tune's trials follow
the nodes that have come.

A request that has been met holds a slot, and one that waits would take each slot that is freed, before the pack for
which it is meant. So there are none while a pack waits for its own: what that asks for is what an autoscaler sees.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import counted
from memsweep.sweep.ray.capacity import (
    REQUESTS,
    SAY_INTERVAL,
    Capacity,
    Kinds,
    Requests,
    Seen,
    asked_for,
    capacity,
    most_packs,
    rooms,
    work_of,
)

_LOOK_INTERVAL = 2.0  # seconds
_BRIEF = 4.0  # seconds that a pack may wait for its room before it is said

_log = logging.getLogger("memsweep")


class NodeHours:
    """Hours of a cluster's nodes with cores, from the first look on: each look counts until the next one.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._looked = clock, clock()
        self._there, self._seconds = 0, 0.0

    def look(self, found: Capacity) -> None:
        """Notes the nodes that there are now."""
        now = self._clock()
        self._seconds += self._there * (now - self._looked)
        self._looked, self._there = now, sum(bool(node.get("CPU")) for node in found.living)

    @property
    def used(self) -> float:
        """Hours so far, whether packs ran there or not."""
        return (self._seconds + self._there * (self._clock() - self._looked)) / 3600.0


class Room:
    """Room for packs on a cluster whose nodes come and go.

    Args:
        kinds: what packs ask for.
        follows: whether nodes may come and go; a Ray that was started here has one.
        nodes: the most that packs of all kinds together may fill at once; None: as many as there are.
        hours: of its nodes; None: counted from now on.
        clock: monotonic seconds.

    Attributes:
        of: packs of each kind that the living nodes hold at once, at the last look, as if there were no others.
        most: the largest number of packs of one kind so far, at least 1.
        expected: packs that it may hold at once before the end.
        leaving: addresses of nodes that are about to end; what runs there may go on.
    """

    def __init__(
        self,
        kinds: Collection[ResourcesConfig],
        *,
        follows: bool,
        nodes: int | None = None,
        hours: NodeHours | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follows, self._nodes, self._clock = follows, nodes, clock
        self._requests, self._hours = Requests(), hours or NodeHours(clock)
        self._began = self._looked = self._tried = self._told = clock()
        self._area = 0.0  # packs times seconds
        self._empty_since: float | None = None
        self._behind_since: float | None = None
        self._behind_told: float | None = None
        self.of, self.most, self.expected = dict[ResourcesConfig, int](), 1, 1
        self._left: Kinds = {}
        self.add(kinds)

    def add(self, kinds: Collection[ResourcesConfig]) -> None:
        """Packs ask for these kinds, too, from now on."""
        found = capacity()
        self._left = dict.fromkeys((*self.of, *kinds), 1) | {**self._left}
        self._see(found)
        unknown = found.most is None and self._nodes is None
        self.expected = self.now + REQUESTS if unknown else max(self._possible(found).values(), default=1)

    def _see(self, found: Capacity) -> None:
        now = self._clock()
        self._area += self.now * (now - self._looked)
        self._hours.look(found)
        self.of = rooms(self._left, found.living, self._nodes)
        self._looked, self.leaving, self.most = now, found.leaving, max(self.most, self.now)

    @property
    def now(self) -> int:
        """Packs of one kind that the living nodes hold at once, of the kind of which they hold the most."""
        return max(self.of.values(), default=0)

    @property
    def absent(self) -> float:
        """Slots times seconds so far in which some of ``most`` slots were not there."""
        now = self._clock()
        return self.most * (now - self._began) - self._area - self.now * (now - self._looked)

    @property
    def node_hours(self) -> float:
        """Hours of all nodes with cores so far, whether packs ran there or not."""
        return self._hours.used

    def look(self, left: Callable[[], Kinds]) -> None:
        """Follows the cluster; does nothing where the last look was a moment ago, or the cluster does not answer.

        Args:
            left: packs that have not ended, running ones included.
        """
        if not self._follows or self._clock() - self._tried < _LOOK_INTERVAL:
            return
        self._tried = self._clock()  # one that does not answer is not asked at every step
        from ray.exceptions import RayError

        with contextlib.suppress(RayError):
            self._follow(capacity(), left())

    def _follow(self, found: Capacity, left: Kinds) -> None:
        before, self._left = self.now, {kind: left.get(kind, 0) for kind in self.of}
        self._see(found)
        wanted, seen = dict[ResourcesConfig, int](), self._requests.look()
        if found.grows:
            possible = self._possible(found)
            wanted = {kind: max(0, min(left.get(kind, 0), possible[kind]) - self.of[kind]) for kind in self.of}
            self._requests.ask({} if seen.met or seen.waiting else wanted)
        self._say(before, sum(left.values()), asked_for(wanted))
        self._say_behind(seen, asked_for(wanted))

    def _possible(self, found: Capacity) -> dict[ResourcesConfig, int]:
        return most_packs(self._left, found, self._nodes)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """While it lasts, nodes may be asked for; nothing is at its end, where nobody looks."""
        from ray.exceptions import RayError

        try:
            yield
        finally:
            with contextlib.suppress(RayError):  # the cluster may be gone, and its requests with it
                self._requests.ask({})

    def _say(self, before: int, left: int, asked: str) -> None:
        if self.now == 0 and left and (self._empty_since is None or self._looked - self._told >= SAY_INTERVAL):
            self._empty_since = self._looked if self._empty_since is None else self._empty_since
            waited, self._told = self._looked - self._empty_since, self._looked
            request = f"Asked for: {asked}" if asked else "Nobody starts nodes here"
            _log.warning("no node has room for a pack; %d have not ended. %s. Waited %.0f s", left, request, waited)
        elif self.now and self.now != before:
            self._empty_since = None
            _log.warning("the nodes have room for %s at once now (%d before)", counted(self.now, "pack"), before)

    def _say_behind(self, seen: Seen, asked: str) -> None:
        """Says that packs wait for room that others hold, where none of this study runs, and every minute again."""
        if not (seen.waiting and self.now) or seen.held:
            self._behind_since = self._behind_told = None
            return
        self._behind_since = self._looked if self._behind_since is None else self._behind_since
        waited = self._looked - self._behind_since
        if waited < _BRIEF or (self._behind_told is not None and self._looked - self._behind_told < SAY_INTERVAL):
            return
        self._behind_told = self._looked
        asked = f". Asked for: {asked}" if asked else ""
        _log.warning(
            "waiting behind others: the nodes have room for %s, which %s. Waited %.0f s",
            counted(self.now, "pack"),
            f"{work_of(seen.others)} holds{asked}",
            waited,
        )
