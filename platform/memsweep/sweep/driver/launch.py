"""Where packs run; imports nothing of what runs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """Where packs run.

    Attributes:
        inline: in this process, one after another, without Ray; None: as ``placement`` says, once it is
            known what is left to run.
        address: a running Ray cluster (``auto`` or ``host:port``); None starts Ray on this machine.
    """

    inline: bool | None = None
    address: str | None = None
