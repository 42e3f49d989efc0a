"""The published table beside the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memsweep.analyses.claims.published import ClaimedVerdict, counted
from memsweep.report.analysis.contents import BALLS, Finding
from memsweep.report.naming.conditions import Labels
from memsweep.report.rows.verdicts import moving, short_verdict_cell, verdict_columns
from memsweep.report.values.table import CSV, EXPORTED, NOTHING, SHOWN, Cell, Column, Table

_SIGNS = {"agrees": "✓", "disagrees": "✗", "undecided": "?", "not measured": "–"}


def published_tables(
    comparisons: Sequence[ClaimedVerdict], names: Sequence[str], labels: Labels
) -> list[Table[ClaimedVerdict]]:
    """One table per ball that was measured; none for a study without claims."""
    columns = _columns(names, labels)
    tables = []
    for ball in BALLS:
        if any(c.finding is not None and c.finding.ball == ball for c in comparisons):
            rows = [c for c in comparisons if c.finding is None or c.finding.ball == ball]
            title = f"{moving(ball)} (ball: {ball}): {counted([comparison.agreement for comparison in rows])}"
            tables.append(Table("published", title, rows, columns, lambda row: row.claim.name))
    return tables


def published_export(
    comparisons: Sequence[ClaimedVerdict], names: Sequence[str], labels: Labels, *, wait: bool = False
) -> Table[ClaimedVerdict]:
    """All balls in one table: ``published.csv``; ``wait`` as of ``verdict_columns``."""
    return Table("published", "Published table", comparisons, _columns(names, labels, wait=wait))


def _columns(names: Sequence[str], labels: Labels, *, wait: bool = False) -> list[Column[ClaimedVerdict]]:
    def under(row: ClaimedVerdict) -> str:
        """The machine, and the memory where a kernel has several."""
        if row.finding is None:
            return "not measured in this study"
        machine, memory = labels.machine(row.finding.condition), labels.memory(row.finding.condition)
        return machine if memory == row.kernel else f"{machine}, {memory}"

    return [
        Column("published", lambda row: row.claim.name, views=EXPORTED),
        Column("kernel", lambda row: row.kernel, key="claimed_kernel"),
        Column("claimed", lambda row: row.claimed, cell=lambda row: Cell(row.claimed, row.claimed)),
        Column("under", under, views=SHOWN),
        Column("our verdict", lambda row: row.claimed, cell=_our_cell, views=SHOWN),
        Column("agreement", lambda row: row.agreement.value, cell=_agreement_cell),
        *(_verdict_column(column) for column in verdict_columns(names, labels, wait=wait) if CSV in column.views),
    ]


def _verdict_column(column: Column[Finding]) -> Column[ClaimedVerdict]:
    def value(row: ClaimedVerdict) -> Any:
        return column.value(row.finding) if row.finding is not None else None

    return Column(column.name, value, key=column.key, ends=column.ends, views=EXPORTED)


def _our_cell(row: ClaimedVerdict) -> Cell:
    return short_verdict_cell(row.finding) if row.finding is not None else Cell(NOTHING)


def _agreement_cell(row: ClaimedVerdict) -> Cell:
    word = row.agreement.value
    return Cell(f"{_SIGNS[word]} {word}", word if row.finding is not None else "", shorter=(_SIGNS[word],))
