"""Processes are killed, told to end, and frozen."""

from __future__ import annotations

import json
import random
import signal
import time
from typing import ClassVar

from drill_study import kill
from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import STUDY, Site, TooLongError, title


class _Driver(Fault):
    """A signal to the driver."""

    ends = True
    number: ClassVar[signal.Signals]

    def inject(self, site: Site, luck: random.Random) -> bool:
        pid = site.pid
        if pid:
            kill(pid, self.number)
        return bool(pid)


class DriverKilled(_Driver):
    name, number, early = "driver killed (SIGKILL)", signal.SIGKILL, True


class DriverTold(_Driver):
    name, number = "driver told to end (SIGTERM)", signal.SIGTERM


class DriverInterrupted(_Driver):
    name, number = "driver interrupted (SIGINT)", signal.SIGINT


class _Part(Fault):
    """A signal to one of Ray's processes.

    Attributes:
        word: in the process's command.
    """

    number: ClassVar[signal.Signals]
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
            kill(luck.choice(found), self.number)
        return bool(found)


class _Frozen(_Part):
    """A process stops for a while."""

    number = signal.SIGSTOP
    seconds = (1.0, 8.0)
    pid = 0

    def inject(self, site: Site, luck: random.Random) -> bool:
        found = self.victims(site)
        if found:
            self.pid = luck.choice(found)
            kill(self.pid, signal.SIGSTOP)
        return bool(found)

    def heal(self, site: Site) -> None:
        if self.pid and title(self.pid):
            kill(self.pid, signal.SIGCONT)


class _Worker(_Part):
    word = ""

    def victims(self, site: Site) -> list[int]:
        return site.workers()


class WorkerKilled(_Worker):
    name, number = "worker killed (SIGKILL)", signal.SIGKILL


class WorkerTold(_Worker):
    name, number = "worker told to end (SIGTERM)", signal.SIGTERM


class WorkerInterrupted(_Worker):
    name, number = "worker interrupted (SIGINT)", signal.SIGINT


class WorkerFrozen(_Frozen):
    name = "worker frozen"

    def victims(self, site: Site) -> list[int]:
        return site.workers()


class RayletKilled(_Part):
    name, number, word, ends = "raylet killed (SIGKILL)", signal.SIGKILL, "raylet/raylet", True


class RayletTold(_Part):
    name, number, word, ends = "raylet told to end (SIGTERM)", signal.SIGTERM, "raylet/raylet", True


class RayletFrozen(_Frozen):
    name, word = "raylet frozen", "raylet/raylet"


class ControlKilled(_Part):
    name, number, word, ends = "Ray's control store killed (SIGKILL)", signal.SIGKILL, "gcs_server", True


class ControlFrozen(_Frozen):
    name, word = "Ray's control store frozen", "gcs_server"


class RayKilled(_Part):
    """All of Ray, while the driver lives."""

    name, number, word, ends = "all of Ray killed, driver alive", signal.SIGKILL, "raylet/raylet", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        if not self.victims(site):
            return False
        for pid in site.processes():
            if pid != site.pid:
                kill(pid, signal.SIGKILL)
        return True


class DriverFrozen(Fault):
    name, seconds = "driver frozen", (1.0, 8.0)

    pid = 0

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.pid = site.pid
        if self.pid:
            kill(self.pid, signal.SIGSTOP)
        return bool(self.pid)

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

    name, ends, alone = "power cut in the middle of a commit", True, True

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
        last = time.monotonic() + 60.0
        while site.running and time.monotonic() < last:
            try:
                if any(word in path.name for path in (folder / ".partial").iterdir()):
                    break
            except OSError:
                pass
            time.sleep(0.001)
        time.sleep(delay)
        alive = site.running
        site.kill_all()
        return alive


class SecondDriver(Fault):
    """A second driver on the same study is told who the first is."""

    name, seconds, alone = "second driver on one study", (0.0, 0.0), True

    def inject(self, site: Site, luck: random.Random) -> bool:
        pid = site.pid
        second = site.beside(luck.choice(["sweep", "resume"]))
        if not pid or not site.running:
            return False
        if second.code not in (1, 2) or f"process {pid} on" not in second.said:
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
        if second.code != 0:
            raise AssertionError(f"{STUDY} was not taken over: exit code {second.code}\n{second.said[-2000:]}")
        return True


KINDS = (
    DriverKilled, DriverTold, DriverInterrupted, DriverFrozen, TakenOver, SecondDriver,
    WorkerKilled, WorkerTold, WorkerInterrupted, WorkerFrozen,
    RayletKilled, RayletTold, RayletFrozen, ControlKilled, ControlFrozen, RayKilled,
    PowerCut, PowerCutInCommit,
)  # fmt: skip
