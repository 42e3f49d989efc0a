"""The grids of the first screen: memories and machines, whichever are fewer across; one grid per ball.

A cell holds a verdict. While the study runs it holds how many of its trials have ended, until all have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.bounds import MARK
from memsweep.report.analysis.contents import BALLS, Contents, Finding
from memsweep.report.charts.radius import deciding_threshold
from memsweep.report.naming.conditions import KERNEL, SIZES, Labels
from memsweep.report.naming.numbers import number, percent
from memsweep.report.read.fields import fields_of
from memsweep.report.rows.verdicts import LETTERS, SIGNS, moving
from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.trend import Slope

_ACROSS = 4  # machines that find room side by side


@dataclass(frozen=True)
class GridCell:
    """A verdict: its number among the findings, and how it is written.

    Attributes:
        index: number of the finding; of a cell with a count, its number among ``live_cells``.
        word: the verdict; of a cell with a count ``waiting`` or ``ended``.
        mark: the sign of a search that fell short.
        power: exponent of the radius in ``letter`` (T: horizon, m: width); empty without a slope.
        at: the error limit at which it was measured, where that is not the figure's.
        count: while the study runs, how many trials have ended; empty where there is a verdict.
    """

    index: int
    word: str
    sign: str
    mark: str
    letter: str
    power: str
    at: str = ""
    count: str = ""


@dataclass(frozen=True)
class LiveCell:
    """The trials of one condition of a study that runs.

    Attributes:
        memory, machine: its row and column.
        trials: identities.
        balls: in which it gets a verdict; empty where it gets none.
    """

    memory: str
    machine: str
    trials: Sequence[str]
    balls: Sequence[str] = ()

    def text(self, ended: Set[str]) -> str:
        """``17 of 20``; with a mark where all have ended."""
        count = sum(trial in ended for trial in self.trials)
        return f"{count} of {len(self.trials)}{' ✓' if count == len(self.trials) else ''}"


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
    marked: bool


def grids(findings: Sequence[Finding], labels: Labels) -> list[Grid]:
    """The grids of all balls that were measured, the smallest first.

    Args:
        findings: those that need a verdict, in the order in which the page numbers them.
        labels: of the study.
    """
    return [_grid(ball, findings, labels) for ball in BALLS if any(f.ball == ball for f in findings)]


def live_cells(contents: Contents) -> list[LiveCell]:
    """The cells of a study that runs, all of its plan; of a search those of its grid, with the trials so far."""
    if contents.searched is not None:
        history, cells = contents.searched.history, contents.searched.cells
        trials: dict[int, list[str]] = {cell: [] for cell in range(len(history.cells))}
        for member in history.suggestions:
            trials[member.cell] += [row.identity for row in member.trials]
        for (cell, _), identity in history.confirmed.items():
            trials[cell].append(identity)
        return [LiveCell(cells.picture(cell), cells.shade_name(cell), names) for cell, names in trials.items()]
    members: dict[tuple[Any, ...], list[str]] = {}
    for identity, condition in contents.grouping.conditions.items():
        members.setdefault(tuple(condition.values()), []).append(identity)
    found = []
    for names in members.values():
        condition, config = contents.grouping.conditions[names[0]], contents.study.rows[names[0]]
        sizes = {tuple(fields_of(contents.study.rows[name]).get(path) for path in SIZES.values()) for name in names}
        asked = condition.get(KERNEL) is not None or len(sizes) > 1
        balls = [ball for ball in BALLS if asked and ball in config["perturbation"]["balls"]]
        found.append(LiveCell(*contents.labels.names(condition), names, balls))
    return found


def live_grids(contents: Contents, cells: Sequence[LiveCell], ended: Set[str]) -> list[Grid]:
    """The grids of a study that runs.

    Args:
        contents: what its finished trials say.
        cells: of ``live_cells``.
        ended: identities of the trials with a result, and of those that failed.
    """
    labels, searched = contents.labels, contents.searched
    families = None if searched is not None else labels.families(contents.grouping.conditions.values())
    findings, found = contents.verdicts, list[Grid]()
    shown_at = {ball: deciding_threshold([f for f in findings if f.ball == ball]) for ball in BALLS}
    verdicts = {(f.ball, *labels.names(f.condition)): _cell(i, f, shown_at[f.ball]) for i, f in enumerate(findings)}
    for ball in BALLS if any(cell.balls for cell in cells) else ("",):
        shown: dict[tuple[str, str], GridCell] = {}
        for place, cell in enumerate(cells):
            key, over = (cell.memory, cell.machine), searched is None and ended >= {*cell.trials}
            count = GridCell(place, "ended" if over else "waiting", "", "", "", "", count=cell.text(ended))
            if ball in (cell.balls or ("",)):
                shown[key] = verdicts.get((ball, *key), count) if over else count
        if shown:
            found.append(_layout(ball, shown, families, marked=any(cell.mark for cell in shown.values())))
    return found


def _grid(ball: str, findings: Sequence[Finding], labels: Labels) -> Grid:
    part = [(index, finding) for index, finding in enumerate(findings) if finding.ball == ball]
    threshold = deciding_threshold([finding for _, finding in part])
    cells = {(labels.memory(f.condition), labels.machine(f.condition)): _cell(i, f, threshold) for i, f in part}
    families = labels.families(finding.condition for _, finding in part)
    return _layout(ball, cells, families, marked=any(finding.marked for _, finding in part))


def _layout(
    ball: str,
    cells: Mapping[tuple[str, str], GridCell],
    families: Sequence[tuple[str, Sequence[tuple[str, str]]]] | None,
    *,
    marked: bool,
) -> Grid:
    """The grid of cells by memory and machine; ``families`` None: of a search, whose cells stand alone."""
    memories = [*dict.fromkeys(memory for memory, _ in cells)]
    corner = "cell" if families is None else "memory"
    families = families or [("", [(machine, machine) for machine in dict.fromkeys(name for _, name in cells)])]
    machines = [machine for _, members in families for machine, _ in members]
    title = moving(ball) if ball else "trials that have ended"
    if len(machines) <= _ACROSS and len(memories) <= 2 * _ACROSS:
        rows = [(memory, [cells.get((memory, machine)) for machine in machines]) for memory in memories]
        return Grid(ball, title, corner, machines, {"": rows}, True, marked)
    return Grid(ball, title, "under", memories, _by_family(cells, memories, families), False, marked)


def _by_family(
    cells: Mapping[tuple[str, str], GridCell],
    memories: Sequence[str],
    families: Sequence[tuple[str, Sequence[tuple[str, str]]]],
) -> dict[str, list[tuple[str, list[GridCell | None]]]]:
    """The heading of each family -> a row for each of its machines, with a cell for each memory."""
    groups: dict[str, list[tuple[str, list[GridCell | None]]]] = {}
    for family, members in families:
        for machine, member in members:
            row = (member, [cells.get((memory, machine)) for memory in memories])
            groups.setdefault(family, []).append(row)
    return groups


def _cell(index: int, finding: Finding, threshold: float) -> GridCell:
    word, (axis, slope, at) = finding.judgement.verdict.value, _slope(finding, threshold)
    power = number(slope.estimate) if slope.available else ""
    power, where = "0" if power == "0.00" else power, f" at {percent(at)}" if at != threshold else ""
    mark = MARK if finding.marked else ""
    return GridCell(index, word, SIGNS[word], mark, LETTERS[axis], power, where)


def _slope(finding: Finding, threshold: float) -> tuple[str, Slope, float]:
    """The slope that a cell shows, its axis and its error limit.

    All slopes of a stable radius are within the limit, so that stable cells can show the same one: in the horizon, at
    the error limit of the figure. Any other verdict shows the slope that it was reached by.
    """
    judgement = finding.judgement
    of_figure = judgement.by_threshold[threshold].horizon.limit
    if judgement.verdict is Verdict.STABLE and of_figure.available:
        return "horizon", of_figure, threshold
    return *finding.deciding, judgement.threshold
