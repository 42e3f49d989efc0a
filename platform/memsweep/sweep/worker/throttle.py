"""Progress reports at a pace that costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

REPORT_INTERVAL = 1.0  # seconds
_REPORTS = 200
"""Most reports a second of all packs together: a driver takes some hundred more, and has other work."""


def report_interval(packs: int) -> float:
    """Seconds between two reports of one pack, where so many packs run at once."""
    return max(REPORT_INTERVAL, packs / _REPORTS)


def throttled(
    report: Callable[[float], None],
    interval: float = REPORT_INTERVAL,
    clock: Callable[[], float] = time.monotonic,
) -> Callable[[float], None]:
    """The same callback, but calls that come sooner than ``interval`` seconds after the last are dropped."""
    last = clock()

    def maybe(fraction: float) -> None:
        nonlocal last
        now = clock()
        if now - last >= interval:
            last = now
            report(fraction)

    return maybe
