"""Clocks jump: that of driver and workers while they run, that of the storage in the times of its files."""

from __future__ import annotations

import json
import os
import random
import time
from typing import ClassVar

from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site
from wrong_clock import WrongClock


class _Jump(Fault):
    """The clock of the driver and of all that it starts; the storage's stays right, and so does the next command's."""

    seconds = (6.0, 12.0)
    hours: ClassVar[float]
    _clock: WrongClock

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        # S3's client waits until a time of the system's clock, which the kernel reads and the library does not set
        return bench.compiler and not scenario.hosts and scenario.store != "bucket"

    def prepare(self, site: Site, luck: random.Random) -> None:
        self._clock = WrongClock.make(site.folder / f"clock.{luck.random()}")
        site.environment |= self._clock.environment

    def inject(self, site: Site, luck: random.Random) -> bool:
        self._clock.set(round(self.hours * 3600.0 * luck.uniform(0.1, 1.0)))
        return True


class JumpsAhead(_Jump):
    name, hours = "clock jumps ahead", 24.0


class JumpsBack(_Jump):
    name, hours = "clock jumps back", -24.0


class _Files(Fault):
    """All files of the study have another time, as after a power cut of a machine whose clock was wrong."""

    at_rest = True
    hours: ClassVar[float]

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store != "bucket"

    def inject(self, site: Site, luck: random.Random) -> bool:
        folder = site.location.local
        assert folder is not None
        when = time.time() + self.hours * 3600.0 * luck.uniform(0.1, 1.0)
        paths = list(folder.rglob("*"))
        for path in paths:
            os.utime(path, (when, when), follow_symlinks=False)
        return bool(paths)


class FilesFromTheFuture(_Files):
    name, hours = "files with times in the future", 24.0


class FilesFromThePast(_Files):
    name, hours = "files with times long past", -24.0 * 400


class ForeignLease(Fault):
    """A lease that a machine with another boot has left behind, from the future as often as not."""

    name, at_rest = "lease of a dead machine, its clock ahead or not", True

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store != "bucket" and not scenario.hosts

    def inject(self, site: Site, luck: random.Random) -> bool:
        folder = site.location.local
        assert folder is not None
        names = list((folder / "lease").glob("*.json"))
        when = time.time() + luck.choice([-60.0, 0.0, 1800.0])
        for path in names:
            try:
                held = json.loads(path.read_text())
            except ValueError:
                continue
            path.write_text(json.dumps(held | {"machine": "another machine", "host": "elsewhere"}))
            os.utime(path, (when, when))
        return bool(names)


KINDS = (JumpsAhead, JumpsBack, FilesFromTheFuture, FilesFromThePast, ForeignLease)
