"""How many packs have room on the session's cluster, look by look, and the request for nodes for those that wait.

More trials than there is room for must not be given to Tune: where one ends, Tune would give its process to a trial
whose own process is just starting, and end that one. So requests of our own ask for nodes, and Tune's trials follow
the nodes that have come.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import counted
from memsweep.sweep.ray.capacity import NOT_KNOWN, REQUESTS, SAY_INTERVAL, Capacity, Requests, capacity, each, room

_LOOK_INTERVAL = 2.0  # seconds

_log = logging.getLogger("memsweep")


class Room:
    """Room for packs on a cluster whose nodes come and go.

    Args:
        resources: what one pack asks for.
        follows: whether nodes may come and go; a Ray that was started here has one.
        clock: monotonic seconds.

    Attributes:
        now: packs that the living nodes hold at once, at the last look.
        most: the largest value of ``now`` so far, at least 1.
        expected: packs that it may hold at once before the end.
        leaving: addresses of nodes that are about to end; what runs there may go on.
    """

    def __init__(
        self, resources: ResourcesConfig, *, follows: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._resources, self._follows, self._clock = resources, follows, clock
        self._requests = Requests(resources)
        found = capacity()
        self.now, self.leaving = room(resources, found.living), found.leaving
        self.most = max(1, self.now)
        self.expected = self.now + REQUESTS if found.most is None else room(resources, found.most)
        self._began = self._looked = self._tried = self._told = clock()
        self._area = 0.0  # packs times seconds
        self._empty_since: float | None = None

    @property
    def absent(self) -> float:
        """Slots times seconds so far in which some of ``most`` slots were not there."""
        now = self._clock()
        return self.most * (now - self._began) - self._area - self.now * (now - self._looked)

    def look(self, left: int) -> None:
        """Follows the cluster; does nothing where the last look was a moment ago, or the cluster does not answer.

        Args:
            left: packs that have not ended, running ones included.
        """
        if not self._follows or self._clock() - self._tried < _LOOK_INTERVAL:
            return
        self._tried = self._clock()  # one that does not answer is not asked at every step
        from ray.exceptions import RayError

        with contextlib.suppress(RayError):
            self._follow(capacity(), left)

    def _follow(self, found: Capacity, left: int) -> None:
        now, before = self._clock(), self.now
        self._area += before * (now - self._looked)
        self._looked = now
        self.now, self.leaving = room(self._resources, found.living), found.leaving
        self.most = max(self.most, self.now)
        possible = NOT_KNOWN if found.most is None else room(self._resources, found.most)
        wanted = min(left, possible) - self.now if found.grows else 0
        self._requests.ask(max(0, wanted))
        self._say(before, left, max(0, wanted))

    @contextmanager
    def followed(self) -> Iterator[None]:
        """While it lasts, nodes may be asked for; nothing is at its end, where nobody looks."""
        from ray.exceptions import RayError

        try:
            yield
        finally:
            with contextlib.suppress(RayError):  # the cluster may be gone, and its requests with it
                self._requests.ask(0)

    def _say(self, before: int, left: int, asked: int) -> None:
        if self.now == 0 and left and (self._empty_since is None or self._looked - self._told >= SAY_INTERVAL):
            self._empty_since = self._looked if self._empty_since is None else self._empty_since
            waited, self._told = self._looked - self._empty_since, self._looked
            request = f"Asked for: {asked} times {each(self._resources)}" if asked else "Nobody starts nodes here"
            _log.warning("no node has room for a pack; %d have not ended. %s. Waited %.0f s", left, request, waited)
        elif self.now and self.now != before:
            self._empty_since = None
            _log.warning("the nodes have room for %s at once now (%d before)", counted(self.now, "pack"), before)
