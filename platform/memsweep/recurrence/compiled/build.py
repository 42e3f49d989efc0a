"""Compiles the kernels for this processor, once, and keeps the library in a cache."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

from memsweep.errors import MemsweepError

CACHE = "MEMSWEEP_CACHE"
"""Environment variable: folder of compiled libraries (default: memsweep in the user's cache folder)."""
_SOURCE = Path(__file__).parent / "cpp"
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-Wno-psabi", "-Wno-ignored-attributes"),
    *("-fschedule-insns", "-fsched-pressure"),  # an eighth of the time of dense layers; Clang passes over them
)
_TIME_LIMIT = 600  # seconds for one compilation


class CannotBuildError(MemsweepError):
    """There is no compiler, or it failed; the message says what to do."""


def library_path(real: str) -> Path:
    """The shared library for one type of numbers, compiled if it is not in the cache.

    Args:
        real: the C++ type of a number, ``double`` or ``float``.

    Raises:
        CannotBuildError: no compiler was found, or it failed.
    """
    compiler = _compiler()
    path = _cache() / f"kernels-{real}-{_fingerprint(compiler)}.so"
    if path.is_file():
        return path
    # the other workers of this machine wait for the one that compiles
    with FileLock(f"{path}.lock"):
        if not path.is_file():
            _compile(compiler, real, path)
    return path


def _compiler() -> str:
    names = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    for name in names:
        if path := shutil.which(name):
            return path
    raise CannotBuildError(
        f"no C++ compiler was found (looked for {', '.join(names)}). Install one, on Debian or Ubuntu: "
        "apt-get install g++, or name one with the environment variable CXX."
    )


def _fingerprint(compiler: str) -> str:
    """Hash of everything that decides the library: sources, flags, compiler, processor."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    parts = [path.read_text(encoding="utf-8") for path in sources()]
    text = "\n".join([*parts, *_FLAGS, version, _processor()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sources() -> list[Path]:
    """The C++ files, in a fixed order."""
    return sorted(path for path in _SOURCE.iterdir() if path.suffix in (".cpp", ".h"))


def _processor() -> str:
    """The facts that ``-march=native`` depends on: processors with equal facts can share a library."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    facts = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    return "\n".join([platform.machine(), platform.processor(), *sorted(facts)])


def _cache() -> Path:
    """A folder that this user alone can write to: what lies in it will be executed."""
    named = os.environ.get(CACHE)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in [Path(named)] if named else [base / "memsweep", Path(tempfile.gettempdir()) / f"memsweep-{_user()}"]:
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


def _compile(compiler: str, real: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        built = Path(scratch) / path.name
        units = [str(path) for path in sources() if path.suffix == ".cpp"]
        command = [compiler, *_FLAGS, f"-DREAL={real}", *units, "-o", str(built)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIME_LIMIT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotBuildError(f"{compiler} could not be run: {error}. Name another with CXX.") from error
        if done.returncode != 0 or not built.is_file():
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            raise CannotBuildError(
                f"{compiler} could not compile the recurrences ({lines[0]}). Name another compiler with CXX; "
                f"the command was: {' '.join(command)}"
            )
        os.replace(built, path)


def _main() -> None:
    """``python -m memsweep.recurrence.compiled.build``: compile now, as an image or a node does when it is made."""
    for real in ("double", "float"):
        sys.stdout.write(f"{library_path(real)}\n")


if __name__ == "__main__":
    _main()
