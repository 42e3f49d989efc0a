"""Where a user's own files lie between runs, by the XDG base directories."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Below ``XDG_STATE_HOME``, else ``~/.local/state``."""
    return Path(os.environ.get("XDG_STATE_HOME") or _home() / ".local" / "state") / "memsweep"


def cache_folder() -> Path:
    """Below ``XDG_CACHE_HOME``, else ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "memsweep"


def _home() -> Path:
    """The home folder; of a user without one (a number in a container), a place in which nothing can be made."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/proc/nonexistent")  # not even by root
