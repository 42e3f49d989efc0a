"""Where packs run; imports nothing of what runs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """Where packs run.

    Attributes:
        inline: in this process, one after another, without Ray.
        address: a running Ray cluster (``auto`` or ``host:port``); None starts Ray on this machine.
    """

    inline: bool = False
    address: str | None = None
