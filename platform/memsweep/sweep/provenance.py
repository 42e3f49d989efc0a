"""Where a result comes from: code revision, package versions, host, device, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = ("memsweep", "torch", "numpy", "ray", "pandas", "pyarrow")


def collect(revision: str, *, seconds: float, pack: list[str]) -> dict[str, Any]:
    """The provenance of results that were made just now, in this process.

    Args:
        revision: code revision of the driver.
        seconds: wall-clock time of the whole pack.
        pack: identities of the trials that ran as one program.
    """
    return {
        "code_revision": revision,
        "versions": versions(),
        "host": socket.gethostname(),
        "device": _device(),
        "finished": now(),
        "seconds": seconds,
        "pack": pack,
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can move a number; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def code_revision(folder: Path) -> str:
    """The Git revision of the checkout that holds ``folder``, with ``-dirty`` when it has changes; '' without Git."""
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def now() -> str:
    """The time, UTC, ISO 8601, whole seconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _device() -> str:
    """The processor that made the numbers: ``cpu (AMD EPYC ...)``."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"cpu ({next(models, platform.machine())})"
