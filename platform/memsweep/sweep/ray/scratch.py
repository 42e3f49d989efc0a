"""Makes the temporary folder of a run of Ray Tune or Ray Train, and removes the folders that killed processes left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX, _LOCK = "memsweep-ray-", ".lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Makes a temporary folder and removes it at the end; removes the folders of processes that were killed before.

    A process holds a lock on a file in its folder. The kernel frees the lock when the process ends, however it ends.
    """
    remove_abandoned()
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder,
        open(os.path.join(folder, _LOCK), "wb") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder).resolve()


def remove_abandoned() -> None:
    """Remove this user's folders that no process holds; a folder without a lock file may just be being made."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, another process's, or gone meanwhile
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with open(folder / _LOCK, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
