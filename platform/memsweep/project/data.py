"""``memsweep data``: lists and fetches the published data sets that tasks read."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memsweep import builtin
from memsweep.config.load.bounded import read_yaml
from memsweep.data.folder import data_folder
from memsweep.documents import Answer
from memsweep.documents.keys.files import DataDocument
from memsweep.errors import ConfigError, did_you_mean, one_of, unwritable
from memsweep.gate import display, gated
from memsweep.project.download import FetchError, Progress
from memsweep.project.fetch import DOWNLOADS, fetch, forget_downloads
from memsweep.project.published import DATA_SETS, GROUPS, DataSet, PublishedFile


def data(args: argparse.Namespace) -> Answer:
    """Lists the data sets, or fetches the named ones.

    Raises:
        ConfigError: a name is no data set, or none is given.
        FetchError: a data set could not be fetched; those before it are there.
    """
    folder = Path(args.folder or data_folder()).absolute()
    if args.what == "list":
        document = listing(folder)
        return Answer(document, text=_text(document))
    names, told = _wanted(args.names), dict[str, str]()
    try:
        with _alone(folder / DOWNLOADS):
            for name in names:
                told[name] = fetch(name, DATA_SETS[name], folder, force=args.force, watch=_shown, source=args.source)
                sys.stdout.write(f"{told[name]}\n")
                sys.stdout.flush()
            forget_downloads(folder)
    except OSError as error:
        raise FetchError(
            f"{unwritable(error, folder)}. Mend that, or give another folder with --folder. What was downloaded so "
            "far is kept; the same command goes on with it."
        ) from None
    return Answer({**listing(folder), "fetched": told})


def listing(folder: Path) -> DataDocument:
    """Each data set: whether it is in the data folder, who reads it, where it is from, and how much is downloaded."""
    own = sorted(builtin.folder(builtin.STUDIES).glob("*/*.yaml"))
    studies = {path.stem: _tasks(path) for path in own}
    return {
        "folder": str(folder),
        "sets": [
            {
                "name": name,
                "title": each.title,
                "there": (folder / each.folder).is_dir(),
                "bytes": sum(file.size for file in each.files),
                "tasks": list(each.tasks),
                "studies": [
                    study for study, tasks in studies.items() if any(_reads(task, name, each) for task in tasks)
                ],
                "places": _places(each),
            }
            for name, each in DATA_SETS.items()
        ],
        "groups": {name: list(parts) for name, parts in GROUPS.items()},
        "notes": list(dict.fromkeys(each.note for each in DATA_SETS.values() if each.note)),
        "fetched": {},
    }


def _tasks(study: Path) -> list[Mapping[str, Any]]:
    """The fields of a study's tasks, as its file has them: that of the section, or those of an axis of the grid."""
    written = read_yaml(study.read_text("utf-8"))
    section, grid = (part if isinstance(part := written.get(name), Mapping) else {} for name in ("task", "grid"))
    tasks: list[Mapping[str, Any]] = [section]
    if isinstance(axis := grid.get("task"), Sequence):
        tasks = [each if isinstance(each, Mapping) else {"name": each} for each in axis]
    for path, values in grid.items():
        if path.startswith("task.") and isinstance(values, Sequence):
            tasks = [{**task, path.removeprefix("task."): value} for task in tasks for value in values]
    return tasks


def _reads(task: Mapping[str, Any], name: str, data_set: DataSet) -> bool:
    """Whether a task with these fields reads a data set: of several, the one that ``data`` names, or the ``size``."""
    if task.get("name") not in data_set.tasks or task.get("source", "files") != "files":
        return False
    several = sum(task["name"] in each.tasks for each in DATA_SETS.values()) > 1
    return not several or name in (task.get("data", "mnist"), f"{task['name']}{task.get('size', 32)}")


def _places(data_set: DataSet) -> list[str]:
    servers = dict.fromkeys(urlsplit(address).netloc for file in data_set.files for address in file.addresses)
    package = data_set.package
    return [*servers, *([f"{package.name} ({package.manager}; licence: {package.licence})"] if package else [])]


def _text(document: DataDocument) -> str:
    lines = [f"in {document['folder']} (MEMSWEEP_DATA or --folder names another):"]
    for each in document["sets"]:
        there = "there" if each["there"] else "-"
        lines.append(f"{each['name']:<14} {there:<6} {_size(each['bytes']):>9}  {each['title']}")
        read = ", ".join(each["tasks"]) + (f"; by {', '.join(each['studies'])}" if each["studies"] else "")
        lines += [f"{'':<14} tasks: {read}", *(f"{'':<14} from {place}" for place in each["places"])]
    lines += [f"{name:<14} all of {', '.join(parts)}" for name, parts in document["groups"].items()]
    return "\n".join([*lines, *document["notes"]])


def _wanted(words: list[str]) -> list[str]:
    known = [*DATA_SETS, *GROUPS]
    if not words:
        raise ConfigError([f"which data? Name one or more of {one_of(known)}"], "the command line")
    if strange := [word for word in words if word not in known]:
        raise ConfigError(
            [
                f"there is no data set {word!r}.{did_you_mean(word, known)} There are {one_of(known)}"
                for word in strange
            ],
            "the command line",
        )
    return list(dict.fromkeys(name for word in words for name in GROUPS.get(word, (word,))))


@contextlib.contextmanager
def _alone(downloads: Path) -> Iterator[None]:
    """Only one process fetches into a folder at a time. The folder goes at the end, unless parts are left in it."""
    from filelock import FileLock, Timeout

    downloads.mkdir(parents=True, exist_ok=True)
    lock = downloads / ".lock"
    try:
        with FileLock(lock, timeout=0):
            yield
    except Timeout:
        raise FetchError(f"another process fetches data into {downloads.parent}: wait until it has ended.") from None
    with contextlib.suppress(OSError):
        lock.unlink(missing_ok=True)
        downloads.rmdir()


@contextlib.contextmanager
def _shown(file: PublishedFile) -> Iterator[Progress]:
    """A bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(file=display(sys.stderr)), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(gated(file.name), total=file.size or None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole or None)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
