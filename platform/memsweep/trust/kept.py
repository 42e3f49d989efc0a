"""What this user has trusted: a file of their own state, by hashes of what would run."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def kept_file() -> Path:
    """Below ``XDG_STATE_HOME``, else ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "memsweep" / "trusted.json"


def known() -> frozenset[str]:
    """The digests of all that was trusted; none where there is no such file, or others may write to it."""
    return frozenset(_read())


def keep(trusted: Mapping[str, str]) -> None:
    """Remembers calls.

    Where the file cannot be written nothing is remembered: the person is asked again.

    Args:
        trusted: digest -> the call, for the person who reads the file.
    """
    from filelock import FileLock

    file = kept_file()
    if not trusted.keys() - known():
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", mode=0o600):
            now = datetime.now(UTC).isoformat(timespec="seconds")
            content = {digest: {"call": call, "when": now} for digest, call in trusted.items()} | _read()
            _replace(file, json.dumps({"trusted": content}, indent=1))


def _read() -> dict[str, Any]:
    try:
        with kept_file().open(encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.getuid() or about.st_mode & 0o022:
                return {}
            return dict(json.load(file)["trusted"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # absent, or damaged
        return {}


def _replace(file: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent)  # mode 600
    try:
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(name, file)
    except OSError:
        os.unlink(name)
        raise
