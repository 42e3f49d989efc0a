"""All tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.rows import cells, losses, provenance, search, verdicts
from memsweep.report.values.section import Place, Section, placed, sections_of
from memsweep.report.values.table import CSV, Table


@dataclass(frozen=True)
class Tables:
    """The tables that page, terminal and CSV files show; those of something that a study lacks have no rows.

    Attributes:
        overviews: one per ball.
        winners: None for a study that searches nothing.
        ranking: the losses at the largest sizes, the best first.
        across: the same with a row for each model and a column for each task; without rows where there are few.
        sections: of the measures that were asked for, and of the analyses that have something to say.
        cells: all that was measured of a condition in one line; without rows where little was.
        exported: those that have a CSV file.
    """

    verdicts: Table[Any]
    overviews: tuple[Table[Any], ...]
    slopes: Table[Any]
    losses: Table[Any]
    ranking: Table[Any]
    across: Table[Any]
    alignment: Table[Any]
    sections: tuple[Section, ...]
    cells: Table[Any]
    winners: Table[Any] | None
    missing: Table[Any]
    unusual: Table[Any]
    exported: tuple[Table[Any], ...]

    @property
    def named(self) -> dict[str, Table[Any]]:
        """The tables that can be asked for one by one, those without rows left out."""
        return {table.name: table for table in self.exported if table.rows}


def tables_of(contents: Contents) -> Tables:
    """Make the tables of a report."""
    names, labels, judged = contents.grouping.columns, contents.labels, contents.verdicts
    verdict_table = verdicts.verdict_table(judged, names, labels, contents.study)
    slopes = verdicts.slope_table(judged, names, labels)
    loss_table = losses.loss_table(contents.losses, names, labels)
    alignment = losses.alignment_table(contents.alignment, names, labels)
    sections = sections_of(contents)
    cell_table = cells.cell_table(contents, [glance for section in sections for glance in section.glance])
    searched = contents.searched
    winners = search.winner_table(searched) if searched is not None else None
    several = max((sum(f.ball == ball for f in judged) for ball in {f.ball for f in judged}), default=0)
    across = losses.across_table(contents.losses, labels)
    optional: tuple[Table[Any], ...] = (
        across,
        slopes,
        *_of(sections, Place.MEASURED),
        cell_table,
        *_of(sections, Place.COMPARED),
        loss_table,
        *_of(sections, Place.TRAINED),
        alignment,
        *_of(sections, Place.LAST),
    )
    return Tables(
        verdicts=verdict_table,
        overviews=tuple(verdicts.overviews(judged, labels)) if several > verdicts.MANY else (),
        slopes=slopes,
        losses=loss_table,
        ranking=losses.ranking_table(contents.losses, names, labels),
        across=across,
        alignment=alignment,
        sections=tuple(sections),
        cells=cell_table,
        winners=winners,
        missing=provenance.missing_table(contents.study),
        unusual=provenance.unusual_table(contents.measured),
        exported=(
            verdict_table,
            *(table for table in optional if table.rows),
            *((search.suggestion_table(searched), winners) if searched is not None and winners is not None else ()),
            *_of(sections, Place.FIRST),
        ),
    )


def _of(sections: Sequence[Section], place: Place) -> list[Table[Any]]:
    """The tables of the sections at a place among the files."""
    return [section.table for section in placed(sections, CSV, place) if section.table is not None]
