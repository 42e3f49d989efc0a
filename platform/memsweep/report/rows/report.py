"""All tables of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.rows import cells, claims, growth, losses, provenance, published, search, verdicts
from memsweep.report.values.section import Section, sections_of
from memsweep.report.values.table import Table


@dataclass(frozen=True)
class Tables:
    """The tables that page, terminal and CSV files show; those of something that a study lacks have no rows.

    Attributes:
        overviews, published: one per ball.
        winners: None for a study that searches nothing.
        ranking: the losses at the largest sizes, the best first.
        across: the same with a row for each model and a column for each task; without rows where there are few.
        sections: of the measures that were asked for.
        cells: all that was measured of a condition in one line; without rows where little was.
        exported: those that have a CSV file.
    """

    verdicts: Table[Any]
    overviews: tuple[Table[Any], ...]
    slopes: Table[Any]
    losses: Table[Any]
    ranking: Table[Any]
    across: Table[Any]
    ceilings: Table[Any]
    alignment: Table[Any]
    published: tuple[Table[Any], ...]
    claims: Table[Any]
    sections: tuple[Section, ...]
    cells: Table[Any]
    rate_rule: Table[Any]
    growth: Table[Any]
    winners: Table[Any] | None
    missing: Table[Any]
    unusual: Table[Any]
    exported: tuple[Table[Any], ...]

    @property
    def named(self) -> dict[str, Table[Any]]:
        """The tables that can be asked for one by one, those without rows left out."""
        tables = (*self.exported, self.claims)
        return {table.name: table for table in tables if table.rows}


def tables_of(contents: Contents) -> Tables:
    """Make the tables of a report."""
    names, labels, judged = contents.grouping.columns, contents.labels, contents.verdicts
    verdict_table = verdicts.verdict_table(judged, names, labels, contents.study)
    slopes = verdicts.slope_table(judged, names, labels)
    loss_table = losses.loss_table(contents.losses, names, labels)
    ceilings = losses.ceiling_table(contents.ceilings, names, labels)
    alignment = losses.alignment_table(contents.alignment, names, labels)
    sections = sections_of(contents)
    cell_table = cells.cell_table(contents, [glance for section in sections for glance in section.glance])
    rate_rule = losses.rule_table(contents.rate_rules, names, labels)
    growth_table = growth.growth_table(contents.growth, names, labels)
    searched = contents.searched
    winners = search.winner_table(searched) if searched is not None else None
    several = max((sum(f.ball == ball for f in judged) for ball in {f.ball for f in judged}), default=0)
    across = losses.across_table(contents.losses, labels)
    optional: tuple[Table[Any], ...] = (
        across,
        slopes,
        *(section.table for section in sections if section.table is not None),
        cell_table,
        rate_rule,
        growth_table,
        loss_table,
        ceilings,
        alignment,
        published.published_export(contents.comparisons, names, labels),
    )
    return Tables(
        verdicts=verdict_table,
        overviews=tuple(verdicts.overviews(judged, labels)) if several > verdicts.MANY else (),
        slopes=slopes,
        losses=loss_table,
        ranking=losses.ranking_table(contents.losses, names, labels),
        across=across,
        ceilings=ceilings,
        alignment=alignment,
        published=tuple(published.published_tables(contents.comparisons, names, labels)),
        claims=claims.claim_table(contents.compared),
        sections=tuple(sections),
        cells=cell_table,
        rate_rule=rate_rule,
        growth=growth_table,
        winners=winners,
        missing=provenance.missing_table(contents.study),
        unusual=provenance.unusual_table(contents.measured),
        exported=(
            verdict_table,
            *(table for table in optional if table.rows),
            *((search.suggestion_table(searched), winners) if searched is not None and winners is not None else ()),
        ),
    )
