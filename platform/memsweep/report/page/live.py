"""What the page says of a study that runs, beside what it says of every study."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.headline.answer import Kind, StudyAnswer, answer_of
from memsweep.report.page.grid import Grid, LiveCell, live_grids
from memsweep.report.values.section import Rank, sections_of

_UNDECIDED = "No verdict yet: a verdict needs all trials of its cell."


@dataclass(frozen=True)
class Live:
    """The state of a study that runs.

    Attributes:
        answer: of what is complete.
        progress: of ``LiveStudy``: ``words``, ``fraction`` and ``stamp``.
        every: seconds after which the browser loads the page again; 0 where it is told of news.
    """

    answer: StudyAnswer
    progress: dict[str, Any]
    grids: Sequence[Grid]
    every: int


def live_state(contents: Contents, cells: Sequence[LiveCell], progress: dict[str, Any], every: int) -> Live:
    """The state of a study with these cells, whose missing trials are those that failed."""
    failed = contents.study.missing
    ended = {*contents.study.records, *(row.identity for row in failed)}
    grids = live_grids(contents, cells, ended)
    return Live(_answer(contents, cells, ended), progress, grids, every)


def _answer(contents: Contents, cells: Sequence[LiveCell], ended: Set[str]) -> StudyAnswer:
    """The answer of the cells whose trials have all ended; what would decide the others is not known yet."""
    answer = replace(answer_of(contents), decide="", until="")
    pending = [section.pending for section in sections_of(contents) if section.pending]
    if answer.rank is Rank.TESTED and pending:
        return replace(answer, headline=pending[0])
    if answer.kind is not Kind.STABILITY:
        return replace(answer, headline=f"So far: {answer.headline}") if answer.kind is not Kind.NOTHING else answer
    over = {(cell.memory, cell.machine) for cell in cells if ended >= {*cell.trials}}
    decided = [finding for finding in contents.findings if contents.labels.names(finding.condition) in over]
    if not any(finding.needs_verdict for finding in decided):
        return replace(answer, headline=_UNDECIDED)
    return replace(answer, headline=f"So far: {answer_of(replace(contents, findings=decided)).headline}")
