"""All tables of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.summary import answers
from memsweep.report.rows import claims, losses, provenance, published, search, verdicts
from memsweep.report.rows.table import Table


@dataclass(frozen=True)
class Tables:
    """The tables that page, terminal and CSV files show; those of something that a study lacks have no rows.

    Attributes:
        overviews, published: one per ball.
        rates: one per curve.
        exported: those that have a CSV file.
    """

    verdicts: Table[Any]
    overviews: tuple[Table[Any], ...]
    slopes: Table[Any]
    fit: Table[Any]
    losses: Table[Any]
    settings: Table[Any]
    rates: tuple[Table[Any], ...]
    alignment: Table[Any]
    published: tuple[Table[Any], ...]
    claims: Table[Any]
    winners: Table[Any] | None
    front: Table[Any] | None
    missing: Table[Any]
    unusual: Table[Any]
    trials: Table[Any]
    exported: tuple[Table[Any], ...]


def tables_of(contents: Contents) -> Tables:
    """Make the tables of a report."""
    names, labels, judged = contents.grouping.columns, contents.labels, contents.verdicts
    verdict_table = verdicts.verdict_table(judged, names, labels)
    slope_table = verdicts.slope_table(judged, names, labels)
    loss_table = losses.loss_table(contents.losses, names, labels)
    alignment_table = losses.alignment_table(contents.alignment, names, labels)
    searched = contents.searched
    winners = search.winner_table(searched) if searched is not None else None
    suggestions = search.suggestion_table(searched) if searched is not None else None
    several = max((sum(f.ball == ball for f in judged) for ball in {f.ball for f in judged}), default=0)
    optional = (
        slope_table,
        loss_table,
        alignment_table,
        published.published_export(contents.comparisons, names, labels),
    )
    return Tables(
        verdicts=verdict_table,
        overviews=tuple(verdicts.overviews(judged, labels)) if several > verdicts.MANY else (),
        slopes=slope_table,
        fit=verdicts.fit_table(judged, labels),
        losses=loss_table,
        settings=losses.settings_table(contents.losses, labels),
        rates=tuple(losses.rate_tables([*contents.rates, *contents.scanned])),
        alignment=alignment_table,
        published=tuple(published.published_tables(contents.comparisons, names, labels)),
        claims=claims.claim_table(contents.compared),
        winners=winners,
        front=search.front_table(searched) if searched is not None else None,
        missing=provenance.missing_table(contents.study),
        unusual=provenance.unusual_table(contents.measured),
        trials=provenance.trial_table(contents.study),
        exported=(
            verdict_table,
            *(table for table in optional if table.rows),
            *(table for table in (suggestions, winners) if table is not None),
        ),
    )


def answer_sentences(contents: Contents) -> list[str]:
    """The study's answer, in a few sentences."""
    sentences = answers(contents.verdicts, contents.labels, finished=bool(contents.study.records))
    sentences += losses.baseline_sentences(contents.losses, contents.labels)
    sentences += losses.rule_sentences(contents.losses, contents.labels, contents.rates)
    return [*sentences, *([claims.counted(contents.compared)] if not contents.compared.empty else [])]
