"""The lease of a sweep: a lease file with a heartbeat, so that one driver works on a study at a time.

A driver writes its own lease file, lists the folder, and deletes its file when it sees another one. Two drivers that
start at the same moment may both withdraw and try again, but never both stay. The storage only has to list each file
that was written before, as disks and object stores do.
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
from memsweep.sweep.store.retry import storage_retries

HEARTBEAT = 5.0
"""Seconds between two heartbeats of a lease file."""
EXPIRY = 30.0
"""Seconds without a heartbeat after which a holder counts as dead. An ended process of this machine does at once."""

_log = logging.getLogger(__name__)
_FOLDER = "lease"
_TRIES = 6


class HeldError(MemsweepError):
    """Another driver holds the lease of this sweep."""


@dataclass(frozen=True)
class Holder:
    """The process that drives a sweep.

    Attributes:
        host, pid: name of its machine, and its process number.
        machine: unique name of the running machine and container.
        born: start of the process in the kernel's ticks, because a process number is used again.
        since: when it took the lease, UTC, ISO 8601.
        command: its command line without secrets, 200 characters at most.
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
        return cls(socket.gethostname(), os.getpid(), _machine(), _start_time(os.getpid()), now(), words[:200])

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.machine == _machine()

    @property
    def process_is_gone(self) -> bool:
        """Whether it ran on this machine and has ended; False for another machine, where only the heartbeat tells."""
        return self.is_here and _start_time(self.pid) != self.born

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since} ({self.command})"


def holder(location: Location) -> tuple[Holder, float] | None:
    """The driver of the sweep in this folder and the age of its heartbeat in seconds; None when it is not running.

    Raises:
        StoreError: the storage cannot be read.
    """
    with storage_errors("read", location / _FOLDER):
        holders = _live_holders(location, own="")
    return holders[0] if holders else None


@contextmanager
def hold_lease(
    location: Location, on_loss: Callable[[], None], *, beat: float = HEARTBEAT, expiry: float = EXPIRY
) -> Iterator[None]:
    """Holds the lease of the sweep in this folder; inside it, this process retries a storage that does not answer.

    A living process of this machine refuses the lease at once. For a holder on another machine this waits for its
    next heartbeat, which refuses the lease, or until it has been silent for ``expiry``.

    Args:
        location: the study's folder.
        on_loss: called once, in another thread, when another driver has taken the lease, because this process slept
            or had no storage for too long.
        beat: seconds between heartbeats.
        expiry: seconds of silence after which a holder counts as dead.

    Raises:
        HeldError: another driver holds it; the message says who.
        StoreError: the storage cannot be read or written.
    """
    name = f"{_FOLDER}/{uuid.uuid4().hex}.json"
    with storage_errors("write", location / _FOLDER):
        _acquire(location, name, expiry)
    ended = threading.Event()
    heartbeat = threading.Thread(
        target=_send_heartbeats, args=(location, name, ended, on_loss, beat, expiry), name="memsweep-lease", daemon=True
    )
    heartbeat.start()
    try:
        with storage_retries():
            yield
    finally:
        ended.set()
        heartbeat.join(timeout=expiry)
        with suppress(OSError):
            location.delete(name)


def _acquire(location: Location, name: str, expiry: float) -> None:
    for left in reversed(range(_TRIES)):
        _refuse(_confirmed_holders(location, own=name, expiry=expiry), location)
        location.write(name, json.dumps(asdict(Holder.me())).encode())
        others = _live_holders(location, own=name, expiry=expiry)
        if not others:
            break
        location.delete(name)
        if not left:
            _refuse(others, location)
        time.sleep(random.uniform(0.05, 0.5))
    for other in location.names(_FOLDER):
        if f"{_FOLDER}/{other}" != name:
            location.delete(f"{_FOLDER}/{other}")


def _confirmed_holders(location: Location, *, own: str, expiry: float) -> list[tuple[Holder, float]]:
    """Other holders that are alive: processes of this machine, and holders that send a heartbeat meanwhile."""
    last_ages: dict[Holder, float] = {}
    while others := _live_holders(location, own=own, expiry=expiry):
        known = [(who, age) for who, age in others if who.is_here or age < last_ages.get(who, age)]
        if known:
            return known
        if not last_ages:
            _log.warning(
                "%s has a lease file in %s; this process waits for its next heartbeat, for up to %.0f s of silence",
                others[0][0],
                location,
                expiry,
            )
        last_ages = dict(others)
        time.sleep(min(1.0, expiry / 10))
    return []


def _refuse(others: list[tuple[Holder, float]], location: Location) -> None:
    if others:
        who, silent = others[0]
        raise HeldError(
            f"another driver is at work on {location}: {who}, last heartbeat {silent:.0f} s ago. Wait until it ends, "
            f"or stop it (Ctrl-C where it runs). If it is dead, its lease ends {EXPIRY:.0f} s after its last heartbeat."
        )


def _live_holders(location: Location, *, own: str, expiry: float = EXPIRY) -> list[tuple[Holder, float]]:
    """Other holders that may be alive, each with the age of its heartbeat in seconds."""
    holders = []
    for other in location.names(_FOLDER):
        name = f"{_FOLDER}/{other}"
        if name == own:
            continue
        try:
            who, age = _read(location, name), location.age(name)
        except FileNotFoundError:  # it was withdrawn just now
            continue
        if age <= expiry and not who.process_is_gone:
            holders.append((who, age))
    return holders


def _read(location: Location, name: str) -> Holder:
    try:
        return Holder(**json.loads(location.read(name)))
    except (ValueError, TypeError):  # half a file, of a machine that lost its power: it expires like any other
        return Holder("a machine unknown", 0, "", "", "a time unknown", "its lease file is damaged")


def _send_heartbeats(
    location: Location,
    name: str,
    ended: threading.Event,
    on_loss: Callable[[], None],
    beat: float,
    expiry: float,
) -> None:
    # wall-clock time, because other machines count the seconds that this one slept
    last = time.time()
    while not ended.wait(beat):
        try:
            if not location.exists(name):
                on_loss()
                return
            location.write(name, location.read(name))
            # this write may itself have been so slow that it restored a file that another driver had deleted as dead
            if time.time() - last > expiry and _live_holders(location, own=name, expiry=expiry):
                location.delete(name)
                on_loss()
                return
            last = time.time()
        except OSError:  # no answer of the storage: the next round tries again
            continue


def _machine() -> str:
    """Unique name of this running machine and of the namespace of its process numbers."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _start_time(pid: int) -> str:
    """Start of a process in the kernel's ticks; empty where there is no such process, or only a zombie."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]
