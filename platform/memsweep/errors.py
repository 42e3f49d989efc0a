"""The errors that memsweep raises on purpose, and the words they share.

Every message says what is wrong, what was got, what is allowed and what to do about it.
"""

from __future__ import annotations

import difflib
import enum
import errno
import getpass
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO


class Exit(enum.IntEnum):
    """The exit codes of all commands; docs/json.md says what they mean."""

    DONE = 0
    UNMET = 1  # never an error: the command did its work, and what it found is not as it should be
    REFUSED = 2
    LIMIT = 3
    BLOCKED = 4
    FAULT = 70  # EX_SOFTWARE of sysexits.h
    INTERRUPTED = 130  # what a shell reports for a program that SIGINT ended
    UNREAD = 141  # the same for SIGPIPE


class MemsweepError(Exception):
    """An error whose message is meant for the person who runs memsweep: shown without a traceback."""

    exit_code: int = Exit.REFUSED


class BlockedError(MemsweepError):
    """A disk, memory, a server or another process is in the way: the same command may succeed later."""

    exit_code = Exit.BLOCKED


class FaultError(MemsweepError):
    """An error of memsweep's own code."""

    exit_code = Exit.FAULT


class ConfigError(MemsweepError):
    """A configuration that cannot run; carries *all* of its problems, not the first one.

    Attributes:
        problems: one sentence each, in the order in which the configuration is read.
    """

    def __init__(self, problems: Sequence[str], source: str = "the configuration") -> None:
        self.problems = tuple(problems)
        self.source = source
        count = len(self.problems)
        head = f"{count} problem{'s' if count != 1 else ''} in {source}:"
        super().__init__("\n".join([head, *(f"  - {problem}" for problem in self.problems)]))


class StoreError(BlockedError):
    """A stored result that cannot be read or written as it should be."""


class StorageError(StoreError):
    """The storage itself fails: it is full, read-only, away, or refuses us. What lies in it may be whole.

    Attributes:
        cause: what is wrong, without a full stop.
    """

    def __init__(self, cause: str, advice: str) -> None:
        self.cause = cause
        super().__init__(f"{cause}. {advice}")


class BrokenChainError(MemsweepError):
    """A chained trial cannot take its value, because the trial before it in the chain has no usable result."""


class ModuleError(MemsweepError):
    """A user's torch module that cannot be imported, built or run; the message says what to change."""


class TrustError(MemsweepError):
    """A document names code that nobody here has trusted; nothing of it was imported or called."""


class RegistryError(MemsweepError):
    """A task, model or parameterization that was registered wrongly; the fault of its author."""


def unwritable(error: OSError, place: object) -> str:
    """Says that a place cannot be written, and why: ``DIR cannot be written: user 'ann' may not write there``."""
    if error.errno in (errno.EACCES, errno.EPERM):
        why = f"{user()} may not write there"
    elif error.errno == errno.EROFS:
        why = "its file system is read-only"
    else:
        why = error.strerror or str(error)
    return f"{error.filename or place} cannot be written: {why}"


def user() -> str:
    """The person who runs this process: ``user 'ann'``, or ``user 1000`` where the number has no name."""
    try:
        return f"user {getpass.getuser()!r}"
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def printable(text: str) -> str:
    """A text without control characters: escapes move a terminal's cursor, half a surrogate pair is no UTF-8."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text)


def columns_of(stream: TextIO, plain: int) -> int:
    """Columns of a terminal; in a pipe or a file those of the variable COLUMNS, or else ``plain``."""
    if stream.isatty():
        return shutil.get_terminal_size().columns
    said = os.environ.get("COLUMNS", "")
    return int(said) if said.isascii() and said.isdigit() and int(said) else plain


def filled(text: str, stream: TextIO) -> str:
    """A printable text whose lines, on a terminal, are broken between words; what goes on stands further in.

    Paths, addresses and ``memsweep COMMAND STUDY --flags`` stay in one piece, so that they can be copied.
    """
    text = printable(text)
    if not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(_broken(line, columns) for line in text.split("\n"))


_TYPED = re.compile(r"\bmemsweep [a-z]+ \S+(?: --[a-z-]+(?: (?:'[^']*'|[^\s-]\S*))?)*")
"""A command with its flags, as a sentence holds it."""


def _broken(line: str, columns: int) -> str:
    whole = re.sub(_TYPED, lambda command: command[0].replace(" ", "\xa0"), line)
    hanging = " " * (len(line) - len(line.lstrip()) + 2)
    filled = textwrap.fill(whole, columns, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\xa0", " ")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known name, or an empty string when none is near."""
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.65)
    return f" Did you mean {near[0]!r}?" if near else ""


def counted(count: int, noun: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def one_of(known: Iterable[str]) -> str:
    """The allowed names as one phrase, sorted: ``direct, exp, softplus``."""
    return ", ".join(sorted(known)) or "(none)"


def listed(names: Sequence[str], most: int) -> str:
    """The first names as one phrase: ``a, b, c and 4 more``."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
