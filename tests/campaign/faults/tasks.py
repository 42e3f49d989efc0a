"""The task does harm to the process that trains it, once."""

from __future__ import annotations

import random
from typing import ClassVar

from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class _Poison(Fault):
    """What ``watched.py`` does at its next batch."""

    seconds = (0.0, 0.0)
    poison: ClassVar[str]

    def inject(self, site: Site, luck: random.Random) -> bool:
        (site.folder / "poison.new").write_text(self.poison)
        (site.folder / "poison.new").rename(site.folder / "poison")
        site.until(lambda: not (site.folder / "poison").exists() or not site.running, "a batch takes the poison")
        taken = not (site.folder / "poison").exists()
        (site.folder / "poison").unlink(missing_ok=True)
        return taken


class Raises(_Poison):
    name, poison = "task raises", "raise"


class Exits(_Poison):
    name, poison = "worker exits (code 3)", "exit"


class Aborts(_Poison):
    name, poison = "worker aborts", "abort"


class Segfault(_Poison):
    name, poison = "worker has a segmentation fault", "segfault"


class Memory(_Poison):
    name, poison = "worker out of memory", "memory"


class Prints(_Poison):
    name, poison = "task prints garbage", "print"


class Hangs(_Poison):
    """Longer than the study's time limit, which is short in this round."""

    name, poison, alone = "task hangs past the time limit", "hang", True

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        # several workers and searches have their limits too; a plan whose limit is short is enough in the others
        return scenario.study in ("grid", "chain", "carried") and not scenario.hosts

    def prepare(self, site: Site, luck: random.Random) -> None:
        site.overrides = ["resources.time_limit=20"]


KINDS = (Raises, Exits, Aborts, Segfault, Memory, Prints, Hangs)
