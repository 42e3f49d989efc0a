"""The one gate for text that is shown or stored: without secrets, and without what a terminal would obey.

Names, errors, host names and logs of others may hold both. ``gated`` is the gate for one text. Behind ``streams`` it
stands before standard output and standard error, so that prints, logs, warnings and tracebacks pass it, whoever writes
them.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any, TextIO, cast

from memsweep.errors import printable
from memsweep.redaction import without_secrets

_STYLE = r"\x1b\[(?:(?:[0-4]|22|23|24|3[1-69]|9[0-6])(?:;|(?=m)))*m"
"""Colours and weights of letters, which a terminal may get: none hides text, moves the cursor or sets a title."""
_STYLES = re.compile(f"({_STYLE})")


def gated(text: str) -> str:
    """A text as it may be shown or stored: secrets are ``***``, control and bidirectional signs are escaped."""
    return printable(without_secrets(text))


def each_text(value: Any, change: Callable[[str], str] = gated) -> Any:
    """The same plain data with every text in it changed, keys too; numbers stay as they are."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {each_text(key, change): each_text(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(each, change) for each in value]
    return value


class Gate:
    """A text stream whose texts pass the gate; all else is the stream's own.

    A terminal may get colours.

    Args:
        stream: where the texts go.
        obeyed: control characters pass, too: for a display whose foreign texts have passed the gate before. Where its
            terminal is gone, texts go nowhere.

    Attributes:
        behind: the stream.
    """

    def __init__(self, stream: TextIO, *, obeyed: bool = False) -> None:
        self.behind, self._obeyed = stream, obeyed

    def write(self, text: str) -> int:
        """Writes a text; returns its length, as every stream does."""
        shown = without_secrets(text)
        if not self._obeyed and self.behind.isatty():
            parts = _STYLES.split(shown)  # every second one is a style
            shown = "".join(part if number % 2 else printable(part) for number, part in enumerate(parts))
        elif not self._obeyed:
            shown = printable(shown)
        with self._passed_over:
            self.behind.write(shown)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._passed_over:
            self.behind.flush()

    @property
    def _passed_over(self) -> AbstractContextManager[None]:
        return suppress(OSError) if self._obeyed else nullcontext()

    def writelines(self, lines: Iterable[str]) -> None:
        """Writes texts one after the other."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def display(stream: TextIO) -> TextIO:
    """A stream for a progress bar, which moves the cursor; the texts that it shows must have passed ``gated``."""
    return cast(TextIO, Gate(stream.behind if isinstance(stream, Gate) else stream, obeyed=True))


def let_through(stream: TextIO, text: str) -> None:
    """Writes a document whose texts have passed the gate one by one: a number in it is no secret."""
    (stream.behind if isinstance(stream, Gate) else stream).write(text)


@contextmanager
def streams() -> Iterator[None]:
    """Standard output and standard error behind the gate; an exception that ends the process passes it, too."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (each if isinstance(each, Gate) else cast(TextIO, Gate(each)) for each in before)
    try:
        yield
    except Exception:
        sys.excepthook = _told
        raise
    finally:
        sys.stdout, sys.stderr = before


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """In place of Python's own: an exception that nobody caught, through the gate."""
    Gate(sys.stderr).write("".join(traceback.format_exception(kind, error, trace)))
