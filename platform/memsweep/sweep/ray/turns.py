"""The packs of an experiment in the order in which Tune gets them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Sequence

from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.ray.room import Room
from memsweep.sweep.worker.execute import PackJob


class Turns:
    """Whose turn it is: the first pack of a kind for which there is room, so that no kind waits behind another.

    Args:
        jobs: in order.
        room: what the cluster holds.
        open_packs: the packs that have not ended, which change.
        at_once: the most packs that Tune may have.
        first: the first of some packs that this driver may start; None where there is none.
        free: how many of some packs no other driver holds.
    """

    def __init__(
        self,
        jobs: Sequence[PackJob],
        room: Room,
        open_packs: Container[str],
        at_once: int,
        first: Callable[[Collection[str]], str | None],
        free: Callable[[Collection[str]], int] = len,
    ) -> None:
        # pack -> its place in the order; a plain dict would look for its first entry behind all that are gone
        self._waiting: dict[ResourcesConfig, OrderedDict[str, int]] = {}
        for place, job in enumerate(jobs):
            self._waiting.setdefault(job.resources, OrderedDict())[job.pack] = place
        self._first, self._free = first, free
        self._given: dict[str, ResourcesConfig] = {}
        self._room, self._open, self._at_once = room, open_packs, at_once

    @property
    def limit(self) -> int:
        """Packs that Tune may have now."""
        with_tune = self._with_tune()
        more = self._ready(with_tune) is not None and len(self._given) < self._at_once
        return len(self._given) + more

    def left(self, *, waiting: bool) -> Counter[ResourcesConfig]:
        """Packs by kind that Tune has, at most as many as may run at once.

        Args:
            waiting: those that wait for their turn, too, but for those that other drivers hold.
        """
        found = self._with_tune()
        if waiting:
            found += Counter({kind: self._free(packs) for kind, packs in self._waiting.items()})
        return Counter({kind: min(count, self._at_once) for kind, count in found.items()})

    def next(self) -> str:
        """The next pack; where there is room for none, the first that waits."""
        ready = self._ready(self._with_tune()) or self._earliest(self._waiting)
        if ready is None:
            raise RuntimeError("Tune asked for a pack while none may start")  # it asks only while one may
        kind, pack = ready
        del self._waiting[kind][pack]
        self._given[pack] = kind
        return pack

    def _with_tune(self) -> Counter[ResourcesConfig]:
        self._given = {pack: kind for pack, kind in self._given.items() if pack in self._open}
        return Counter(self._given.values())

    def _ready(self, with_tune: Counter[ResourcesConfig]) -> tuple[ResourcesConfig, str] | None:
        return self._earliest(kind for kind in self._waiting if with_tune[kind] < self._room.of[kind])

    def _earliest(self, kinds: Iterable[ResourcesConfig]) -> tuple[ResourcesConfig, str] | None:
        """Of these kinds the pack that may start and comes first, with its kind."""
        found = [(kind, pack) for kind in kinds if (pack := self._first(self._waiting[kind])) is not None]
        return min(found, key=lambda each: self._waiting[each[0]][each[1]], default=None)
