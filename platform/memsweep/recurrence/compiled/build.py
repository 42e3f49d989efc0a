"""Finds the kernels for this processor: a wheel's libraries, else libraries compiled once and kept in a cache."""

from __future__ import annotations

import ctypes
import logging
import os
import stat
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

from memsweep.home import cache_folder
from memsweep.recurrence.compiled.compiler import (
    REALS,
    CannotBuildError,
    code_hash,
    compile_to,
    compiler,
    library_name,
    target,
)

CACHE = "MEMSWEEP_CACHE"
"""Environment variable: folder of compiled libraries and of read sources (default: memsweep in the user's cache)."""
BUILT = Path(__file__).parent / "built"
"""Libraries of a wheel."""
_log = logging.getLogger("memsweep")


def library_path(real: str) -> Path:
    """The shared library for one type of numbers: of the wheel, else of the cache, compiled if it is not there.

    Args:
        real: the C++ type of a number, ``double`` or ``float``.

    Raises:
        CannotBuildError: nothing built fits, and no compiler was found, or it failed.
    """
    if (path := _built(real)) is not None:
        return path
    program = compiler()
    path = _cache() / library_name(real, target(), program)
    if path.is_file():
        return path
    # the other workers of this machine wait for the one that compiles
    with FileLock(f"{path}.lock"):
        if not path.is_file():
            compile_to(path, real, target(), program)
    return path


def is_ready(real: str) -> bool:
    """Whether ``library_path`` has nothing to compile, because the library is there or no compiler is."""
    try:
        return _built(real) is not None or (_cache() / library_name(real, target(), compiler())).is_file()
    except CannotBuildError:
        return True


def _built(real: str) -> Path | None:
    """A library of the wheel, made of these very sources for what this processor has, that this system can load."""
    for path in sorted(BUILT.glob(f"kernels-{real}-{target()}-{code_hash(target())}-*.so")):
        try:
            ctypes.CDLL(str(path))
            return path
        except OSError as error:
            _log.info("the built kernels cannot be used here (%s)", error)
    return None


def cache() -> Path:
    """The folder of what this user's runs keep on this machine, which nobody else can write to.

    Raises:
        CannotBuildError: there is none.
    """
    return _cache()  # which keeps its name: it is in the code of all trials


def _cache() -> Path:
    """A folder that this user alone can write to: what lies in it will be executed."""
    named = os.environ.get(CACHE)
    for folder in [Path(named)] if named else [cache_folder(), Path(tempfile.gettempdir()) / f"memsweep-{_user()}"]:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(folder) and os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    raise CannotBuildError(
        f"no folder for compiled code can be written to. Name one that is yours alone with the environment variable "
        f"{CACHE}."
    )


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else "user"


def _is_ours(folder: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    about = folder.stat()
    return about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _main() -> None:
    """``python -m memsweep.recurrence.compiled.build``: compile now, as an image or a node does when it is made."""
    for real in REALS:
        sys.stdout.write(f"{library_path(real)}\n")


if __name__ == "__main__":
    _main()
