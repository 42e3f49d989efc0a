"""All that was measured of each condition, at its longest horizon and largest width, in one line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import BALLS, Finding
from memsweep.report.analysis.losses import LossRow, Spread, by_accuracy, largest
from memsweep.report.analysis.summary import MOVES
from memsweep.report.naming.numbers import percent
from memsweep.report.rows.verdicts import short_verdict_cell
from memsweep.report.values.section import Glance, Section
from memsweep.report.values.table import (
    EXPORTED,
    NOTHING,
    PAGE,
    Cell,
    Column,
    Table,
    condition_columns,
    spread_cell,
    spread_text,
)
from memsweep.stability.verdict.radius import THRESHOLD

_MEANS = (
    "Each line is one condition at its longest horizon and largest width; medians over seeds [least, most]. Error: of "
    f"the zero predictor's loss L₀. Radius, bits: at an error of {percent(THRESHOLD)} of L₀."
)
_LEAST = 2
"""Kinds of measurements beside the loss from which on the line of a condition says more than their own tables."""


@dataclass(frozen=True, eq=False)
class CellRow:
    """A condition with what was measured of it.

    Attributes:
        loss: at its largest size.
        findings: by ball.
        glances: numbers of the measures, by key; nan: not measured.
        kinds: how many kinds of measurements there are beside the loss.
        seconds: of training, for each step of each seed; nan: not known.
    """

    loss: LossRow
    findings: dict[str, Finding]
    glances: dict[str, Spread]
    kinds: int
    seconds: float

    def radius(self, ball: str) -> Spread:
        """At ``THRESHOLD`` and the largest size, over the seeds that fit; nan without one."""
        if (finding := self.findings.get(ball)) is None:
            return Spread.of([])
        radii = finding.radii[finding.radii["valid"].astype(bool) & (finding.radii["threshold"] == THRESHOLD)]
        longest = radii[radii["horizon"] == radii["horizon"].max()]
        return Spread.of(longest.loc[longest["width"] == longest["width"].max(), "radius"])


def cells_mean(sections: Sequence[Section]) -> str:
    """What the numbers of the table are."""
    words = (glance.words for section in sections for glance in section.glance)
    return " ".join([_MEANS, *filter(None, words)])


def cell_table(contents: Contents, glances: Sequence[Glance]) -> Table[CellRow]:
    """A line for each condition; without lines where its other tables say all that there is."""
    rows = [*_rows(contents, glances)]
    rows = rows if max((row.kinds for row in rows), default=0) >= _LEAST else []
    names, labels = contents.grouping.columns, contents.labels
    balls = [ball for ball in BALLS if any(ball in row.findings for row in rows)]
    columns: list[Column[CellRow]] = [
        *condition_columns(names, labels, lambda row: row.loss.condition),
        Column("width", lambda row: row.loss.width, varies=True),
        Column("horizon", lambda row: row.loss.horizon, varies=True),
        Column("error", _error, cell=_error_cell, ends=True, unit="of L₀"),
        Column("accuracy", _accuracy, cell=_accuracy_cell, ends=True, optional=True),
        *(column for ball in balls for column in _of_ball(ball)),
        *([Column("rule_version", _rule_version, views=EXPORTED)] if balls else []),
        *map(_of_glance, glances),
        # of one run on one machine: no number of the study, so no CSV file has it
        Column("time a step", lambda row: row.seconds, _milliseconds, views=frozenset({PAGE}), optional=True),
    ]
    return Table("cells", "Cells at a glance", rows, columns)


def _rows(contents: Contents, glances: Sequence[Glance]) -> Iterator[CellRow]:
    findings = {(finding.key, finding.ball): finding for finding in contents.verdicts}
    for row in largest(contents.trained):
        key = tuple(row.condition.values())
        own = {ball: finding for (of, ball), finding in findings.items() if of == key}
        yield CellRow(
            loss=row,
            findings=own,
            glances={glance.key: glance.value(row) for glance in glances},
            kinds=bool(own) + len({glance.kind or glance.key for glance in glances if _is_measured(glance, row)}),
            seconds=_seconds(contents, row),
        )


def _seconds(contents: Contents, row: LossRow) -> float:
    """Seconds of training a step and seed, by the records; each trial of a pack has its share of the pack's time."""
    records = [contents.measured.records[identity] for identity in row.identities]
    times = [
        (record["provenance"].get("phases") or {}).get("training", math.nan) / record["provenance"].get("members", 1)
        for record in records
    ]
    steps = float(row.column("steps").sum())
    return sum(times) / steps if steps else math.nan


def _of_ball(ball: str) -> Iterator[Column[CellRow]]:
    yield Column(
        f"verdict when {MOVES[ball]}",
        lambda row: str(row.findings[ball].judgement.verdict) if ball in row.findings else None,
        cell=lambda row: short_verdict_cell(row.findings[ball]) if ball in row.findings else Cell(NOTHING),
        key=f"verdict_{ball}",
    )
    yield Column(
        f"radius when {MOVES[ball]}", lambda row: row.radius(ball), _or_nothing, key=f"radius_{ball}", ends=True
    )


def _rule_version(row: CellRow) -> int | None:
    return max((finding.judgement.rule_version for finding in row.findings.values()), default=None)


def _is_measured(glance: Glance, row: LossRow) -> bool:
    return not math.isnan(glance.value(row).middle) if glance.is_measured is None else glance.is_measured(row)


def _of_glance(glance: Glance) -> Column[CellRow]:
    write = glance.cell
    return Column(
        glance.name,
        lambda row: row.glances[glance.key],
        cell=lambda row: spread_cell(row.glances[glance.key]) if write is None else write(row.loss),
        key=glance.key,
        ends=True,
        optional=glance.optional,
        unit=glance.unit,
    )


def _error(row: CellRow) -> Spread:
    zero, loss = row.loss.zero_loss, row.loss.loss
    return Spread(loss.middle / zero, loss.low / zero, loss.high / zero) if zero > 0 else Spread.of([])


def _error_cell(row: CellRow) -> Cell:
    return spread_cell(_error(row), percent)


def _accuracy(row: CellRow) -> Spread:
    return row.loss.value if by_accuracy(row.loss) else Spread.of([])


def _accuracy_cell(row: CellRow) -> Cell:
    return Cell(_or_nothing(_accuracy(row)))


def _or_nothing(spread: Spread) -> str:
    return NOTHING if math.isnan(spread.middle) else spread_text(spread, 2)


def _milliseconds(seconds: float) -> str:
    return NOTHING if math.isnan(seconds) else f"{1000 * seconds:.2g} ms"
