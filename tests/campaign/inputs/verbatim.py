"""Verbs repeated verbatim: a command that was stopped goes on when it is typed again, letter by letter."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from memsweep.errors import Exit
from memsweep.sweep.store.results import Store
from sweeping import BASE
from tests.campaign.inputs.answers import answered, places, started

TIMES = 8
"""Repetitions after which a command that is stopped after one trial at a time must have done all of its work."""
KILLED = 0.25
"""Share of the cases that are stopped by SIGKILL in a process of their own, which costs some seconds."""


def repeated(luck: random.Random, folder: Path) -> None:
    """A verb is stopped, by a limit or a kill, and repeated: in the end its work is done, and it says so with 0."""
    (folder / "small.yaml").write_text(f"{BASE}grid: {{model.width: [2, 3]}}\n")
    study, verb = str(folder / "small.yaml"), luck.choice(["sweep", "extend", "measure", "resume", "sync", "report"])
    words, total = {
        "sweep": (["sweep", study], 2),
        "extend": (["extend", study, "model.width=4,5"], 4),
        "measure": (["measure", "small", "perturbation.starts=2", 'name="more"'], 2),
        "resume": (["resume", "small"], 2),
        "sync": (["sync", "small"], 2),
        "report": (["report", "small"], 2),
    }[verb]
    place, begun = [*places(folder), "--inline"], verb == "resume"
    if begun or verb != "sweep":
        limit = ["--max-trials", "1"] if begun else []
        answered(["sweep", study, *limit, *place], frozenset({Exit.LIMIT if begun else 0}))
    done = Store(folder / "results" / ("more" if verb == "measure" else "small"))
    if verb in ("sync", "report"):
        place = places(folder)[: 4 if verb == "sync" else 2]
    if luck.random() < KILLED or verb in ("sync", "report"):
        _killed([*words, *place], folder, done, luck)
    else:
        words = [*words, "--max-trials", "1"]
    _again([*words, *place], done, total)


def _again(words: list[str], done: Store, total: int) -> None:
    """Type the same command until it says that all is done."""
    for _ in range(TIMES):
        said = answered(words, frozenset({0, Exit.LIMIT}))
        if len(done.identities()) == total:
            break
    else:
        raise AssertionError(f"{words!r}, {TIMES} times: {len(done.identities())} of {total} trials: {said[-1500:]}")
    answered(words, frozenset({0}))


def _killed(words: list[str], folder: Path, done: Store, luck: random.Random) -> None:
    """Start the command and kill it at a moment between its plan and its end."""
    process = started(words, folder)
    before, pause = done.identities(), luck.uniform(0.0, 0.5)
    try:
        last = time.monotonic() + (300.0 if "--inline" in words else luck.uniform(1.0, 8.0))
        while process.poll() is None and not done.identities() - before and time.monotonic() < last:
            time.sleep(0.02)
        time.sleep(pause)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
