"""The published table beside the verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memsweep.report.analysis.findings import BALLS, Finding
from memsweep.report.analysis.published import Agreement, ClaimedVerdict, counted
from memsweep.report.naming.labels import Labels
from memsweep.report.rows.table import CSV, EXPORTED, SHOWN, Cell, Column, Table
from memsweep.report.rows.verdicts import moving, short_verdict_cell, verdict_columns

AGREEMENT_SIGNS = {"agrees": "✓", "disagrees": "✗", "undecided": "?"}
_UNMEASURED = "not measured in this study"


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
    comparisons: Sequence[ClaimedVerdict], names: Sequence[str], labels: Labels
) -> Table[ClaimedVerdict]:
    """All balls in one table: ``published.csv``."""
    return Table("published", "Published table", comparisons, _columns(names, labels))


def _columns(names: Sequence[str], labels: Labels) -> list[Column[ClaimedVerdict]]:
    return [
        Column("published", lambda row: row.claim.name, views=EXPORTED),
        Column("kernel", lambda row: row.kernel, key="claimed_kernel", once=True),
        Column("claimed", lambda row: row.claimed, cell=_claimed_cell, once=True),
        Column("under", lambda row: _of(row, lambda f: _name(f, row.kernel, labels), _UNMEASURED), views=SHOWN),
        Column("our verdict", lambda row: row.claimed, cell=_our_cell, views=SHOWN),
        Column("agreement", lambda row: row.agreement.value, cell=_agreement_cell),
        *(_verdict_column(column) for column in verdict_columns(names, labels) if CSV in column.views),
    ]


def _verdict_column(column: Column[Finding]) -> Column[ClaimedVerdict]:
    def value(row: ClaimedVerdict) -> Any:
        return _of(row, column.value, None)

    return Column(column.name, value, key=column.key, ends=column.ends, views=EXPORTED)


def _of(row: ClaimedVerdict, value: Callable[[Finding], Any], otherwise: Any) -> Any:
    return value(row.finding) if row.finding is not None else otherwise


def _name(finding: Finding, kernel: str, labels: Labels) -> str:
    """The machine, and the memory where a kernel has several."""
    machine, memory = labels.machine(finding.condition), labels.memory(finding.condition)
    return machine if memory == kernel else f"{machine}, {memory}"


def _claimed_cell(row: ClaimedVerdict) -> Cell:
    return Cell(row.claimed, tone=row.claimed)


def _our_cell(row: ClaimedVerdict) -> Cell:
    return short_verdict_cell(row.finding) if row.finding is not None else Cell("–")


def _agreement_cell(row: ClaimedVerdict) -> Cell:
    word = row.agreement.value
    tone = "" if row.agreement is Agreement.NOT_MEASURED else word
    sign = AGREEMENT_SIGNS.get(word, "–")
    return Cell(f"{sign} {word}", tone, terminal=(f"{sign} {word}", sign))
