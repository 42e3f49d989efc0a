"""The files that a command was asked for: looked at before its work, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from memsweep.errors import ConfigError, StorageError

_SOURCE = "the command line"
_LONGEST = 120  # characters of a path in a message


def check_file(path: Path, flag: str) -> None:
    """Sees that a file can be written; leaves nothing behind.

    Raises:
        ConfigError: it cannot; ``flag`` names the other place.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(0, "it is read-only")
        if path.is_file() or not path.exists():
            with _partial(path).open("wb"):
                pass
    except (OSError, ValueError) as error:
        raise ConfigError([_refused(path, error, flag)], _SOURCE) from error
    finally:
        with contextlib.suppress(OSError, ValueError):
            _partial(path).unlink()


def check_folder(folder: Path, flag: str) -> None:
    """Sees that files can be written to a folder, or that it can be made; leaves nothing behind.

    Raises:
        ConfigError: they cannot; ``flag`` names the other place.
    """
    made: list[Path] = []
    try:
        while not (folder := folder.absolute()).exists():
            made.append(folder)
            folder = folder.parent
        if not folder.is_dir():
            raise NotADirectoryError(0, "it is a file")
        for path in reversed(made):
            path.mkdir()
        check_file((made or [folder])[0] / "probe", flag)
    except (OSError, ValueError) as error:
        raise ConfigError([_refused(folder, error, flag)], _SOURCE) from error
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def write_file(path: Path, data: bytes, *, new: bool = False) -> None:
    """Write a file whole, or leave what is there.

    Args:
        path: of the file.
        data: its content.
        new: a file that is there already stays.

    Raises:
        FileExistsError: with ``new``, another file is there.
        StorageError: it cannot be written.
    """
    partial = _partial(path)
    try:
        if path.exists() and not path.is_file():  # a pipe, /dev/stdout
            path.write_bytes(data)
            return
        with partial.open("wb") as file:
            file.write(data)
        if new and path.exists():
            raise FileExistsError(path)
        os.replace(partial, path)
    except FileExistsError:
        raise
    except OSError as error:
        advice = "Free some space there or give another place, then run the same command again."
        raise StorageError(f"{_shown(path)} cannot be written: {error.strerror or error}", advice) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.partial")


def _refused(path: Path, error: Exception, flag: str) -> str:
    return f"{_shown(path)} cannot be written: {getattr(error, 'strerror', None) or error}. Give another place: {flag}."


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
