"""A command, what it may answer, and how long it may take."""

from __future__ import annotations

import contextlib
import io
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from memsweep.cli import main
from sweeping import environment
from tests.campaign.places import ROOT

CODES = frozenset({0, 1, 2, 4})
"""The exit codes of a command that nothing stops."""


def answered(words: list[str], codes: frozenset[int] = CODES) -> str:
    """Run a command in this process; it ends with one of the codes, and prints no traceback."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(words)
        except SystemExit as error:  # argparse
            code = error.code if isinstance(error.code, int) else 1
    text = said.getvalue()
    asked = {"-v", "--verbose"} & set(words)  # for the traceback of a refusal
    if code not in codes or ("Traceback (most recent call last)" in text and not asked):
        raise AssertionError(f"memsweep {words!r} ended with {code}: {text[-3000:]}")
    if {"\x1b", "\x07"} & set(text):
        raise AssertionError(f"memsweep {words!r} printed control characters: {text[-3000:]!r}")
    return text


def started(words: list[str], folder: Path, out: int | IO[Any] = subprocess.PIPE) -> subprocess.Popen[str]:
    """The same command as a process of its own; with its standard error where that is read."""
    return subprocess.Popen(
        [sys.executable, "-m", "memsweep", *words],
        cwd=folder,
        env=environment(OMP_NUM_THREADS="1", MPLBACKEND="agg", MLFLOW_DISABLE_TELEMETRY="true"),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def places(folder: Path, workspace: Path = ROOT) -> list[str]:
    """Where a command reads and writes."""
    return ["--results", str(folder / "results"), "--workspace", str(workspace)]


class TooMuchError(BaseException):
    """A command needs more time than it may; no ``except Exception`` of its own holds it up."""


@contextmanager
def bounded(seconds: float, mebibytes: float) -> Iterator[None]:
    """Bounds the processor seconds of what runs inside, and the growth of this process's memory.

    Raises:
        TooMuchError: it took more time.
        AssertionError: it took more memory.
    """

    def stop(*_: object) -> None:
        raise TooMuchError(f"it took more than {seconds:g} s of a processor")

    before, handler = _peak(), signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, handler)
    if (grown := _peak() - before) > mebibytes:
        raise AssertionError(f"its memory grew by {grown:.0f} MiB")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
