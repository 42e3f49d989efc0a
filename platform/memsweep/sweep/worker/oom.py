"""Whether the kernel's out-of-memory killer struck on this machine."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = Path("/proc/vmstat")


class KernelKills:
    """Counts from its creation on; on a system without the counter, or on another node, nothing is seen."""

    def __init__(self) -> None:
        self._seen = _count()

    def happened(self) -> bool:
        """Whether the killer struck since the last call (or since the creation)."""
        before, self._seen = self._seen, _count()
        return self._seen > before


def _count() -> int:
    try:
        lines = _COUNTERS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
