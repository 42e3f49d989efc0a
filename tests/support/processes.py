"""Processes of tests: to wait for them, end one that hangs, find those left behind, and run Triton's interpreter."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from paths import ROOT

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether ``interpret`` started this process."""


def wait_for(
    condition: Callable[[], object], ended: Callable[[], object] = lambda: None, seconds: float = 300.0
) -> None:
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last, "waited in vain"
        assert ended() is None, "the process ended too soon"
        time.sleep(0.1)


@contextlib.contextmanager
def no_hang(seconds: int = 300) -> Iterator[None]:
    """Fail a body that would never end. It says nothing of how fast the body is: other work may slow a machine down."""

    def fail(*_: object) -> None:
        raise AssertionError(f"it has not ended after {seconds} s: it hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def descendants_of(pid: int) -> set[int]:
    """A living process and all that it started, and they; also those whose environment a new title has overwritten."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            after_name = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(after_name[1])
    found, fresh = {pid}, {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def carriers_of(token: str) -> list[int]:
    """Living processes that inherited the token: the sweep's own, wherever they moved in the process tree."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if token.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def interpret(file: str, *words: str) -> str:
    """Runs the tests of a file by Triton's interpreter; returns the output.

    They have a process of their own, because Triton decides at import whether it interprets.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-rs", file, *words]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
