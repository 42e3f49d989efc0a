"""Clocks jump: that of driver and workers while they run, that of the storage in the times of its files."""

from __future__ import annotations

import json
import os
import random
import time

from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site
from wrong_clock import WrongClock


class Jumps(Fault):
    """The clock of the driver and of all that it starts; the storage's stays right, and so does the next command's."""

    name, seconds, from_start = "clock jumps by hours, ahead or back", (4.0, 8.0), True
    _clock: WrongClock

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        # S3's client waits until a time of the system's clock, which the kernel reads and the library does not set
        return bench.compiler and not scenario.hosts and scenario.store != "bucket"

    def prepare(self, site: Site, luck: random.Random) -> None:
        self._clock = WrongClock.make(site.folder / f"clock.{luck.random()}")
        site.environment |= self._clock.environment

    def inject(self, site: Site, luck: random.Random) -> bool:
        hours = luck.choice([-24.0, 24.0]) * luck.uniform(0.1, 1.0)
        self.how = f"{hours:+.0f} h"
        self._clock.set(round(hours * 3600.0))
        return True

    def felt(self, site: Site) -> bool:
        return any(abs(asked.when - time.time()) > 3600.0 for asked in site.asked()[-10:])


class OtherTimes(Fault):
    """All files of the study have another time, as after a power cut of a machine whose clock was wrong."""

    name, at_rest = "files with times in the future, or long past", True

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store != "bucket"

    def inject(self, site: Site, luck: random.Random) -> bool:
        folder = site.location.local
        assert folder is not None
        hours = luck.choice([24.0, -24.0 * 400]) * luck.uniform(0.1, 1.0)
        self.how = f"{hours:+.0f} h"
        paths = list(folder.rglob("*"))
        for path in paths:
            os.utime(path, (time.time() + hours * 3600.0,) * 2, follow_symlinks=False)
        return bool(paths)


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
            except (OSError, ValueError):  # a strange folder, or damaged before
                continue
            path.write_text(json.dumps(held | {"machine": "another machine", "host": "elsewhere"}))
            os.utime(path, (when, when))
        return bool(names)


KINDS = (Jumps, OtherTimes, ForeignLease)
