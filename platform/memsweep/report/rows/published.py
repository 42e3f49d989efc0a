"""The published table as the plain rows that the page's template prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memsweep.report.analysis.findings import BALLS
from memsweep.report.analysis.published import ClaimedVerdict, counted
from memsweep.report.analysis.summary import MOVES
from memsweep.report.naming.labels import Labels
from memsweep.report.read.study import Study
from memsweep.report.rows.overview import Cell, cell


@dataclass(frozen=True)
class PublishedCell:
    """Our verdict beside the claim; ``memory`` says which one where a kernel has several."""

    memory: str
    ours: Cell
    agreement: str


@dataclass(frozen=True)
class PublishedRow:
    """A row of the published table.

    Attributes:
        claimed: per kernel, what was claimed; empty where the row claims nothing.
        lines: machine -> per kernel, our verdicts.
    """

    name: str
    claimed: tuple[str, ...]
    lines: tuple[tuple[str, tuple[tuple[PublishedCell, ...], ...]], ...]


@dataclass(frozen=True)
class PublishedTable:
    """The published table beside the verdicts of one ball."""

    ball: str
    moves: str
    kernels: tuple[str, ...]
    counts: str
    rows: tuple[PublishedRow, ...]


def published_tables(study: Study, comparisons: Sequence[ClaimedVerdict], labels: Labels) -> list[PublishedTable]:
    """One table per ball that was measured; none for a study without claims."""
    if study.claims is None:
        return []
    measured = {comparison.finding.ball for comparison in comparisons if comparison.finding is not None}
    tables = []
    for ball in (ball for ball in BALLS if ball in measured):
        mine = [c for c in comparisons if c.finding is None or c.finding.ball == ball]
        kernels = study.claims.kernels
        rows = tuple(
            PublishedRow(
                name=claim.name,
                claimed=tuple(claim.verdicts.get(kernel, "") for kernel in kernels),
                lines=_lines([c for c in mine if c.claim is claim], kernels, labels),
            )
            for claim in study.claims.rows
        )
        tables.append(
            PublishedTable(ball, MOVES[ball], kernels, counted([comparison.agreement for comparison in mine]), rows)
        )
    return tables


def _lines(
    comparisons: Sequence[ClaimedVerdict], kernels: Sequence[str], labels: Labels
) -> tuple[tuple[str, tuple[tuple[PublishedCell, ...], ...]], ...]:
    by_machine: dict[str, dict[str, list[PublishedCell]]] = {}
    for comparison in comparisons:
        if (finding := comparison.finding) is None:
            continue
        memory = labels.memory(finding.condition)
        one = PublishedCell("" if memory == comparison.kernel else memory, cell(finding), comparison.agreement.value)
        by_kernel = by_machine.setdefault(labels.machine(finding.condition), {})
        by_kernel.setdefault(comparison.kernel, []).append(one)
    return tuple((m, tuple(tuple(found.get(k, ())) for k in kernels)) for m, found in by_machine.items())
