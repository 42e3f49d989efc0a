"""What is around a command is not as it was: its folder, its home, its temporary folder."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from tests.campaign.bench import Bench, mount, unmount
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class OtherFolder(Fault):
    name, seconds = "another working folder", (0.0, 0.0)

    def prepare(self, site: Site, luck: random.Random) -> None:
        folder = site.folder / "elsewhere"
        folder.mkdir(exist_ok=True)
        site.cwd = folder

    def inject(self, site: Site, luck: random.Random) -> bool:
        return True


class NoHome(Fault):
    name, seconds = "home cannot be written", (0.0, 0.0)

    def prepare(self, site: Site, luck: random.Random) -> None:
        home = site.folder / "home"
        home.mkdir(exist_ok=True)
        home.chmod(0o555)
        site.environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home)}

    def inject(self, site: Site, luck: random.Random) -> bool:
        return True


class TemporaryFull(Fault):
    """The temporary folder, a file system of its own, has no room left when the command starts."""

    name, seconds = "temporary folder full", (0.0, 0.0)

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return bench.root and not scenario.hosts

    def prepare(self, site: Site, luck: random.Random) -> None:
        folder = site.folder / "tmp"
        mount(folder, "1m") if not folder.exists() else None
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(2**12))
        site.environment |= {"TMPDIR": str(folder)}

    def inject(self, site: Site, luck: random.Random) -> bool:
        return True

    def heal(self, site: Site) -> None:
        if (folder := site.folder / "tmp").exists():
            unmount(folder)
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


KINDS = (OtherFolder, NoHome, TemporaryFull)
