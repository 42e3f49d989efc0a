"""An error of a task's or a model's code as plain data; it may be of any kind, and its text of any length.

Secrets of the environment are removed from the texts, because other people read records and reports.
"""

from __future__ import annotations

import re
import traceback

from memsweep.errors import BrokenChainError, StoreError, printable
from memsweep.extras import told
from memsweep.outcome import Outcome
from memsweep.redaction import without_secrets
from memsweep.sweep.store.record import Failure
from memsweep.sweep.worker.limits import GIB, TimeLimitError, peak_memory

TIME_LIMIT, NODE_LOST = "time_limit", "node_lost"

_LONGEST_SENTENCE, _LONGEST_TRACEBACK = 2_000, 20_000  # characters
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}
_ASKED = re.compile(r"(?:tried to allocate|Unable to allocate) ([0-9.]+) (bytes|[KMGTPE]iB)", re.IGNORECASE)


class StoppedError(BaseException):
    """The backend ends the job now, without a failure; its checkpoint will be needed."""


class GroupFailedError(Exception):
    """A worker of a group failed; its failure is known as plain data.

    Attributes:
        failure: the failure.
        can_resume: see ``can_resume``.
    """

    def __init__(self, failure: Failure, can_resume: bool) -> None:
        super().__init__(failure, can_resume)
        self.failure, self.can_resume = failure, can_resume


def failure_of(error: BaseException, hint: str = "", stack: str = "") -> Failure:
    """An exception as the plain data of a failure; never raises, even if the exception's own methods raise.

    Args:
        error: the exception.
        hint: further explanation, for the message.
        stack: the place of the error, if it is not the place where the exception was raised.
    """
    hint = hint or (told(error) if isinstance(error, ImportError) else "")
    said, memory = _text(error), is_memory(error)
    asked, peak = _asked(said), peak_memory() if memory else 0
    sentence = f"{type(error).__name__}: {said}" + (f" ({_in_gib(peak, asked)})" if memory else "")
    failure: Failure = {
        "outcome": str(Outcome.OUT_OF_MEMORY if memory else Outcome.FAILED),
        "error": cut(without_secrets(sentence + (f" ({hint})" if hint else "")), _LONGEST_SENTENCE),
        "traceback": cut(without_secrets(stack or _traceback(error)), _LONGEST_TRACEBACK),
    }
    if isinstance(error, BrokenChainError):  # its place says nothing: the cause is the failure of another trial
        failure["traceback"] = ""
    if memory:
        failure["peak_memory"] = peak
        if asked:
            failure["asked_memory"] = asked
    if isinstance(error, TimeLimitError):
        failure["cause"] = TIME_LIMIT
    return failure


def is_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out: Python's, torch's on a GPU, or torch's on a CPU."""
    if isinstance(error, MemoryError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    # torch raises a bare RuntimeError when the CPU allocator fails, with the message of C++
    told = _text(error) if isinstance(error, RuntimeError) else ""
    return "DefaultCPUAllocator" in told or told == "std::bad_alloc"


def can_resume(error: BaseException) -> bool:
    """Whether a checkpoint may help the next attempt: it lacked time, memory or storage, and the code has no error."""
    if isinstance(error, GroupFailedError):
        return error.can_resume
    return isinstance(error, TimeLimitError | StoreError | OSError) or is_memory(error)


def cut(text: str, length: int = _LONGEST_SENTENCE) -> str:
    """A printable text of about this length at most; its middle is left out."""
    if len(text) > length:
        left, right = length * 3 // 4, length // 4
        text = f"{text[:left]} [... {len(text) - left - right} characters ...] {text[-right:]}"
    return printable(text)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as other:  # __str__ is foreign code, too
        return f"(its text cannot be had: __str__ raised {type(other).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as other:
        return f"(no traceback: it cannot be formatted, {type(other).__name__})"


def _asked(said: str) -> int:
    found = _ASKED.search(said)
    return int(float(found[1]) * _UNITS[found[2]]) if found else 0


def _in_gib(peak: int, asked: int) -> str:
    more = f", and {asked / GIB:.3g} GiB more were asked for" if asked else ""
    return f"the worker had held {peak / GIB:.2f} GiB at most{more}"
