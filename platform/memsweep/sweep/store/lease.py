"""The lease of a sweep: a lease file with a heartbeat, so that a study has one driver, or several that share it.

A driver writes its own lease file, lists the folder, and deletes its file when it sees another one. Two drivers that
start at the same moment may both withdraw and try again, but never both stay. The storage only has to list each file
that was written before, as disks and object stores do.

Drivers that share a study hold such files side by side. Each says in its own what it has taken (``driver.claims``), and
a driver that dies gives back all of it, because its file counts no more. A driver that shares nothing is refused.

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from memsweep.errors import BlockedError
from memsweep.gate import gated
from memsweep.redaction import without_secrets
from memsweep.sweep.store.filesystem import Location, at_once, storage_errors
from memsweep.sweep.store.record import now
from memsweep.sweep.store.retry import storage_retries

HEARTBEAT = 5.0
"""Seconds between two heartbeats of a lease file."""
EXPIRY = 30.0
"""Seconds without a heartbeat after which a waiting driver takes a holder for dead; one of this machine needs none."""

_log = logging.getLogger(__name__)
_FOLDER, _TRIES, LEAD = "lease", 6, "lead"
_HELD = set[str]()  # names of the lease files that this process keeps: any other of its own is of an ended sweep


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
        program = "".join(sys.argv[:1]).removesuffix("/__main__.py")  # of python -m memsweep
        words = without_secrets(" ".join([os.path.basename(program), *sys.argv[1:]]))
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
class Share:
    """The words of a driver that shares its study, in its lease file.

    Attributes:
        taken: what it holds, which nobody else may take.
        cut: digest of the packs of its plan; empty as long as it has none.
        concluded: it has ended the study, so that nothing is left to do for the others.
    """

    taken: tuple[str, ...] = ()
    cut: str = ""
    concluded: bool = False

    @classmethod
    def of(cls, content: Any) -> Share | None:
        """As ``asdict`` gives it; None of anything else."""
        if not isinstance(content, dict) or content.keys() != {field.name for field in fields(cls)}:
            return None
        taken, cut, concluded = content["taken"], content["cut"], content["concluded"]
        words = isinstance(taken, list) and all(isinstance(each, str) for each in [*taken, cut])
        return cls(tuple(taken), cut, concluded) if words and isinstance(concluded, bool) else None


@dataclass(frozen=True)
class LeaseFile:
    """The content of a lease file.

    Attributes:
        holder: the driver that wrote it.
        term: one more than that of every lease file that its driver found; the newer of two drivers has the higher one.
        beats: heartbeats so far, so that each of them changes the file.
        folder: number of the study's folder on its disk, which a copy of the folder has not; 0 where it is not known.
        share: what it says to those with whom it shares the study; None: it shares it with nobody.
    """

    holder: Holder
    term: int
    beats: int = 0
    folder: int = 0
    share: Share | None = None

    def to_bytes(self) -> bytes:
        numbers = {"term": self.term, "beats": self.beats, "folder": self.folder}
        share = {} if self.share is None else {"share": asdict(self.share)}
        return json.dumps({**numbers, **asdict(self.holder), **share}).encode()

    @classmethod
    def of(cls, data: bytes) -> LeaseFile:
        """The lease file of these bytes; half a file, of a machine that lost its power, expires like any other."""
        try:
            content = json.loads(data)
            values = {field.name: content[field.name] for field in fields(Holder)}
            term, beats, folder = content["term"], content["beats"], content.get("folder", 0)
            share = Share.of(content.get("share"))
        except (ValueError, TypeError, KeyError, RecursionError):
            return _DAMAGED
        numbers = all(type(value) is int for value in (term, beats, folder, values["pid"]))
        texts = all(isinstance(value, str) for name, value in values.items() if name != "pid")
        return cls(Holder(**values), term, beats, folder, share) if numbers and texts else _DAMAGED


_DAMAGED = LeaseFile(Holder("a machine unknown", 0, "", "", "a time unknown", "its lease file is damaged"), 0)


def holder(location: Location, *, expiry: float = EXPIRY) -> Holder | None:
    """The driver of the sweep in this folder, the leader where several share it; None when none runs.

    Returns at once unless there is a lease file of another machine: then with its next heartbeat, or after ``expiry``
    seconds without one.

    Raises:
        StoreError: the storage cannot be read.
    """
    with storage_errors("read", location / _FOLDER):
        return next(iter(_watch(location, own="", expiry=expiry)[0]), None)


class Lease:
    """The lease file of this process, as long as it holds it.

    Args:
        location: the study's folder.
        name: of the file.
        content: of the file, which is written.
        expiry: seconds of silence after which another holder counts as dead.
        beat: seconds between its heartbeats.
    """

    def __init__(self, location: Location, name: str, content: LeaseFile, expiry: float, beat: float) -> None:
        self._location, self._name, self._content, self._beat = location, name, content, beat
        self._writing = threading.Lock()  # of this thread and the heartbeat's
        self._others = _Others(location, name, expiry)
        self._dead: set[str] = set()

    def __str__(self) -> str:
        return str(self._location / _FOLDER)

    @property
    def share(self) -> Share:
        """The words of this driver."""
        return self._content.share or Share()

    def say(self, share: Share) -> bool:
        """Says it to the others; whether this process still holds its file, without which it may say nothing.

        Raises:
            OSError: the storage cannot be written.
        """
        return self._write(share=share)

    def beat(self) -> bool:
        """Sends a heartbeat; whether this process still holds its file.

        Raises:
            OSError: the storage cannot be written.
        """
        if not self._write(beats=self._content.beats + 1, folder=_number(self._location)):
            return False
        if self._content.share is None:
            # a driver that counted as dead may have slept within its own heartbeat, and then have restored its file
            for other, data in _others(self._location, self._location.names(_FOLDER).keys() - {self._name}).items():
                if LeaseFile.of(data).term < self._content.term:
                    self._location.delete(f"{_FOLDER}/{other}")
        return True

    @property
    def is_listed(self) -> bool:
        """Whether the last look at the others found the own file, too: until then they may not see it either."""
        return self._others.lists_own

    def _write(self, **changes: Any) -> bool:
        own = f"{_FOLDER}/{self._name}"
        with self._writing:
            if not self._location.exists(own):
                return False
            content = replace(self._content, **changes)
            self._location.write(own, content.to_bytes())
            self._content = content
        return True

    def others(self) -> dict[str, LeaseFile]:
        """The drivers that share the study: name of the file -> content. The dead are left out and forgotten.

        Raises:
            OSError: the storage cannot be read.
        """
        # In own heartbeats: a storage that takes none of them takes none of the others', who are not silent then.
        found = self._others.look(self._content.beats * self._beat)
        # also those that counted as dead, slept within a heartbeat, and have restored their file since
        self._dead |= {file.name for file in found if file.life == _DEAD}
        for file in found:
            if file.name in self._dead:
                self._location.delete(f"{_FOLDER}/{file.name}")
        return {file.name: file.content for file in found if file.content.share and file.name not in self._dead}


@contextmanager
def hold_lease(
    location: Location,
    on_loss: Callable[[], None],
    *,
    shared: bool = False,
    beat: float = HEARTBEAT,
    expiry: float = EXPIRY,
) -> Iterator[Lease]:
    """Holds the lease of the sweep in this folder; inside it, this process retries a storage that does not answer.

    A living process of this machine refuses the lease at once. For a holder on another machine this waits for its
    next heartbeat, which refuses the lease, or until it has been silent for ``expiry``.

    Args:
        location: the study's folder.
        on_loss: called once, in another thread, when another driver has taken the lease.
        shared: others that say the same may hold it, too.
        beat: seconds between heartbeats.
        expiry: seconds of silence after which a holder counts as dead.

    Raises:
        HeldError: another driver holds it; the message says who.
        StoreError: the storage cannot be read or written.
    """
    name = f"{uuid.uuid4().hex}.json"
    _HELD.add(name)
    ended, heartbeats = threading.Event(), list[threading.Thread]()
    try:
        with storage_errors("write", location / _FOLDER):
            lease = _acquire(location, name, expiry, beat, shared=shared)
        told = lease, ended, on_loss, beat
        heartbeat = threading.Thread(target=_send_heartbeats, args=told, name="memsweep-lease", daemon=True)
        heartbeat.start()
        heartbeats.append(heartbeat)
        with storage_retries():
            yield lease
    finally:
        _HELD.discard(name)  # first: whatever ends what follows, this process keeps it no more
        ended.set()
        for each in heartbeats:
            each.join(timeout=expiry)
        with suppress(OSError):
            location.delete(f"{_FOLDER}/{name}")


def _acquire(location: Location, name: str, expiry: float, beat: float, *, shared: bool) -> Lease:
    for left in reversed(range(_TRIES)):
        alive, dead = _watch(location, own=name, expiry=expiry, shared=shared)
        _refuse(alive, location)
        term = max((LeaseFile.of(data).term for data in dead.values()), default=0) + 1
        content = LeaseFile(Holder.me(), term, folder=_number(location), share=Share() if shared else None)
        location.write(f"{_FOLDER}/{name}", content.to_bytes())
        # a file that is new, or has changed since it counted as dead
        files = _others(location, location.names(_FOLDER).keys() - {name})
        found = {file: data for file, data in files.items() if dead.get(file) != data}
        others = [other for other in map(LeaseFile.of, found.values()) if not (shared and other.share)]
        if not others:
            break
        location.delete(f"{_FOLDER}/{name}")
        if not left:
            _refuse([other.holder for other in others], location)
        time.sleep(random.uniform(0.05, 0.5))
    for other in dead:
        location.delete(f"{_FOLDER}/{other}")
    return Lease(location, name, content, expiry, beat)


def _watch(
    location: Location, *, own: str, expiry: float, shared: bool = False
) -> tuple[list[Holder], dict[str, bytes]]:
    """Watches the other lease files until one is known to be of a living driver, or all are of dead ones.

    Of drivers that share the study, ``shared`` passes over the files.

    Returns:
        The living drivers; the lease files of the dead ones, name -> content.
    """
    others, announced = _Others(location, own, expiry), False
    while True:
        files = [file for file in others.look(time.monotonic()) if not (shared and file.content.share)]
        files.sort(key=lambda file: file.content.share is None or LEAD not in file.content.share.taken)
        alive = [file.content.holder for file in files if file.life == _ALIVE]
        waited_for = [file.content.holder for file in files if file.life == _UNKNOWN]
        if alive or not waited_for:
            return alive, {} if alive else {file.name: file.data for file in files}
        if not announced:
            announced = True
            words = "%s has a lease file in %s; this process waits for its next heartbeat, for up to %.0f s of silence"
            _log.warning(words, waited_for[0], location, expiry)
        time.sleep(min(1.0, expiry / 10))


_ALIVE, _UNKNOWN, _DEAD = "alive", "unknown", "dead"


@dataclass(frozen=True)
class _Seen:
    """A lease file of another driver, and whether it lives."""

    name: str
    data: bytes
    content: LeaseFile
    life: str


class _Others:
    """Follows the lease files of other drivers from look to look.

    Args:
        location: the study's folder.
        own: name of the own file.
        expiry: seconds of silence after which a holder counts as dead.
    """

    def __init__(self, location: Location, own: str, expiry: float) -> None:
        self._location, self._own, self._expiry = location, own, expiry
        # content, time since which it is so, and whether it was another one before
        self._seen: dict[str, tuple[bytes, float, bool]] = {}
        self.lists_own = True  # whether the last look found the own file

    def look(self, now: float) -> list[_Seen]:
        """The files at this time, in seconds; one that has not changed yet is of unknown life until it was silent."""
        listed = {*self._location.names(_FOLDER)}
        self.lists_own = self._own in listed
        # a storage may leave a file out of a list, NFS by its cache: one that was seen is asked for by its name
        files = _others(self._location, (listed | self._seen.keys()) - {self._own})
        for name, data in files.items():
            before = self._seen.get(name)
            if before is None or before[0] != data:
                self._seen[name] = data, now, before is not None
        self._seen = {name: seen for name, seen in self._seen.items() if name in files}
        here = _number(self._location)
        return [
            _Seen(name, data, content := LeaseFile.of(data), self._life(name, content, now, here))
            for name, data in files.items()
        ]

    def _life(self, name: str, content: LeaseFile, now: float, here: int) -> str:
        _, since, changed = self._seen[name]
        who, copied = content.holder, content.folder not in (0, here)
        if who.process_is_gone or (who.is_here and who.pid == os.getpid() and name not in _HELD):
            return _DEAD
        if who.is_here and not copied:
            return _ALIVE
        if now - since >= self._expiry:
            return _DEAD
        return _ALIVE if changed else _UNKNOWN


def _others(location: Location, names: Iterable[str]) -> dict[str, bytes]:
    """Lease files: name -> content; without those that were withdrawn just now."""

    def read(name: str) -> tuple[str, bytes] | None:
        with suppress(FileNotFoundError):
            return name, location.read(f"{_FOLDER}/{name}")
        return None

    return dict(filter(None, at_once(read, [*names])))


def _refuse(alive: list[Holder], location: Location) -> None:
    if alive:
        raise HeldError(
            f"another driver is at work on {location}: {alive[0]}. Wait until it ends, or stop it (Ctrl-C where it "
            f"runs). If it dies on another machine, its lease ends {EXPIRY:.0f} s after its last heartbeat. Drivers "
            "that are all started with --share divide a study between them."
        )


def _send_heartbeats(lease: Lease, ended: threading.Event, on_loss: Callable[[], None], beat: float) -> None:
    while not ended.wait(beat):
        try:
            if not lease.beat():
                on_loss()
                return
        except OSError:  # no answer of the storage: the next round tries again
            continue


def _number(location: Location) -> int:
    """The number of a folder on its disk; 0 in a bucket, and where there is no folder yet."""
    with suppress(OSError):
        return location.local.stat().st_ino if location.local is not None else 0
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
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if words[0] in "ZX" else words[19]
    return ""
