"""The lease of a sweep: one driver at a time, known by a claim whose heart beats.

To claim is to write a file of one's own, to look, and to withdraw when somebody else's is there. Two that claim at
the same moment may both withdraw, and try again; they can never both stay. That needs no more of a storage than that
a listing shows what was written before it, which disks and object stores give.
"""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from memsweep.errors import MemsweepError
from memsweep.redaction import without_secrets
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.record import now
from memsweep.sweep.store.retry import patient

HEARTBEAT = 5.0
"""Seconds between the beats of a claim."""
EXPIRY = 30.0
"""Seconds without a beat after which a holder counts as dead; a process of this machine that has ended, at once."""

_log = logging.getLogger(__name__)
_FOLDER = "lease"
_TRIES = 6


class HeldError(MemsweepError):
    """Another driver is at work on this sweep."""


@dataclass(frozen=True)
class Holder:
    """Who drives a sweep.

    Attributes:
        host, pid: where.
        machine: tells one running machine (and container) from all others.
        born: when the process started, in the kernel's ticks: a process number is used again.
        since: when it claimed, UTC, ISO 8601.
        command: what it was asked to do.
    """

    host: str
    pid: int
    machine: str
    born: str
    since: str
    command: str

    @classmethod
    def me(cls) -> Holder:
        """This process."""
        words = without_secrets(" ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])) if sys.argv else ""
        return cls(socket.gethostname(), os.getpid(), _machine(), _born(os.getpid()), now(), words[:200])

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.machine == _machine()

    @property
    def process_is_gone(self) -> bool:
        """Whether it ran on this machine and has ended; False on another one, which only its silence tells."""
        return self.is_here and _born(self.pid) != self.born

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since} ({self.command})"


def holder(place: Location) -> tuple[Holder, float] | None:
    """Who drives the sweep in this folder and how many seconds ago its heart beat last; None when nobody does.

    Raises:
        StoreError: the storage cannot be read.
    """
    with storage_errors("read", place / _FOLDER):
        alive = _alive(place, but="")
    return alive[0] if alive else None


@contextmanager
def held(
    place: Location, on_loss: Callable[[], None], *, beat: float = HEARTBEAT, expiry: float = EXPIRY
) -> Iterator[None]:
    """Hold the lease of the sweep in this folder; while it is held, this process waits for a storage that is away.

    The claim of a process of this machine that lives is respected at once. Of one on another machine only its heart
    can tell: it is waited for until it beats, or until it has been silent for so long that it counts as dead.

    Args:
        place: the study's folder.
        on_loss: called once, in another thread, when the lease is lost: this process slept, or was cut off from the
            storage, for so long that another driver took it for dead.
        beat, expiry: seconds.

    Raises:
        HeldError: another driver holds it; the message says who.
        StoreError: the storage cannot be read or written.
    """
    name = f"{_FOLDER}/{uuid.uuid4().hex}.json"
    with storage_errors("write", place / _FOLDER):
        _claim(place, name, expiry)
    ended = threading.Event()
    heart = threading.Thread(
        target=_beat, args=(place, name, ended, on_loss, beat, expiry), name="memsweep-lease", daemon=True
    )
    heart.start()
    try:
        with patient():
            yield
    finally:
        ended.set()
        heart.join(timeout=expiry)
        with suppress(OSError):
            place.delete(name)


def _claim(place: Location, name: str, expiry: float) -> None:
    for left in reversed(range(_TRIES)):
        _refuse(_beating(place, but=name, expiry=expiry), place)
        place.write(name, json.dumps(asdict(Holder.me())).encode())
        others = _alive(place, but=name, expiry=expiry)
        if not others:
            break
        place.delete(name)
        if not left:
            _refuse(others, place)
        time.sleep(random.uniform(0.05, 0.5))
    for other in place.names(_FOLDER):
        if f"{_FOLDER}/{other}" != name:
            place.delete(f"{_FOLDER}/{other}")


def _beating(place: Location, *, but: str, expiry: float) -> list[tuple[Holder, float]]:
    """The claims of others that live: those of this machine's processes, and those that beat while they are watched."""
    heard: dict[Holder, float] = {}
    while others := _alive(place, but=but, expiry=expiry):
        known = [(who, age) for who, age in others if who.is_here or age < heard.get(who, age)]
        if known:
            return known
        if not heard:
            _log.warning(
                "%s has a claim on %s; its heart is listened for until it has been silent for %.0f s",
                others[0][0],
                place,
                expiry,
            )
        heard = dict(others)
        time.sleep(min(1.0, expiry / 10))
    return []


def _refuse(others: list[tuple[Holder, float]], place: Location) -> None:
    if others:
        who, silent = others[0]
        raise HeldError(
            f"another driver is at work on {place}: {who}, last heard {silent:.0f} s ago. Wait until it ends, or stop "
            f"it (Ctrl-C where it runs). If it is dead, it is forgotten {EXPIRY:.0f} s after it was last heard."
        )


def _alive(place: Location, *, but: str, expiry: float = EXPIRY) -> list[tuple[Holder, float]]:
    """The claims of others that may be alive, with the seconds since their hearts beat."""
    found = []
    for other in place.names(_FOLDER):
        name = f"{_FOLDER}/{other}"
        if name == but:
            continue
        try:
            who, age = _read(place, name), place.age(name)
        except FileNotFoundError:  # it withdrew just now
            continue
        if age <= expiry and not who.process_is_gone:
            found.append((who, age))
    return found


def _read(place: Location, name: str) -> Holder:
    try:
        return Holder(**json.loads(place.read(name)))
    except (ValueError, TypeError):  # half a claim of a machine that lost its power: silence will tell
        return Holder("a machine unknown", 0, "", "", "a time unknown", "its claim is damaged")


def _beat(
    place: Location,
    name: str,
    ended: threading.Event,
    on_loss: Callable[[], None],
    beat: float,
    expiry: float,
) -> None:
    # the clock on the wall, because others count the seconds that this machine slept
    last = time.time()
    while not ended.wait(beat):
        try:
            if not place.exists(name):
                on_loss()
                return
            place.write(name, place.read(name))
            # it may also be the write that took so long, and brought back a claim that another had taken for dead
            if time.time() - last > expiry and _alive(place, but=name, expiry=expiry):
                place.delete(name)
                on_loss()
                return
            last = time.time()
        except OSError:  # the storage is away: others see silence, and so may this thread, later
            continue


def _machine() -> str:
    """This running machine, and the space in which its process numbers mean something."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _born(pid: int) -> str:
    """When a process started; empty where there is none (a zombie is none)."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]
