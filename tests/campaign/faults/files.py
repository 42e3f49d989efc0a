"""Files of a study that nobody works on are damaged, lost, exchanged; strange ones appear."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.tables import names as table_names
from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site

Damage = Callable[[Location, str, list[str], random.Random], bool]
"""Damages a file of a location; the list names all files of its sort. False where that changes nothing."""


def paths(place: Location, *folders: str) -> list[str]:
    """The files in folders of a study, and in the folders in them."""
    from pyarrow.fs import FileSelector

    root, found = place.path(), []
    for folder in folders:
        for info in place.files.get_file_info(FileSelector(place.path(folder), recursive=True, allow_not_found=True)):
            if info.is_file:
                found.append(info.path.removeprefix(f"{root}/"))
    return sorted(found)


def truncated(place: Location, path: str, all_paths: list[str], luck: random.Random) -> bool:
    data = place.read(path)
    return _write(place, path, data[: luck.randrange(len(data))] if data else data, data)


def flipped(place: Location, path: str, all_paths: list[str], luck: random.Random) -> bool:
    data = bytearray(before := place.read(path))
    if data:
        data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
    return _write(place, path, bytes(data), before)


def emptied(place: Location, path: str, all_paths: list[str], luck: random.Random) -> bool:
    return _write(place, path, b"", place.read(path))


def deleted(place: Location, path: str, all_paths: list[str], luck: random.Random) -> bool:
    place.delete(path)
    return True


def zeroed(place: Location, path: str, all_paths: list[str], luck: random.Random) -> bool:
    data = place.read(path)
    kept = luck.randrange(len(data)) if data else 0
    return _write(place, path, data[:kept] + bytes(len(data) - kept), data)


def swapped(place: Location, path: str, all_paths: list[str], luck: random.Random) -> bool:
    others = [other for other in all_paths if other != path]
    if not others:
        return False
    other = luck.choice(others)
    one, two = place.read(path), place.read(other)
    _write(place, other, one, two)
    return _write(place, path, two, one)


def _write(place: Location, path: str, data: bytes, before: bytes) -> bool:
    if data == before:
        return False
    if (folder := place.local) is not None:
        (folder / path).write_bytes(data)
    else:
        place.write(path, data)
    return True


DAMAGES: dict[str, Damage] = {
    "truncated": truncated, "a bit flipped": flipped, "deleted": deleted, "emptied": emptied,
    "swapped with another": swapped, "its end full of zeros": zeroed,
}  # fmt: skip

SORTS: dict[str, Callable[[Site], list[str]]] = {
    "table": lambda site: paths(site.location, *table_names()),
    "record": lambda site: paths(site.location, "records"),
    "plan": lambda site: [name for name in site.location.names() if name == "plan.json"],
    "plan's copy": lambda site: [name for name in site.location.names() if name == "plan.copy.json"],
    "journal": lambda site: paths(site.location, "journal"),
    "lease": lambda site: paths(site.location, "lease"),
    "checkpoint": lambda site: paths(site.location, "checkpoints", "states"),
    "search log": lambda site: paths(site.location, "search"),
}
"""The files of each sort in a study; of a plan there is one, and it is exchanged with its copy of another time."""


class Damaged(Fault):
    """Some files of a sort are damaged, each in one way."""

    at_rest = True
    sort: ClassVar[str]

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return cls.sort != "search log" or scenario.study in ("tpe", "asha")

    def inject(self, site: Site, luck: random.Random) -> bool:
        found = SORTS[self.sort](site)
        others = found if len(found) > 1 else paths(site.location, "records", "journal")
        ways = []
        for path in luck.sample(found, min(len(found), luck.choice([1, 1, 2]))):
            way = luck.choice(list(DAMAGES))
            if DAMAGES[way](site.location, path, others, luck):
                ways.append(way)
            if way in ("deleted", "swapped with another"):
                break  # the other path may be what was deleted
        self.how = ", ".join(ways)
        return bool(ways)


DAMAGED = tuple(type("Damaged", (Damaged,), {"name": f"{sort} damaged or lost", "sort": sort}) for sort in SORTS)


class DatabaseDamaged(Fault):
    """MLflow's database is damaged, as its own server or disk may do; results never depend on it."""

    name, at_rest = "MLflow's database damaged or lost", True

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.tracking == "sqlite" and scenario.store != "bucket"

    def inject(self, site: Site, luck: random.Random) -> bool:
        place = Location.at(site.results)
        if not place.exists("mlflow.db"):
            return False
        self.how = luck.choice([way for way in DAMAGES if DAMAGES[way] is not swapped])
        return DAMAGES[self.how](place, "mlflow.db", [], luck)


class Strange(Fault):
    """Files and folders that memsweep has not made."""

    name, at_rest = "strange files and folders", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        folders = ["", "records/", "curves/", "journal/", "lease/", "checkpoints/", "search/", "history/", "failures/"]
        names = [
            "x",
            "x.json",
            "x.parquet",
            "000009.000000.jsonl",
            "999999.000000.jsonl",
            ".DS_Store",
            "ä 記",
        ]
        names += ["f" * 16 + ".json", "f" * 64 + ".json", "f" * 64 + ".parquet", "plan.json.orig", "~$plan.json"]
        contents = [b"", b"{}", b"[]", b"null", b"\xff\xfe", b"{" * 2000, luck.randbytes(300)]
        for _ in range(luck.randrange(1, 6)):
            name = luck.choice(folders) + luck.choice(names)
            if not site.location.exists(name):
                site.location.write(name, luck.choice(contents))
        if (folder := site.location.local) is not None:
            (folder / luck.choice([f for f in folders if f]) / "a folder.json" / "in it").mkdir(
                parents=True, exist_ok=True
            )
            link = folder / "records" / "a link.json"
            if link.parent.is_dir() and not link.is_symlink():
                link.symlink_to("/nonexistent")
        return True


KINDS = (*DAMAGED, DatabaseDamaged, Strange)
