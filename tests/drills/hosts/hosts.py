"""Several hosts on one machine, made of Linux namespaces, with cables that can be pulled and power that can be cut.

A host has its own network with one address, processes (when its first one dies, all do), host name, ``/dev/shm`` and
``/tmp/ray``; the files of this machine are those of all hosts. One switch joins them, and no route leads out of
it. Nothing has a name outside: when this process ends, however it ends, hosts and network are gone.

Needs root, and Debian's packages ``iproute2`` and ``util-linux``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from processes import wait_for

_NET = "10.215.0"
_PROGRAMS = ("ip", "unshare", "nsenter", "setpriv", "hostname", "mount", "bash")
_NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")

# The first process of a host takes in the orphans of the others, as a real one does: else the dead stay as zombies.
_FIRST = """
set -e
hostname "$1"
ip link set lo up
if [ "$2" = host ]; then
  mount -t tmpfs -o size=2g tmpfs /dev/shm
  mount -t tmpfs -o size=2g tmpfs /tmp/ray
fi
touch "$3"
while :; do sleep 3600 & wait $!; done
"""

T = TypeVar("T")


def missing() -> str:
    """Why no hosts can be made here; empty where they can."""
    if os.name != "posix" or os.geteuid() != 0:
        return "hosts made of namespaces need root"
    if absent := [name for name in _PROGRAMS if shutil.which(name) is None]:
        return f"hosts made of namespaces need {', '.join(absent)} (Debian: iproute2, util-linux)"
    tried = subprocess.run(["unshare", *_NAMESPACES, "true"], capture_output=True, text=True, timeout=30, check=False)
    return "" if tried.returncode == 0 else f"no namespaces can be made here: {tried.stderr.strip()}"


@dataclass
class Host:
    """One host.

    Attributes:
        name: its host name.
        address: its address on the switch.
        first: the number, outside, of its first process; 0 while its power is off.
    """

    name: str
    address: str
    network: Network
    first: int = 0
    _outer: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self, *words: str | Path, env: Mapping[str, str], log: Path, cwd: Path | None = None) -> Process:
        """A command on this host, on the way."""
        with log.open("ab") as out:
            entered = subprocess.Popen(
                [*self._enter(), *(["env", "-C", str(cwd)] if cwd else []), *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(env),
                start_new_session=True,
            )
        return Process(entered, log)

    def run(self, *words: str | Path, env: Mapping[str, str], log: Path, timeout: float = 120.0) -> str:
        """A command on this host, from start to end; what it wrote."""
        process = self.start(*words, env=env, log=log)
        code = process.entered.wait(timeout)
        assert code == 0, f"{words} on {self.name}: {code}\n{process.said()[-3000:]}"
        return process.said()

    def pids(self, word: str = "") -> list[int]:
        """The living processes of this host that have this word in their command, by their numbers outside."""
        if not self.first:
            return []
        own, found = _space(self.first), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.first and _space(int(entry.name)) == own:
                with contextlib.suppress(OSError):
                    if word.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    def kill(self, word: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to the processes with this word in their command; how many there were."""
        found = self.pids(word)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(found)

    def unplug(self) -> None:
        """Pull its cable out of the switch: nothing arrives any more, and nobody is told."""
        self.network.link(self, "down")

    def plug(self) -> None:
        """Put the cable back."""
        self.network.link(self, "up")

    def power_off(self) -> None:
        """Cut its power: it says no farewell to anybody, and all its processes are gone."""
        if not self.first:
            return
        self.unplug()
        assert self._outer is not None
        os.kill(self.first, signal.SIGKILL)
        self._outer.wait(timeout=30)
        self.network.uncable(self)
        self.first = 0

    def power_on(self) -> None:
        """Start it, empty: nothing runs on it."""
        assert not self.first
        self._outer, self.first = self.network.boot(self.name, "host")
        self.network.cable(self)

    def listening(self, port: int) -> socket.socket:
        """A listening socket of this process on this host's address."""
        return self.inside(lambda: socket.create_server((self.address, port), backlog=128))

    def inside(self, work: Callable[[], T]) -> T:
        """Do something in a thread that is in this host's network; a socket that it makes stays there."""
        answer: list[T] = []

        def enter() -> None:
            with Path(f"/proc/{self.first}/ns/net").open() as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0):
                    raise OSError(ctypes.get_errno(), "setns")
            answer.append(work())

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return answer[0]

    def _enter(self) -> list[str]:
        assert self.first, f"{self.name} has no power"
        return ["nsenter", "-t", str(self.first), "-n", "-m", "-u", "-i", "-p", "--"]


@dataclass(frozen=True)
class Process:
    """A command on a host.

    Attributes:
        entered: what waits for it, here.
        log: what it writes.
    """

    entered: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its number, outside; 0 when it has ended."""
        children = Path(f"/proc/{self.entered.pid}/task/{self.entered.pid}/children")
        with contextlib.suppress(OSError):
            return int((children.read_text().split() or ["0"])[0])
        return 0

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.entered.poll()

    def said(self) -> str:
        """The text that it has written."""
        return self.log.read_text(errors="replace")


class Network:
    """A switch, and the hosts on it; made by ``network``."""

    def __init__(self, folder: Path) -> None:
        self.hosts: list[Host] = []
        self._folder, self._boots = folder, 0
        self._started: list[tuple[subprocess.Popen[bytes], int]] = []
        Path("/tmp/ray").mkdir(exist_ok=True)  # where hosts have a folder of their own
        _, self._switch = self.boot("switch", "switch")
        self._ip("link", "add", "br0", "type", "bridge")
        self._ip("link", "set", "br0", "up")

    def host(self, name: str) -> Host:
        """A host more, with its power on."""
        made = Host(name, f"{_NET}.{len(self.hosts) + 10}", self)
        self.hosts.append(made)
        made.power_on()
        return made

    def boot(self, name: str, kind: str) -> tuple[subprocess.Popen[bytes], int]:
        """Start a first process; what waits for it, and its number."""
        self._boots += 1
        ready = self._folder / f"ready.{self._boots}"
        command = ["unshare", *_NAMESPACES, "bash", "-c", _FIRST, "first", name, kind, str(ready)]
        outer = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it complains when it is killed
        )
        wait_for(ready.exists, outer.poll, seconds=30.0)
        first = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
        self._started.append((outer, first))
        return outer, first

    def cable(self, host: Host) -> None:
        """Join a host to the switch."""
        port = f"to-{host.name}"
        self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.first))
        self._ip("link", "set", port, "master", "br0", "up")
        _ip(host.first, "addr", "add", f"{host.address}/24", "dev", "eth0")
        _ip(host.first, "link", "set", "eth0", "up")

    def uncable(self, host: Host) -> None:
        """Take a host off the switch, whose kernel may have done so already: the host's network is gone."""
        with contextlib.suppress(AssertionError):
            self._ip("link", "del", f"to-{host.name}")

    def link(self, host: Host, state: str) -> None:
        """The switch's end of a host's cable."""
        self._ip("link", "set", f"to-{host.name}", state)

    def close(self) -> None:
        """All hosts off, at once."""
        for outer, first in reversed(self._started):
            if outer.poll() is None:
                os.kill(first, signal.SIGKILL)
        for outer, _ in self._started:
            outer.wait(timeout=30)

    def _ip(self, *words: str) -> None:
        _ip(self._switch, *words)


@contextlib.contextmanager
def network(folder: Path) -> Iterator[Network]:
    """A network for as long as the body runs; the calling thread must live as long."""
    made = Network(folder)
    try:
        yield made
    finally:
        made.close()


def _ip(first: int, *words: str) -> None:
    command: Sequence[str] = ["nsenter", "-t", str(first), "-n", "--", "ip", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"


def _space(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def until(condition: Callable[[], object], seconds: float, what: str, pause: float = 0.05) -> float:
    """Wait for something; how many seconds that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"waited {seconds:g} s in vain until {what}"
        time.sleep(pause)
    return time.monotonic() - began
