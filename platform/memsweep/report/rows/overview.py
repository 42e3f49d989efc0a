"""Verdicts at a glance, for studies of many conditions: machines by family down, memories across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memsweep.report.analysis.bounds import EXPLANATIONS
from memsweep.report.analysis.findings import BALLS, Finding
from memsweep.report.analysis.summary import MOVES
from memsweep.report.naming.labels import Labels
from memsweep.report.style import slope_text

MANY = 12
"""Verdicts of one ball that can be read as a plain list."""


@dataclass(frozen=True)
class Cell:
    """One verdict and the slope that it rests on.

    Attributes:
        along: ``horizon`` or ``width``, what the slope is against.
        bound: in words, why the errors are lower bounds; empty where they are not.
    """

    verdict: str
    explanation: str
    along: str
    slope: str
    limited: bool
    bound: str


@dataclass(frozen=True)
class Line:
    """A machine: its place in the family, and a cell per ball and memory (None: no such trial)."""

    member: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Overview:
    """All verdicts of a study.

    Attributes:
        balls: which weights move, in words.
        memories: within each ball, from left to right.
        families: (name, machines); the name is empty where the machine says it all.
    """

    balls: tuple[str, ...]
    memories: tuple[str, ...]
    families: tuple[tuple[str, tuple[Line, ...]], ...]


def cell(finding: Finding) -> Cell:
    """A finding in short."""
    judgement = finding.judgement
    along, slope = finding.deciding
    return Cell(
        verdict=judgement.verdict.value,
        explanation=judgement.verdict.explanation,
        along=along,
        slope=slope_text(slope),
        limited=judgement.horizon_limited,
        bound=EXPLANATIONS.get(finding.bound, ""),
    )


def overview(findings: Sequence[Finding], labels: Labels) -> Overview | None:
    """The verdicts side by side; None for a study whose verdicts are few enough to list."""
    by_ball = {ball: [finding for finding in findings if finding.ball == ball] for ball in BALLS}
    balls = [ball for ball in BALLS if by_ball[ball]]
    if max(map(len, by_ball.values())) <= MANY:
        return None
    memories = tuple(dict.fromkeys(labels.memory(finding.condition) for finding in findings))
    found = {(labels.machine(f.condition), f.ball, labels.memory(f.condition)): cell(f) for f in findings}

    def line(machine: str, member: str) -> Line:
        return Line(member, tuple(found.get((machine, ball, memory)) for ball in balls for memory in memories))

    families = tuple(
        (heading, tuple(line(machine, member) for machine, member in members))
        for heading, members in labels.families(finding.condition for finding in findings)
    )
    return Overview(tuple(MOVES[ball] for ball in balls), memories, families)
