"""The code that this user has trusted: a file of their own state, by hashes of what would run."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict


class _Entry(TypedDict):
    call: str
    studies: list[str]
    when: str


def kept_file() -> Path:
    """Below ``XDG_STATE_HOME``, else ``~/.local/state``."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "memsweep" / "trusted.json"


def known(study: str | None = None) -> frozenset[str]:
    """The digests of what was trusted; none where there is no such file, or others may write to it.

    Args:
        study: of this study alone; None: of all.
    """
    return frozenset(digest for digest, entry in _read().items() if study is None or study in entry["studies"])


def keep(trusted: Mapping[str, str], study: str) -> None:
    """Remembers the calls of a study.

    Where the file cannot be written nothing is remembered: the person is asked again.

    Args:
        trusted: digest -> the call, for the person who reads the file.
        study: its name.
    """
    from filelock import FileLock

    file = kept_file()
    if not trusted or not trusted.keys() - known(study):
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(f"{file}.lock", mode=0o600):
            content, now = _read(), datetime.now(UTC).isoformat(timespec="seconds")
            for digest, call in trusted.items():
                entry = content.setdefault(digest, {"call": call, "studies": [], "when": now})
                entry["studies"] = sorted({*entry["studies"], study})
            _replace(file, json.dumps({"trusted": content}, indent=1))


def _read() -> dict[str, _Entry]:
    try:
        with kept_file().open(encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.getuid() or about.st_mode & 0o022:
                return {}
            content: dict[str, _Entry] = json.load(file)["trusted"]
            return {digest: entry for digest, entry in content.items() if isinstance(entry["studies"], list)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # absent, or damaged
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
