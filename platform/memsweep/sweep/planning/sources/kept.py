"""Keeps what was read of the engine's sources on this machine, for the commands and workers that come after.

Reading them takes more than a second of each process, and they change with a version alone. What is kept counts for
exactly the same files: its name holds a hash of their contents.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memsweep.recurrence.compiled.build import cache

_NAME = "sources-"
_FILES = 4
"""Kept at once: those that were written last."""
_STALE_SECONDS = 3600.0
"""Age of a draft whose process was killed."""


class Kept:
    """The sources of a package as they were read, in a file of this user's cache.

    It is never needed: without a folder for it, or with a file that is broken, the sources are read.

    Args:
        package: folder of the sources.
    """

    def __init__(self, package: Path) -> None:
        self._package = package
        self._known: set[str] = set()

    def load(self) -> dict[str, Any]:
        """The modules that were read, by their dotted names."""
        found: dict[str, Any] = {}
        with contextlib.suppress(Exception):  # as broken as a file may be, it is only not used
            found = dict(pickle.loads(self._path().read_bytes()))
        self._known = {*found}
        return found

    def save(self, modules: Mapping[str, Any]) -> None:
        """Keeps what was read, if there are modules in it that are not kept yet.

        Nothing is kept where a source has changed since ``load``: it may have been read before or after.
        """
        if self._known >= modules.keys():
            return
        self._known = {*modules}
        with contextlib.suppress(Exception):  # no folder, no space, no home: then the next process reads them
            path = self._path()
            if _hash_of(self._package) == self._hash:
                _write(path, dict(modules))
                _forget_oldest(path.parent)

    def _path(self) -> Path:
        return cache() / f"{_NAME}{self._hash}.pickle"

    @functools.cached_property
    def _hash(self) -> str:
        """Of the sources as they were at first."""
        return _hash_of(self._package)


def _hash_of(package: Path) -> str:
    """Of all sources of a package as they are now."""
    told = hashlib.sha256(repr(sys.version_info).encode())
    for path in sorted([*package.rglob("*.py"), *package.rglob("members.txt")]):
        told.update(path.relative_to(package).as_posix().encode())
        told.update(hashlib.sha256(path.read_bytes()).digest())
    return told.hexdigest()[:32]


def _write(path: Path, modules: dict[str, Any]) -> None:
    """Writes the file whole or not at all, whoever else writes or reads it."""
    number, draft = tempfile.mkstemp(prefix=f".{_NAME}", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            pickle.dump(modules, file, protocol=pickle.HIGHEST_PROTOCOL)
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.glob(f"{_NAME}*.pickle"), key=lambda path: path.stat().st_mtime_ns)
    drafts = [path for path in folder.glob(f".{_NAME}*") if time.time() - path.stat().st_mtime > _STALE_SECONDS]
    for path in [*files[:-_FILES], *drafts]:
        path.unlink(missing_ok=True)
