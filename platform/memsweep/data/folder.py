"""Published data sets: one data folder, with a folder for each data set, and how their text files are read."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.core.fields import setting

DATA_VARIABLE = "MEMSWEEP_DATA"
_SAME = ("mnist", "fashion_mnist", "cifar10", "ptb", "listops", *(f"pathfinder{size}" for size in (32, 64, 128, 256)))
FETCHED = {**{name: name for name in _SAME}, "aclImdb": "imdb", "aan": "retrieval"}
"""Folder in the data folder -> the data set that ``memsweep data fetch`` puts there."""


def data_folder() -> str:
    """The folder that the environment variable names, else ``data`` in the working folder."""
    return os.environ.get(DATA_VARIABLE, "data")


@dataclass(frozen=True, kw_only=True)
class DataFolderConfig:
    """Base of the Config of a task that reads published files; their folder is no part of a trial's identity."""

    folder: str = setting(
        factory=data_folder,
        doc=f"where the data set's own folder lies; ${DATA_VARIABLE} where that is set, else data",
        cosmetic=True,
    )

    def __post_init__(self) -> None:
        # a worker may run in another working folder than the command
        object.__setattr__(self, "folder", str(Path(self.folder).absolute()))


def found_here(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task's section of a stored trial, with the data folder of this machine where its own is not there.

    Args:
        task: name and fields; those of a task that reads no published files stay as they are.
    """
    if "folder" not in task or Path(task["folder"]).is_dir() or task["name"] not in registry.names(registry.TASK):
        return task
    reads = issubclass(registry.get(registry.TASK, task["name"]).Config, DataFolderConfig)
    return {**task, "folder": str(Path(data_folder()).absolute())} if reads else task


def existing(paths: Iterable[Path]) -> list[Path]:
    """The paths that are files or folders, in their order."""
    return [path for path in paths if path.exists()]


def with_times(paths: Iterable[Path]) -> tuple[tuple[Path, int], ...]:
    """Each path with the time of its last change, in nanoseconds: a cache key that a changed file does not share."""
    return tuple((path, path.stat().st_mtime_ns) for path in paths)


def problems_of(read: Callable[[], object]) -> Iterator[str]:
    """The message of the ValueError that ``read`` raises, or nothing: for the ``problems`` of a Config."""
    try:
        read()
    except ValueError as error:
        yield str(error)


def lacks(folder: Path, absent: Sequence[str], published: str, how: str = "") -> str:
    """The message about published files that are missing, and how to provide them.

    Args:
        folder: the data set's own folder in the data folder.
        absent: names of the missing files.
        published: name and format of the data set.
        how: a note about the form of the files, from the comma on.
    """
    place = next((each for each in (folder, *folder.parents) if each.name in FETCHED), None)
    fetch = ""
    if place:
        usual = place.parent == Path(data_folder()).absolute()
        into = "" if usual else f" --folder {shlex.quote(str(place.parent))}"
        fetch = f"memsweep data fetch {FETCHED[place.name]}{into} brings them. "
    return (
        f"the folder {folder} lacks {', '.join(absent)}, of {published}. {fetch}Put the published files there{how}, or "
        f"name the folder above it in the field folder or the environment variable {DATA_VARIABLE}"
    )


def published_text(path: Path, remedy: str = "Get the file again") -> str:
    """The content of a text file in UTF-8.

    Args:
        path: of the file.
        remedy: what to do about a file that is no UTF-8, for the message.

    Raises:
        ValueError: the file cannot be read, or is no UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no text in UTF-8: its byte {error.start} (0x{error.object[error.start]:02x}) fits into no "
            f"character. {remedy}"
        ) from None


def published_lines(path: Path) -> Iterator[str]:
    """The lines of a text file in UTF-8, with their line ends, read one by one: files may be larger than memory.

    Raises:
        ValueError: the file cannot be read, or a line is no UTF-8.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{path}, line {number}: no text in UTF-8 (byte {error.start} of the line fits into no "
                        "character). Get the file again"
                    ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
