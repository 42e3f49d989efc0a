"""Where things go that a study's storage does not take: a folder of this user on this machine."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memsweep.sweep.store.filesystem import FileSlot, Location

_BACK_OFF = 10.0
"""After a failed write, the storage is passed over for this many times the seconds that the write took."""


def fallback_folder(location: Location) -> Location:
    """The folder of a study for what its storage does not take; below ``XDG_STATE_HOME``, else ``~/.local/state``.

    Args:
        location: the study's folder.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    own = f"{location.name[:60]}-{hashlib.sha256(location.uri.encode()).hexdigest()[:16]}"
    return Location.at(state / "memsweep" / own)


@dataclass(frozen=True)
class UnstoredResult:
    """A result that the storage did not take.

    Attributes:
        outcome: of the trial.
        files: as ``Store.encode`` gives them.
    """

    outcome: str
    files: Mapping[str, bytes]

    def to_json(self) -> dict[str, Any]:
        """Plain data, for a report."""
        files = {path: base64.b64encode(content).decode() for path, content in self.files.items()}
        return {"outcome": self.outcome, "files": files}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnstoredResult:
        """The result that ``to_json`` was called on."""
        return cls(data["outcome"], {path: base64.b64decode(text) for path, text in data["files"].items()})


@dataclass
class FallbackSlot:
    """A checkpoint's slot in the study's storage, and one on this machine while the storage does not take it.

    The second one, where it is there, is the later one: it goes with the next write that the storage takes.
    """

    slot: FileSlot
    elsewhere: FileSlot
    _next_try: float = field(default=-math.inf, init=False)

    def __str__(self) -> str:
        return str(self.slot)

    def read(self, most: int | None = None) -> bytes | None:
        """See ``FileSlot.read``."""
        with contextlib.suppress(OSError):
            if (data := self.elsewhere.read(most)) is not None:
                return data
        return self.slot.read(most)

    def write(self, data: bytes) -> None:
        """Write the file, whole or not at all.

        Raises:
            OSError: neither place takes it.
        """
        began = time.monotonic()
        if began >= self._next_try:
            try:
                self.slot.write(data)
            except OSError:
                ended = time.monotonic()
                self._next_try = ended + _BACK_OFF * (ended - began)
            else:
                with contextlib.suppress(OSError):
                    self.elsewhere.delete()
                return
        self.elsewhere.write(data)

    def delete(self) -> None:
        """Delete the file in both places, if it exists."""
        with contextlib.suppress(OSError):
            self.elsewhere.delete()
        self.slot.delete()
