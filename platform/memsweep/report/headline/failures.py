"""Trials without a result: how many failed, and by which errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memsweep.errors import counted
from memsweep.outcome import Outcome
from memsweep.report.read.study import MissingRow, Study

_MOST, _LONGEST = 3, 160  # causes that are named, and characters of one
_FAILED = (Outcome.FAILED, Outcome.OUT_OF_MEMORY)


def failed_rows(study: Study) -> list[MissingRow]:
    """The planned trials whose last attempt failed."""
    return [row for row in study.missing if row.outcome in _FAILED]


def causes_of(rows: Sequence[MissingRow]) -> list[tuple[str, int]]:
    """The last lines of the tracebacks, and how many trials have each, the most frequent first."""
    return Counter((row.traceback.strip().splitlines() or [row.reason])[-1][:_LONGEST] for row in rows).most_common()


def failure_sentence(study: Study) -> str:
    """``4 of 16 trials failed: RuntimeError: too long.``; empty where none did."""
    rows = failed_rows(study)
    if not rows:
        return ""
    causes = causes_of(rows)
    whole = len(rows) == study.planned
    trials = f"{'All ' if whole and study.planned > 1 else ''}{counted(len(rows), 'trial')}"
    if not whole:
        trials = f"{len(rows)} of {counted(study.planned, 'trial')}"
    if len(causes) == 1:
        return f"{trials} failed: {causes[0][0].rstrip('.')}."
    said = [f"{count} by {cause.rstrip('.')}" for cause, count in causes[:_MOST]]
    if more := sum(count for _, count in causes[_MOST:]):
        said.append(f"{more} by other errors")
    return f"{trials} failed: {', '.join(said)}."
