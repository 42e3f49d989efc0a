"""The task does harm to the process that trains it, once."""

from __future__ import annotations

import random

from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class _Poison(Fault):
    """The next batch of ``watched.py`` does harm; ``how`` names it."""

    seconds, fails = (0.0, 0.0), True

    def inject(self, site: Site, luck: random.Random) -> bool:
        (site.folder / "poison.new").write_text(self.how)
        (site.folder / "poison.new").rename(site.folder / "poison")
        site.until(lambda: not (site.folder / "poison").exists() or not site.running, "a batch takes the poison")
        taken = not (site.folder / "poison").exists()
        (site.folder / "poison").unlink(missing_ok=True)
        return taken


class Raises(_Poison):
    name, how = "task raises", "raise"


class Crashes(_Poison):
    """Without Ray the driver goes with it."""

    name = "worker crashes (exit, abort, segmentation fault)"

    @classmethod
    def ends_in(cls, scenario: Scenario) -> bool:
        return not scenario.ray

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.how = luck.choice(["exit", "abort", "segfault"])
        return super().inject(site, luck)


class Memory(_Poison):
    name, how = "worker out of memory", "memory"


class Prints(_Poison):
    name, how, fails = "task prints garbage", "print", False


class Hangs(_Poison):
    """Longer than the study's time limit, which is short in this round."""

    name, how, alone = "task hangs past the time limit", "hang", True

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        # several workers and searches have their limits too; a plan whose limit is short is enough in the others
        return scenario.study in ("grid", "chain", "carried") and not scenario.hosts

    def prepare(self, site: Site, luck: random.Random) -> None:
        site.overrides = ["resources.time_limit=20"]


KINDS = (Raises, Crashes, Memory, Prints, Hangs)
