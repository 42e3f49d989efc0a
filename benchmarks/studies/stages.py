"""How long the stages of one piece of work took, one after the other."""

from __future__ import annotations

import time


class Stages:
    """A stopwatch; ``seconds`` by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def ended(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
