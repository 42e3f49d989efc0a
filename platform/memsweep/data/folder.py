"""Where data sets lie that are not shipped: one folder, and in it one for each data set."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memsweep.config.core.fields import setting

DATA_VARIABLE = "MEMSWEEP_DATA"


def data_folder() -> str:
    """The folder that the environment variable names, else ``data`` in the working folder."""
    return os.environ.get(DATA_VARIABLE, "data")


@dataclass(frozen=True, kw_only=True)
class DataFolderConfig:
    """The base of a task's Config that reads published files: where they lie moves no number."""

    folder: str = setting(
        factory=data_folder,
        doc=f"where the data set's own folder lies; ${DATA_VARIABLE} where that is set, else data",
        cosmetic=True,
    )

    def __post_init__(self) -> None:
        # a worker may run in another folder than the command that was given
        object.__setattr__(self, "folder", str(Path(self.folder).absolute()))


def lacks(folder: Path, absent: Sequence[str], published: str, how: str = "") -> str:
    """The sentence that says that published files are not there, and what to do.

    Args:
        folder: where they were looked for: the data set's own folder in the data folder.
        absent: names of what is missing.
        published: name and format of the data set.
        how: what to know before files are put there, from the comma on.
    """
    return (
        f"the folder {folder} lacks {', '.join(absent)}, of {published}. Put the published files there{how}, or say "
        f"with the field folder, or with the environment variable {DATA_VARIABLE}, where the folder above it is"
    )


def published_text(path: Path) -> str:
    """The content of a text file in UTF-8.

    Raises:
        ValueError: the file cannot be read, or holds something else.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is no text in UTF-8: its byte {error.start} (0x{error.object[error.start]:02x}) fits into no "
            "character. Get the file again"
        ) from None


def published_lines(path: Path) -> Iterator[str]:
    """The lines of a text file in UTF-8, with their ends, read one by one: such files may be larger than the memory.

    Raises:
        ValueError: the file cannot be read, or a line is something else; the sentence names it.
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
