"""A command that is killed, or whose disk becomes full, when it touches a file for the n-th time.

It runs in a fork of this process, where the heavy libraries are imported already: so it costs what it does.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

KILL, FILL = "kill", "fill"
_TOUCHES = ("open", "os.rename", "os.remove", "os.mkdir", "sqlite3.connect")


@dataclass(frozen=True)
class Watched:
    """An ended command.

    Attributes:
        code: its exit code; minus the number of the signal that ended it.
        told: standard output and standard error.
        touches: how often it touched a file; 0 where it was killed.
    """

    code: int
    told: str
    touches: int


def watched(
    words: tuple[str, ...], workspace: Path, folder: Path | None = None, *, at: int = 0, deed: str = KILL
) -> Watched:
    """``memsweep WORDS`` in a process of its own.

    Args:
        words: of the command.
        workspace: the folder in which it runs.
        folder: whose files are watched (None: the workspace).
        at: which touch of a file there comes after the deed; 0 for none.
        deed: ``KILL`` kills the process, ``FILL`` fills the disk of the folder with a file ``filler``.
    """
    import matplotlib.pyplot  # noqa: F401
    import mlflow.tracking  # noqa: F401
    import torch  # noqa: F401

    import memsweep.trial  # noqa: F401

    out, counted = workspace.with_suffix(".out"), workspace.with_suffix(".count")
    counted.unlink(missing_ok=True)
    faulthandler.cancel_dump_traceback_later()  # of pytest: a fork with one pending waits for ever when it sets its own
    child = os.fork()
    if child == 0:
        _run(words, workspace, out, counted, (str(folder or workspace), at, deed))
    _, status = os.waitpid(child, 0)
    touches = int(counted.read_text()) if counted.exists() else 0
    return Watched(os.waitstatus_to_exitcode(status), out.read_text(errors="replace"), touches)


def _run(words: tuple[str, ...], workspace: Path, out: Path, counted: Path, watch: tuple[str, int, str]) -> NoReturn:
    """The fork: never returns into pytest."""
    code = 99
    try:
        signal.alarm(600)  # a command that hangs ends by it
        log = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.chdir(workspace)
        sys.argv = ["memsweep", *words]
        seen = _watch(*watch)
        from memsweep.cli import main

        code = main()
        counted.write_text(str(len(seen)))
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _watch(folder: str, at: int, deed: str) -> list[str]:
    """The events that touch a file below a folder, as they come."""
    seen: list[str] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in _TOUCHES and isinstance(args[0], str) and os.path.abspath(args[0]).startswith(folder):
            seen.append(event)
            if len(seen) == at:
                os.kill(os.getpid(), signal.SIGKILL) if deed == KILL else _fill(folder)

    sys.addaudithook(hook)
    return seen


def _fill(folder: str) -> None:
    filler, size = os.open(f"{folder}/filler", os.O_WRONLY | os.O_CREAT), 1 << 20
    while size:
        try:
            os.write(filler, bytes(size))
        except OSError:
            size //= 2
    os.close(filler)
