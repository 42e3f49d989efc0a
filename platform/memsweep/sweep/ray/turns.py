"""The packs of an experiment in the order in which Tune gets them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence

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
    """

    def __init__(self, jobs: Sequence[PackJob], room: Room, open_packs: Container[str], at_once: int) -> None:
        self._waiting: dict[ResourcesConfig, deque[tuple[int, str]]] = {}
        for place, job in enumerate(jobs):
            self._waiting.setdefault(job.resources, deque()).append((place, job.pack))
        self._given: dict[str, ResourcesConfig] = {}
        self._room, self._open, self._at_once = room, open_packs, at_once

    @property
    def limit(self) -> int:
        """Packs that Tune may have now."""
        with_tune = self._with_tune()
        more = self._kind(with_tune) is not None and len(self._given) < self._at_once
        return len(self._given) + more

    def left(self, *, waiting: bool) -> Counter[ResourcesConfig]:
        """Packs by kind that Tune has; and those that wait for their turn, at most as many as may run at once."""
        found = self._with_tune()
        if waiting:
            found += Counter({kind: len(packs) for kind, packs in self._waiting.items()})
        return Counter({kind: min(count, self._at_once) for kind, count in found.items()})

    def next(self) -> str:
        """The next pack; where there is room for none, the first that waits."""
        kind = self._kind(self._with_tune())
        if kind is None:
            kind = self._first([kind for kind, packs in self._waiting.items() if packs])
        _, pack = self._waiting[kind].popleft()
        self._given[pack] = kind
        return pack

    def _with_tune(self) -> Counter[ResourcesConfig]:
        self._given = {pack: kind for pack, kind in self._given.items() if pack in self._open}
        return Counter(self._given.values())

    def _kind(self, with_tune: Counter[ResourcesConfig]) -> ResourcesConfig | None:
        ready = [kind for kind, packs in self._waiting.items() if packs and with_tune[kind] < self._room.of[kind]]
        return self._first(ready) if ready else None

    def _first(self, kinds: Iterable[ResourcesConfig]) -> ResourcesConfig:
        return min(kinds, key=lambda kind: self._waiting[kind][0])
