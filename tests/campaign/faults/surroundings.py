"""Faults around a command: its folder, its home, its temporary folder."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path

from tests.campaign.bench import Bench, mount, unmount
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class _Around(Fault):
    """From the start of its command, which has trained something in the meantime, to its end."""

    seconds, from_start = (0.0, 0.0), True

    def inject(self, site: Site, luck: random.Random) -> bool:
        return True


class OtherFolder(_Around):
    name = "another working folder"

    def prepare(self, site: Site, luck: random.Random) -> None:
        folder = site.folder / "elsewhere"
        folder.mkdir(exist_ok=True)
        site.cwd = folder


class NoHome(_Around):
    name = "home cannot be written"

    def prepare(self, site: Site, luck: random.Random) -> None:
        home = site.folder / "home"
        home.mkdir(exist_ok=True)
        home.chmod(0o555)
        site.environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_CONFIG_HOME": str(home)}


class OutputFull(_Around):
    """The command's output goes to a full disk; its work is done all the same."""

    name = "standard output full"

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return not scenario.hosts

    def prepare(self, site: Site, luck: random.Random) -> None:
        site.output = Path("/dev/full")


class TemporaryFull(_Around):
    """The temporary folder, a file system of its own, has no room left when the command starts."""

    name = "temporary folder full"

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return bench.root and not scenario.ray  # Ray cannot start there, and says so

    def prepare(self, site: Site, luck: random.Random) -> None:
        folder = site.folder / "tmp"
        mount(folder, "1m") if not folder.exists() else None
        with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(2**12))
        # nothing can be compiled there, and plain kernels would be another identity of the trials
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memsweep"
        site.environment |= {"TMPDIR": str(folder), "MEMSWEEP_CACHE": os.environ.get("MEMSWEEP_CACHE") or str(cache)}

    def heal(self, site: Site) -> None:
        if (folder := site.folder / "tmp").exists():
            unmount(folder)
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


KINDS = (OtherFolder, NoHome, OutputFull, TemporaryFull)
