"""The lease of a sweep: a lease file with a heartbeat, so that one driver works on a study at a time.

A driver writes its own lease file, lists the folder, and deletes its file when it sees another one. Two drivers that
start at the same moment may both withdraw and try again, but never both stay. The storage only has to list each file
that was written before, as disks and object stores do.

A heartbeat is a change of the lease file that the waiting driver sees itself. No time of one clock is compared with a
time of another clock, so it does not matter how wrong a clock is, or when it is set.
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
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from memsweep.errors import BlockedError
from memsweep.gate import gated
from memsweep.redaction import without_secrets
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.record import now
from memsweep.sweep.store.retry import storage_retries

HEARTBEAT = 5.0
"""Seconds between two heartbeats of a lease file."""
EXPIRY = 30.0
"""Seconds for which a waiting driver sees no heartbeat, after which the holder counts as dead.

A process of this machine needs no heartbeat: the kernel tells whether it runs."""

_log = logging.getLogger(__name__)
_FOLDER = "lease"
_TRIES = 6


class HeldError(BlockedError):
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
        return gated(f"process {self.pid} on {self.host}, since {self.since} ({self.command})")


@dataclass(frozen=True)
class _LeaseFile:
    """The content of a lease file.

    Attributes:
        holder: the driver that wrote it.
        term: one more than that of every lease file that its driver found; the newer of two drivers has the higher one.
        beats: heartbeats so far, so that each of them changes the file.
        folder: number of the study's folder on its disk, which a copy of the folder has not; 0 where it is not known.
    """

    holder: Holder
    term: int
    beats: int = 0
    folder: int = 0

    def to_bytes(self) -> bytes:
        numbers = {"term": self.term, "beats": self.beats, "folder": self.folder}
        return json.dumps({**numbers, **asdict(self.holder)}).encode()

    @classmethod
    def of(cls, data: bytes) -> _LeaseFile:
        """The lease file of these bytes; half a file, of a machine that lost its power, expires like any other."""
        try:
            content = json.loads(data)
            values = {field.name: content[field.name] for field in fields(Holder)}
            term, beats, folder = content["term"], content["beats"], content.get("folder", 0)
        except (ValueError, TypeError, KeyError, RecursionError):
            return _DAMAGED
        numbers = all(type(value) is int for value in (term, beats, folder, values["pid"]))
        texts = all(isinstance(value, str) for name, value in values.items() if name != "pid")
        return cls(Holder(**values), term, beats, folder) if numbers and texts else _DAMAGED


_DAMAGED = _LeaseFile(Holder("a machine unknown", 0, "", "", "a time unknown", "its lease file is damaged"), 0)


def holder(location: Location, *, expiry: float = EXPIRY) -> Holder | None:
    """The driver of the sweep in this folder; None when it is not running.

    Returns at once unless there is a lease file of another machine: then with its next heartbeat, or after ``expiry``
    seconds without one.

    Raises:
        StoreError: the storage cannot be read.
    """
    with storage_errors("read", location / _FOLDER):
        return next(iter(_watch(location, own="", expiry=expiry)[0]), None)


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
    name = f"{uuid.uuid4().hex}.json"
    with storage_errors("write", location / _FOLDER):
        lease = _acquire(location, name, expiry)
    ended = threading.Event()
    heartbeat = threading.Thread(
        target=_send_heartbeats, args=(location, name, lease, ended, on_loss, beat), name="memsweep-lease", daemon=True
    )
    heartbeat.start()
    try:
        with storage_retries():
            yield
    finally:
        ended.set()
        heartbeat.join(timeout=expiry)
        with suppress(OSError):
            location.delete(f"{_FOLDER}/{name}")


def _acquire(location: Location, name: str, expiry: float) -> _LeaseFile:
    for left in reversed(range(_TRIES)):
        alive, dead = _watch(location, own=name, expiry=expiry)
        _refuse(alive, location)
        term = max((_LeaseFile.of(data).term for data in dead.values()), default=0) + 1
        lease = _LeaseFile(Holder.me(), term, folder=_number(location))
        location.write(f"{_FOLDER}/{name}", lease.to_bytes())
        # a file that is new, or has changed since it counted as dead
        others = [_LeaseFile.of(data) for file, data in _others(location, name).items() if dead.get(file) != data]
        if not others:
            break
        location.delete(f"{_FOLDER}/{name}")
        if not left:
            _refuse([other.holder for other in others], location)
        time.sleep(random.uniform(0.05, 0.5))
    for other in dead:
        location.delete(f"{_FOLDER}/{other}")
    return lease


def _watch(location: Location, *, own: str, expiry: float) -> tuple[list[Holder], dict[str, bytes]]:
    """Watches the other lease files until one is known to be of a living driver, or all are of dead ones.

    Returns:
        The living drivers; the lease files of the dead ones, name -> content.
    """
    seen: dict[str, tuple[bytes, float]] = {}  # content and time of the first look
    announced, here = False, _number(location)
    while True:
        now, files = time.monotonic(), _others(location, own)
        alive, waited_for = [], []
        for name, data in files.items():
            lease = _LeaseFile.of(data)
            who, copied = lease.holder, lease.folder not in (0, here)
            first, since = seen.setdefault(name, (data, now))
            if (who.is_here and not copied and not who.process_is_gone) or first != data:
                alive.append(who)
            elif not who.process_is_gone and (copied or not who.is_here) and now - since < expiry:
                waited_for.append(who)
        if alive or not waited_for:
            return alive, {} if alive else files
        if not announced:
            announced = True
            _log.warning(
                "%s has a lease file in %s; this process waits for its next heartbeat, for up to %.0f s of silence",
                waited_for[0],
                location,
                expiry,
            )
        time.sleep(min(1.0, expiry / 10))


def _others(location: Location, own: str) -> dict[str, bytes]:
    """The lease files except for the own one: name -> content."""
    files = {}
    for name in location.names(_FOLDER):
        if name != own:
            with suppress(FileNotFoundError):  # it was withdrawn just now
                files[name] = location.read(f"{_FOLDER}/{name}")
    return files


def _refuse(alive: list[Holder], location: Location) -> None:
    if alive:
        raise HeldError(
            f"another driver is at work on {location}: {alive[0]}. Wait until it ends, or stop it (Ctrl-C where it "
            f"runs). If it dies on another machine, its lease ends {EXPIRY:.0f} s after its last heartbeat."
        )


def _send_heartbeats(
    location: Location,
    name: str,
    lease: _LeaseFile,
    ended: threading.Event,
    on_loss: Callable[[], None],
    beat: float,
) -> None:
    own = f"{_FOLDER}/{name}"
    while not ended.wait(beat):
        try:
            if not location.exists(own):
                on_loss()
                return
            lease = replace(lease, beats=lease.beats + 1, folder=_number(location))
            location.write(own, lease.to_bytes())
            # a driver that counted as dead may have slept within its own heartbeat, and then have restored its file
            for other, data in _others(location, name).items():
                if _LeaseFile.of(data).term < lease.term:
                    location.delete(f"{_FOLDER}/{other}")
        except OSError:  # no answer of the storage: the next round tries again
            continue


def _number(location: Location) -> int:
    """The number of a folder on its disk; 0 in a bucket, and where there is no folder yet."""
    try:
        return location.local.stat().st_ino if location.local is not None else 0
    except OSError:
        return 0


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
