"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path

STALE_SECONDS = 3600.0


class Staged:
    """A file that is complete and on the disk, but not yet under its own name.

    Args:
        path: the final place; its folder must exist.
        data: the whole content.
        staging: folder on the same file system for the file until ``commit``.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """

    def __init__(self, path: Path, data: bytes, staging: Path) -> None:
        self.path = path
        # Unique per writer: two processes may stage the same result at the same time.
        self._temporary = staging / f"{path.name}.{os.getpid()}.{uuid.uuid4().hex}"
        try:
            with self._temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            self.discard()
            raise

    def commit(self) -> None:
        """Give the file its name, over whatever had it before."""
        os.replace(self._temporary, self.path)
        sync_folder(self.path.parent)

    def discard(self) -> None:
        """Forget a file that was not committed; does nothing after ``commit``."""
        self._temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot sync a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale(staging: Path, older_than: float = STALE_SECONDS) -> int:
    """Remove what killed writers left in a staging folder; the number of files removed.

    Files younger than ``older_than`` seconds stay: another process may be writing them.
    """
    removed = 0
    for path in staging.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process may be cleaning too
            if time.time() - path.stat().st_mtime > older_than:
                path.unlink()
                removed += 1
    return removed
