"""The results folder is copied or moved between two commands: a study lives where its folder is, and nowhere else."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class _Elsewhere(Fault):
    at_rest = True

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.store == "disk"

    def inject(self, site: Site, luck: random.Random) -> bool:
        before = Path(site.results)
        if not before.is_dir():
            return False
        after = site.folder / f"{self.name.partition(' ')[2].replace(' ', '-')}.{luck.randrange(10**9)}"
        self.take(site, before, after)
        site.results = str(after)
        return True

    def take(self, site: Site, before: Path, after: Path) -> None:
        """Bring the folder to its new place, and promise what must hold of the old one."""
        raise NotImplementedError


class Copied(_Elsewhere):
    """The copy is worked on; the original stays as it is, byte for byte."""

    name = "results folder copied"

    def take(self, site: Site, before: Path, after: Path) -> None:
        shutil.copytree(before, after, symlinks=True)
        kept = _contents(before)
        site.promises.append(lambda: _changed(kept, before))


class Moved(_Elsewhere):
    """The folder is at its new place; nothing makes the old one again."""

    name = "results folder moved"

    def take(self, site: Site, before: Path, after: Path) -> None:
        before.rename(after)
        site.promises.append(lambda: f"a moved folder was made again: {before}" if before.exists() else "")


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _changed(kept: dict[str, bytes], folder: Path) -> str:
    """Says what of a folder is not as it was; empty where all is."""
    now = _contents(folder)
    names = sorted(name for name in kept.keys() | now.keys() if kept.get(name) != now.get(name))
    return f"work on a copy changed the original's {names[:5]}" if names else ""


KINDS = (Copied, Moved)
