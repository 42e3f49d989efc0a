"""A fault of foreign code as plain data: an exception may be of any kind, and its text of any length.

Texts that quote a secret of the environment are kept without it: records and reports are for others to read.
"""

from __future__ import annotations

import re
import traceback
from typing import Any

from memsweep.outcome import Outcome
from memsweep.redaction import without_secrets
from memsweep.sweep.worker.memory import GIB, peak_memory

Failure = dict[str, Any]
"""``outcome``, ``error`` and ``traceback``; ``cause`` where it is ``time_limit`` or ``node_lost``;
where memory ran out, ``peak_memory`` (of the worker) and ``asked_memory`` (what it did not get, where that was said),
both in bytes."""

TIME_LIMIT, NODE_LOST = "time_limit", "node_lost"

_LONGEST_SENTENCE, _LONGEST_TRACEBACK = 2_000, 20_000  # characters
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}
_ASKED = re.compile(r"(?:tried to allocate|Unable to allocate) ([0-9.]+) (bytes|[KMGTPE]iB)", re.IGNORECASE)


class StoppedError(BaseException):
    """The place where a job runs wants it to end now: nobody's fault, and its checkpoint will be wanted."""


class TimeLimitError(BaseException):
    """A trial ran for longer than it may; no Exception, so that no ``except Exception`` of a task swallows it."""

    def __str__(self) -> str:
        return super().__str__() or "the trial ran for longer than resources.time_limit allows"


def failure_of(error: BaseException, hint: str = "", stack: str = "") -> Failure:
    """An exception as the plain data of a failure; it never raises, whatever the exception does when it is asked.

    Args:
        error: what was raised.
        hint: what else may explain it.
        stack: where the fault lies, if not where the exception was raised.
    """
    said, memory = _said(error), is_memory(error)
    failure: Failure = {"outcome": str(Outcome.OUT_OF_MEMORY if memory else Outcome.FAILED)}
    sentence = f"{type(error).__name__}: {said}"
    if memory:
        failure |= {"peak_memory": peak_memory()} | ({"asked_memory": asked} if (asked := _asked(said)) else {})
        sentence += f" ({_in_gib(failure)})"
    if isinstance(error, TimeLimitError):
        failure["cause"] = TIME_LIMIT
    return failure | {
        "error": cut(without_secrets(sentence + (f" ({hint})" if hint else "")), _LONGEST_SENTENCE),
        "traceback": cut(without_secrets(stack or _traceback(error)), _LONGEST_TRACEBACK),
    }


def is_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out: Python's, torch's on a GPU, or torch's on a CPU."""
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    # torch raises a bare RuntimeError when the CPU allocator fails, and C++ tells of it in words of its own
    told = _said(error) if isinstance(error, RuntimeError) else ""
    return "DefaultCPUAllocator" in told or told == "std::bad_alloc"


def cut(text: str, length: int = _LONGEST_SENTENCE) -> str:
    """A text of at most about this length, its middle left out, that every file and every terminal can show."""
    if len(text) > length:
        left, right = length * 3 // 4, length // 4
        text = f"{text[:left]} [... {len(text) - left - right} characters ...] {text[-right:]}"
    # escapes move a terminal's cursor, and half of a surrogate pair is no UTF-8
    return "".join(sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in text)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as worse:  # __str__ is foreign code, too
        return f"(its text cannot be had: __str__ raised {type(worse).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as worse:
        return f"(no traceback: it cannot be formatted, {type(worse).__name__})"


def _asked(said: str) -> int:
    found = _ASKED.search(said)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0


def _in_gib(failure: Failure) -> str:
    asked = failure.get("asked_memory")
    more = f", and {asked / GIB:.3g} GiB more were asked for" if asked else ""
    return f"the worker had held {failure['peak_memory'] / GIB:.2f} GiB at most{more}"
