"""The disk of the results is full, read-only, or forbids."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from pathlib import Path

from memsweep.sweep.planning.plan_file import read_plan
from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import CHECKPOINT_EVERY, Scenario
from tests.campaign.site import Site, TooLongError


class _Disk(Fault):
    """Felt by a checkpoint at the latest, which every few batches want to be stored, or by what the command says."""

    seconds = (2.0, 6.0)
    _asked = _said = 0

    def now(self, site: Site) -> bool:
        """It has begun."""
        self._asked, self._said = len(site.asked()), site.log.stat().st_size
        return True

    def felt(self, site: Site) -> bool:
        return len(site.asked()) > self._asked + CHECKPOINT_EVERY or site.log.stat().st_size > self._said


class _Mounted(_Disk):
    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store == "mount"


class Full(_Mounted):
    name = "disk full"

    def inject(self, site: Site, luck: random.Random) -> bool:
        self._fill(site, luck)
        return self.now(site)

    def _fill(self, site: Site, luck: random.Random) -> None:
        """Leave no room, or a little: then the first writes succeed, and a later one, of any file, is cut off."""
        filler, left = Path(site.results) / "filler", luck.choice([0, int(2 ** luck.uniform(0.0, 21.0))])
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as out:
            while True:
                out.write(bytes(2**16))
        with contextlib.suppress(OSError):
            os.truncate(filler, max(0, filler.stat().st_size - left))
        self.how = f"{left} bytes left"

    def heal(self, site: Site) -> None:
        (Path(site.results) / "filler").unlink(missing_ok=True)


class FullAtTheEnd(Full):
    """The last result is stored, and then the disk is full: for tables, figures, the page, MLflow, the journal."""

    name = "disk full at a write of the end"
    ends, alone, seconds = True, True, (4.0, 12.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        site.quick()
        before = read_plan(site.location)
        while site.running and before is not None and not before.rows.keys() <= site.store.identities():
            time.sleep(0.01)
            before = read_plan(site.location)  # that of a search grows
        time.sleep(luck.choice([0.0, luck.uniform(0.0, 10.0)]))
        self._fill(site, luck)
        return site.running

    def heal(self, site: Site) -> None:
        with contextlib.suppress(TooLongError):
            site.until(lambda: not site.running, "the command ends", 180.0)
        super().heal(site)


class ReadOnly(_Mounted):
    """The file system of the results is remounted read-only; what MLflow writes lies elsewhere."""

    name = "disk read-only"

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return super().applies(scenario, bench) and scenario.tracking == "server"

    def inject(self, site: Site, luck: random.Random) -> bool:
        last = time.monotonic() + 20.0
        while _remount(site, "ro") and time.monotonic() < last:  # it is refused while a file is being written
            time.sleep(0.01)
        return self.now(site) and "ro," in _options(site)

    def heal(self, site: Site) -> None:
        _remount(site, "rw")


def _remount(site: Site, how: str) -> int:
    command = ["mount", "-o", f"remount,{how}", site.results]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode


def _options(site: Site) -> str:
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next((words[3] for words in lines if words[1] == site.results), "")


class Forbidden(_Disk):
    """The folders of the study allow no writing any more."""

    name = "permission denied"

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store != "bucket" and not scenario.hosts and (not bench.root or bool(bench.prefix))

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def inject(self, site: Site, luck: random.Random) -> bool:
        study = site.location.local
        assert study is not None
        if not study.exists():
            return False
        self._folders = [study, *(path for path in study.iterdir() if path.is_dir())]
        for folder in self._folders:
            folder.chmod(0o555)
        return self.now(site)

    def heal(self, site: Site) -> None:
        for folder in self._folders:
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(0o755)


KINDS = (Full, FullAtTheEnd, ReadOnly, Forbidden)
