"""CPU time and memory of processes and threads, from Linux's /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS = 0.1


def children(pid: int | None = None) -> list[int]:
    """Processes that this one started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process, of what runs below it, and of its children that have ended."""
    try:
        fields = _stat(Path(f"/proc/{pid}/stat"))
        return sum(map(int, fields[11:15])) / _TICKS + sum(map(tree_cpu, children(pid)))
    except OSError:
        return 0.0


def thread_cpu() -> dict[str, float]:
    """CPU seconds of this process's threads: those that Python named, by that name, all others as ``native``."""
    named = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[str, float] = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            fields = _stat(task / "stat")
        except OSError:
            continue
        name = named.get(int(task.name), "native")
        found[name] = found.get(name, 0.0) + sum(map(int, fields[11:13])) / _TICKS
    return found


@contextmanager
def consumed() -> Iterator[Callable[[], float]]:
    """Gives a function that says how many CPU seconds this process and all that it started have used in the body.

    It looks every tenth of a second, because a process that ended, and whose parent did not wait, is counted nowhere
    else (Ray's workers); what one uses after the last look is lost.
    """
    seen: dict[tuple[int, str], float] = {}
    processes, over = {os.getpid()}, threading.Event()

    def look() -> None:
        for pid in list(processes):
            try:
                fields = _stat(Path(f"/proc/{pid}/stat"))
                processes.update(children(pid))
            except OSError:
                continue
            seen[pid, fields[19]] = sum(map(int, fields[11:13])) / _TICKS  # a number may be given twice, a start not

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            look()

    def total() -> float:
        look()
        return sum(seen.values()) - before

    look()
    before, thread = sum(seen.values()), threading.Thread(target=watch, name="looks", daemon=True)
    thread.start()
    try:
        yield total
    finally:
        over.set()
        thread.join()


def resident() -> float:
    """Resident memory of this process now, MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20


def _stat(path: Path) -> list[str]:
    """The fields after the name, which may hold anything; user time is the eleventh of them."""
    return path.read_text().rpartition(")")[2].split()
