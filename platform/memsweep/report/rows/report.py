"""All tables of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.rows import bits, capacity, cells, claims, losses, provenance, published, search, verdicts
from memsweep.report.rows.table import Table


@dataclass(frozen=True)
class Tables:
    """The tables that page, terminal and CSV files show; those of something that a study lacks have no rows.

    Attributes:
        overviews, published: one per ball.
        winners: None for a study that searches nothing.
        ranking: the losses at the largest sizes, the best first.
        across: the same with a row for each model and a column for each task; without rows where there are few.
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
    bits: Table[Any]
    formats: Table[Any]
    capacity: Table[Any]
    worst_inputs: Table[Any]
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
    bits_table = bits.bits_table(contents.bits, names, labels)
    formats_table = bits.formats_table(contents.formats, names, labels)
    capacity_table = capacity.capacity_table(contents.sizes, names, labels)
    worst_inputs = capacity.worst_inputs_table(contents.worst_inputs, names, labels)
    cell_table = cells.cell_table(contents)
    rate_rule = losses.rule_table(contents.rate_rules, names, labels)
    growth = capacity.growth_table(contents.growth, names, labels)
    searched = contents.searched
    winners = search.winner_table(searched) if searched is not None else None
    several = max((sum(f.ball == ball for f in judged) for ball in {f.ball for f in judged}), default=0)
    across = losses.across_table(contents.losses, labels)
    optional = (
        across,
        slopes,
        bits_table,
        formats_table,
        capacity_table,
        worst_inputs,
        cell_table,
        rate_rule,
        growth,
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
        bits=bits_table,
        formats=formats_table,
        capacity=capacity_table,
        worst_inputs=worst_inputs,
        cells=cell_table,
        rate_rule=rate_rule,
        growth=growth,
        winners=winners,
        missing=provenance.missing_table(contents.study),
        unusual=provenance.unusual_table(contents.measured),
        exported=(
            verdict_table,
            *(table for table in optional if table.rows),
            *((search.suggestion_table(searched), winners) if searched is not None and winners is not None else ()),
        ),
    )
