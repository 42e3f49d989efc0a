"""Processes are killed, told to end, and frozen."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from pathlib import Path
from typing import ClassVar

from drill_study import kill
from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import STUDY, Site, TooLongError, title


def stopped(pid: int) -> bool:
    """Whether a process is stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


class DriverKilled(Fault):
    name, ends, early = "driver killed (SIGKILL)", True, True
    numbers: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGKILL,)

    def inject(self, site: Site, luck: random.Random) -> bool:
        pid, number = site.pid, luck.choice(self.numbers)
        self.how = number.name if len(self.numbers) > 1 else ""
        if pid:
            kill(pid, number)
        return bool(pid)


class DriverTold(DriverKilled):
    name, early = "driver told to end (SIGTERM, SIGINT)", False
    numbers = (signal.SIGTERM, signal.SIGINT)


class _Part(Fault):
    """A signal to one of Ray's processes.

    Attributes:
        word: in the process's command.
        numbers: of which one is drawn.
    """

    fails = True
    numbers: ClassVar[tuple[signal.Signals, ...]] = (signal.SIGKILL,)
    word: ClassVar[str]

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.ray and not scenario.hosts

    def victims(self, site: Site) -> list[int]:
        return site.parts(self.word)

    def inject(self, site: Site, luck: random.Random) -> bool:
        try:
            site.until(lambda: self.victims(site) or not site.running, "there is a process to hit", 60.0)
        except TooLongError:
            return False
        found = self.victims(site)
        if found:
            number = luck.choice(self.numbers)
            self.how = number.name if len(self.numbers) > 1 else ""
            kill(luck.choice(found), number)
        return bool(found)


class _Frozen(_Part):
    """A process stops for a while."""

    seconds, fails = (1.0, 6.0), False
    pid = 0

    def inject(self, site: Site, luck: random.Random) -> bool:
        found = self.victims(site)
        if found:
            self.pid = luck.choice(found)
            kill(self.pid, signal.SIGSTOP)
        return bool(found)

    def felt(self, site: Site) -> bool:
        return stopped(self.pid)

    def heal(self, site: Site) -> None:
        if self.pid and title(self.pid):
            kill(self.pid, signal.SIGCONT)


class _Worker(_Part):
    word = ""

    def victims(self, site: Site) -> list[int]:
        return site.workers()


class WorkerKilled(_Worker):
    name = "worker killed (SIGKILL)"


class WorkerTold(_Worker):
    name, numbers = "worker told to end (SIGTERM, SIGINT)", (signal.SIGTERM, signal.SIGINT)


class WorkerFrozen(_Frozen):
    name = "worker frozen"

    def victims(self, site: Site) -> list[int]:
        return site.workers()


class PartKilled(_Part):
    name, ends = "raylet or Ray's control store killed (SIGKILL, SIGTERM)", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        word, number = luck.choice(
            [("raylet/raylet", signal.SIGKILL), ("raylet/raylet", signal.SIGTERM), ("gcs_server", signal.SIGKILL)]
        )
        found = site.parts(word)
        for pid in found:
            kill(pid, number)
        self.how = f"{word.rpartition('/')[2]}, {number.name}"
        return bool(found)


class RayletFrozen(_Frozen):
    name, word = "raylet frozen", "raylet/raylet"


class ControlFrozen(_Frozen):
    name, word = "Ray's control store frozen", "gcs_server"


class RayKilled(_Part):
    """All of Ray, while the driver lives."""

    name, word, ends = "all of Ray killed, driver alive", "raylet/raylet", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        if not self.victims(site):
            return False
        for pid in site.processes():
            if pid != site.pid:
                kill(pid, signal.SIGKILL)
        return True


class DriverFrozen(Fault):
    name, seconds = "driver frozen", (1.0, 6.0)

    pid = 0

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.pid = site.pid
        if self.pid:
            kill(self.pid, signal.SIGSTOP)
        return bool(self.pid)

    def felt(self, site: Site) -> bool:
        return stopped(self.pid)

    def heal(self, site: Site) -> None:
        if self.pid and site.running:
            kill(self.pid, signal.SIGCONT)


class PowerCut(Fault):
    name, ends, early = "power cut: all processes killed at once", True, True

    def inject(self, site: Site, luck: random.Random) -> bool:
        alive = site.running
        site.kill_all()
        return alive


class PowerCutInCommit(Fault):
    """All processes are killed just when one writes a file of the study: staged, moved, or half of a result moved."""

    name, ends = "power cut in the middle of a commit", True

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store != "bucket" and not scenario.hosts

    def inject(self, site: Site, luck: random.Random) -> bool:
        folder = site.location.local
        assert folder is not None
        word, delay = (
            luck.choice([".parquet", ".parquet", ".json", ".jsonl", ""]),
            luck.choice([0.0, 0.001, 0.005, 0.02]),
        )
        last, staged = time.monotonic() + 60.0, False
        while not staged and site.running and time.monotonic() < last:
            with contextlib.suppress(OSError):
                staged = any(word in path.name for path in (folder / ".partial").iterdir())
            time.sleep(0.001)
        time.sleep(delay)
        alive = site.running
        site.kill_all()
        return alive and staged


class SecondDriver(Fault):
    """A second driver on the same study is told who the first is."""

    name, seconds = "second driver on one study", (0.0, 0.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        pid = site.pid
        second = site.beside(luck.choice(["sweep", "resume"]))
        if not pid or not site.running:
            return False
        if second.code != 4 or f"process {pid} on" not in second.said:
            raise AssertionError(f"a second driver was not refused: exit code {second.code}\n{second.said[-2000:]}")
        return True


class TakenOver(Fault):
    """A driver is frozen for longer than its lease holds; another takes over, and the first gives way.

    Its lease names another machine: one that is frozen on this machine is alive, and keeps its lease.
    """

    name, ends, finishes, alone = "driver frozen and taken over", True, True, True

    def inject(self, site: Site, luck: random.Random) -> bool:
        if not (pid := site.pid):
            return False
        kill(pid, signal.SIGSTOP)
        try:
            for name in site.location.names("lease"):
                held = json.loads(site.location.read(f"lease/{name}")) | {"machine": "another machine"}
                site.location.write(f"lease/{name}", json.dumps(held).encode())
            site.quick()
            second = site.beside("resume")
        finally:
            kill(pid, signal.SIGCONT)
        if second.code != 0 and not second.gave_up:
            raise AssertionError(f"{STUDY} was not taken over: exit code {second.code}\n{second.said[-2000:]}")
        return True


KINDS = (
    DriverKilled, DriverTold, DriverFrozen, TakenOver, SecondDriver,
    WorkerKilled, WorkerTold, WorkerFrozen,
    PartKilled, RayletFrozen, ControlFrozen, RayKilled,
    PowerCut, PowerCutInCommit,
)  # fmt: skip
