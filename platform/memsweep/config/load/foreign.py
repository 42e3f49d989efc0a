"""The guard through which code of others is called: factories, modules, tasks, models and plugins.

Such code may raise anything, anywhere. The person who runs memsweep gets one sentence with the file and the line. No
trial's identity holds this file: which errors pass the guard may move no number.
"""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memsweep.errors import MemsweepError, ModuleError

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_PYTHON = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})
_ENGINE = Path(__file__).resolve().parents[2]
_LONGEST = 500
"""Characters of an error's description; its beginning says what it is."""


@contextmanager
def foreign_code(sentence: Callable[[str], str], file: Path | None = None) -> Iterator[None]:
    """Code of others runs inside: whatever it raises becomes a ``ModuleError``; lack of memory stays what it is.

    Args:
        sentence: what to say, from the error in one line (``described``).
        file: that holds the code, where it is a file of a package; a user's own file is found in the traceback.
    """
    try:
        yield
    except (MemsweepError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, on a GPU
            raise
        raise ModuleError(sentence(in_one_line(error, file))) from error


@contextmanager
def users_faults() -> Iterator[None]:
    """A command runs inside: an error that comes out of a user's file becomes a sentence, any other one stays."""
    try:
        yield
    except MemsweepError:
        raise
    except (Exception, SystemExit) as error:
        file = _users_file(error)
        if file is None:
            raise
        raise ModuleError(f"{file} failed: {in_one_line(error)}. Correct its code.") from error


def in_one_line(error: BaseException, file: Path | None = None) -> str:
    """``described`` with a user's own file where the traceback has one, and never longer than a few lines."""
    try:
        return described(error, _users_file(error) or file)[:_LONGEST]
    except Exception:  # __str__ is code of others, too
        return f"{type(error).__name__} (its text cannot be had)"


def described(error: BaseException, file: Path | None = None) -> str:
    """An error of a user's code in one line: its type, its text, and where it was raised.

    Args:
        error: with its traceback.
        file: the place in this file is given, where the traceback has one; else the innermost outside of packages.
    """
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, SyntaxError) and error.filename:  # its text names the file and the line that cannot be read
        return f"{type(error).__name__}: {text}"
    frames = _frames(error)
    engine = str(Path(__file__).resolve().parents[2])
    own = [frame for frame in frames if file is not None and os.path.realpath(frame.filename) == str(file)]
    near = own or [frame for frame in frames if not _is_installed(frame.filename) and engine not in frame.filename]
    place = f" ({Path(near[-1].filename).name}, line {near[-1].lineno})" if near else ""
    return f"{type(error).__name__}{place}: {text}" if text else f"{type(error).__name__}{place}"


def _users_file(error: BaseException) -> Path | None:
    """The innermost file of the traceback that is neither Python's, nor an installed package's, nor memsweep's."""
    for frame in reversed(_frames(error)):
        file = Path(os.path.realpath(frame.filename))
        known = _is_installed(frame.filename) or any(map(file.is_relative_to, (*_PYTHON, _ENGINE)))
        if not known and os.path.isfile(file):
            return file
    return None


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the traceback that have a file: compiled code names one within its own sources."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if os.path.isabs(frame.filename)]


def _is_installed(file: str) -> bool:
    return bool(_INSTALLED.intersection(Path(file).parts))
