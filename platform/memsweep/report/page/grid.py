"""The grids of verdicts on the first screen: memories and machines, whichever are fewer across; one grid per ball."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memsweep.report.analysis.bounds import MARK
from memsweep.report.analysis.findings import BALLS, Finding
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import number
from memsweep.report.rows.verdicts import LETTERS, SIGNS, moving

_ACROSS = 4  # machines that find room side by side


@dataclass(frozen=True)
class GridCell:
    """A verdict: its number among the findings, and how it is written.

    Attributes:
        mark: whether it rests on lower bounds of the error.
        power: exponent of the radius in ``letter`` (T: horizon, m: width); empty without a slope.
    """

    index: int
    word: str
    sign: str
    mark: str
    letter: str
    power: str


@dataclass(frozen=True)
class Grid:
    """The verdicts of one ball.

    Attributes:
        corner: what the rows are.
        columns: headings.
        groups: heading -> rows: name and cells, None where there is no such condition.
        wide: whether a cell has a line of its own for the slope.
    """

    ball: str
    title: str
    corner: str
    columns: Sequence[str]
    groups: Mapping[str, Sequence[tuple[str, Sequence[GridCell | None]]]]
    wide: bool
    bound: bool


def grids(findings: Sequence[Finding], labels: Labels) -> list[Grid]:
    """The grids of all balls that were measured, the smallest first.

    Args:
        findings: those that need a verdict, in the order in which the page numbers them.
        labels: of the study.
    """
    return [_grid(ball, findings, labels) for ball in BALLS if any(f.ball == ball for f in findings)]


def _grid(ball: str, findings: Sequence[Finding], labels: Labels) -> Grid:
    part = [(index, finding) for index, finding in enumerate(findings) if finding.ball == ball]
    cells = {(labels.memory(f.condition), labels.machine(f.condition)): _cell(i, f) for i, f in part}
    memories = [*dict.fromkeys(memory for memory, _ in cells)]
    families = labels.families(finding.condition for _, finding in part)
    machines = [machine for _, members in families for machine, _ in members]
    bound = any(finding.bound for _, finding in part)
    if len(machines) <= _ACROSS and len(memories) <= 2 * _ACROSS:
        rows = [(memory, [cells.get((memory, machine)) for machine in machines]) for memory in memories]
        return Grid(ball, moving(ball), "memory", machines, {"": rows}, True, bound)
    groups: dict[str, list[tuple[str, list[GridCell | None]]]] = {}
    for family, members in families:
        for machine, member in members:
            row = (member, [cells.get((memory, machine)) for memory in memories])
            groups.setdefault(family, []).append(row)
    return Grid(ball, moving(ball), "under", memories, groups, False, bound)


def _cell(index: int, finding: Finding) -> GridCell:
    word, (axis, slope) = finding.judgement.verdict.value, finding.deciding
    power = number(slope.estimate) if slope.available else ""
    mark = MARK if finding.bound else ""
    return GridCell(index, word, SIGNS[word], mark, LETTERS[axis], "0" if power == "0.00" else power)
