"""The guard around every command: whatever happens becomes a sentence, an exit code and, with --json, a document."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import select
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, cast

from memsweep import extras
from memsweep.errors import BlockedError, ConfigError, FaultError, MemsweepError, StorageError
from memsweep.home import state_folder

_LONGEST = 120  # characters of a path or of a foreign message
_ROOT = str(Path(__file__).resolve().parents[1])
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNFORGIVING = ("strict", "surrogateescape", "surrogatepass")
"""Ways of a stream with a letter that its encoding lacks that end in an error; the second is that of LC_ALL=C."""
_FOREIGN = re.compile("[\ud800-\udfff]")
"""How Python reads a byte of a name or a word that is no text."""
_UTF8 = "set LC_ALL=C.UTF-8, or take another name"


class Output:
    """Standard output or error. After an error of writing it drops what follows, so that no run ends by its own log.

    A reader that has left (``| head``) is no such error: ``write`` and ``flush`` raise BrokenPipeError.

    Attributes:
        error: the first error of writing; None while there is none.
        left: whether a reader has left.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        self.left = False

    def write(self, text: str) -> int:
        """Write a text."""
        with self._kept():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._kept():
            self._stream.flush()

    def discard(self) -> None:
        """From now on everything goes nowhere, what is buffered as well; else Python would complain at its end."""
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.left = True
            raise
        except OSError as error:
            if self.error is None:
                self.error = error
                self.discard()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def guarded_output() -> Iterator[Output]:
    """While it lasts, standard output and standard error are ``Output``; gives the former.

    A letter that the output's encoding lacks comes as a question mark: what was computed is not lost for its sake.
    """
    output, errors = Output(sys.stdout), Output(sys.stderr)
    with (
        _lenient(sys.stdout),
        contextlib.redirect_stdout(cast(TextIO, output)),
        contextlib.redirect_stderr(cast(TextIO, errors)),
    ):
        yield output


@contextlib.contextmanager
def _lenient(stream: TextIO) -> Iterator[None]:
    if not isinstance(stream, io.TextIOWrapper) or stream.errors not in _UNFORGIVING:
        yield
        return
    before = stream.errors
    stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        stream.reconfigure(errors=before)


def occupy_standard_streams() -> bool:
    """Puts /dev/null where a standard stream is closed, so that no file that is opened later takes its number.

    Returns:
        Whether standard output was closed.
    """
    closed = sys.stdout is None
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    return closed


def check_words(words: list[str], *, closed: bool) -> None:
    """Refuses a command line that no command can carry out.

    Raises:
        ConfigError: a word holds a NUL, which no path or name can have, or bytes that are no text; or there is no
            standard output.
    """
    problems = [f"{word[:_LONGEST]!r} holds a NUL character: leave it out." for word in words if "\0" in word]
    problems += [f"{_no_text(word[:_LONGEST])}." for word in words if _FOREIGN.search(word)]
    if closed:
        problems.append("standard output is closed: give it a file, or /dev/null to throw away what is printed.")
    if problems:
        raise ConfigError(problems, "the command line")


def reader_left() -> bool:
    """Whether the reader of standard output has left (``memsweep list tasks | head -1``)."""
    if getattr(sys.stdout, "left", False):  # rich has put /dev/null in the place of the pipe by now
        return True
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def as_meant(error: BaseException) -> MemsweepError:
    """Any error as one that is meant for the person; the traceback of a fault of memsweep goes to a file."""
    if isinstance(error, MemsweepError):
        return error
    if isinstance(error, MemoryError):
        what = f" ({_brief(error)})" if str(error) else ""
        return BlockedError(
            f"this machine has not enough memory for it{what}. What is stored stays. End other programs, or ask for "
            "less at once, then run the same command again."
        )
    if isinstance(error, SystemExit):
        return MemsweepError(
            f"code of a task, a model or a module called sys.exit({error.code!r}) at {_place(error.__traceback__)}. "
            "Raise an error there instead."
        )
    if isinstance(error, OSError):
        return _of_system(error)
    if isinstance(error, UnicodeEncodeError) and (sentence := _of_letters(error)):
        return MemsweepError(f"{sentence}. What is stored stays.")
    if isinstance(error, ImportError) and (sentence := extras.told(error)):
        return MemsweepError(f"this command cannot go on: {sentence}. What is stored stays.")
    return FaultError(
        f"memsweep itself failed: {type(error).__name__}: {_brief(error)} (at {_place(error.__traceback__)}). What is "
        f"stored stays. {_traceback_told(error)}"
    )


def output_error(error: OSError) -> StorageError:
    """Standard output took not all that was printed."""
    return StorageError(
        f"standard output took not all that was to be printed: {error.strerror or error}",
        "All else is done, and what is stored stays. Free some space, or send the output elsewhere.",
    )


def traceback_text(error: BaseException) -> str:
    """The traceback of an error, without secrets."""
    from memsweep.redaction import without_secrets

    return without_secrets("".join(traceback.format_exception(error))).rstrip("\n")


def _of_system(error: OSError) -> MemsweepError:
    from memsweep.sweep.store.filesystem import DELETE_FILES, out_of_files

    names = [str(name)[:_LONGEST] for name in (error.filename, error.filename2) if name is not None]
    where = " and ".join(names) or _place(error.__traceback__)
    if names and (out := out_of_files(error, names[0])):
        return StorageError(
            f"{where}: {out}", f"{DELETE_FILES}, then run the same command again: what is stored stays."
        )
    cause = f"{where}: {error.strerror or _brief(error)}"
    if error.errno == errno.ENAMETOOLONG:
        return MemsweepError(f"{cause}. Give a shorter path.")
    if error.errno in _FULL:
        advice = "Free some space there, then run the same command again: what is stored stays."
    else:
        advice = "Look at this path and its permissions, then run the same command again: what is stored stays."
    return StorageError(cause, advice)


def _of_letters(error: UnicodeEncodeError) -> str:
    """A sentence about a name that this shell's encoding cannot say; empty of any other text."""
    near = error.object[max(0, error.start - _LONGEST // 2) : error.start + _LONGEST // 2]
    if _FOREIGN.search(error.object[error.start : error.end]):
        return _no_text(near)
    encoding = sys.getfilesystemencoding()
    lacks = error.encoding == encoding != "utf-8"
    return f"{near!r} holds letters that this shell's encoding, {encoding}, lacks: {_UTF8}" if lacks else ""


def _no_text(word: str) -> str:
    encoding = sys.getfilesystemencoding()
    advice = "take another name" if encoding == "utf-8" else _UTF8
    return f"{word!r} holds bytes that are no text in this shell's encoding, {encoding}: {advice}"


def _brief(error: BaseException) -> str:
    from memsweep.redaction import without_secrets

    return without_secrets(" ".join(str(error).split()))[:_LONGEST].rstrip(".")


def _place(trace: TracebackType | None) -> str:
    """File and line where an error was raised: the last one of memsweep's own, else the last one."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if frame.filename.startswith(_ROOT)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown place"


def _traceback_told(error: BaseException) -> str:
    """Writes the traceback to a file of this user; where it is, in words."""
    text = traceback_text(error)
    file = state_folder() / "faults" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return "The same command with --verbose shows the traceback: please report it."
    return f"Please report it with its traceback, which is in {file} (--verbose shows it)."
