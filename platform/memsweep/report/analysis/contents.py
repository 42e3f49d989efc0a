"""Everything that a report says of a study, computed from its stored results."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from memsweep import registry
from memsweep.config.schema.search import GRID
from memsweep.report.analysis.claims import compare_cells, compared_frame
from memsweep.report.analysis.findings import Finding, judge_conditions
from memsweep.report.analysis.gradient_alignment import AlignmentRow, alignment_rows
from memsweep.report.analysis.learning_rates.curves import RateStudy, rate_studies
from memsweep.report.analysis.losses import LossRow, loss_rows
from memsweep.report.analysis.search.searched import Searched, read_searched, scan_of, winners_part
from memsweep.report.naming.conditions import ALWAYS, KERNEL, OF_A_SEARCH, Grouping, find_grouping, planned_replicas
from memsweep.report.naming.labels import Labels
from memsweep.report.read.settings import trial_table
from memsweep.report.read.study import Study
from memsweep.stability.verdict.judgement import DEFAULT, Criteria

Key = tuple[Any, ...]
"""The values of a condition's fields."""


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that a report says.

    Attributes:
        study: as its folder holds it.
        measured: its part that verdicts and losses are made from: the winners of a search, else all of it.
        searched: the search with its results; None for a study that searches nothing.
        grouping: the conditions of ``measured``.
        findings: all conditions and balls that were measured.
        compared: the tested claims that compare cells, of ``memsweep.report.analysis.claims.compared_frame``.
        trained: the losses of all conditions.
        losses: those among them that answer something.
        rates: the curves of a study of learning rates.
        scan: the losses of all suggestions of a search over the learning rate alone, on the seeds of the search.
        scanned: the curves of such a search over a grid.
        alignment: gradients of learning rules beside those of backpropagation through time.
        criteria: by which the findings were judged.
    """

    study: Study
    measured: Study
    searched: Searched | None
    grouping: Grouping
    labels: Labels
    findings: Sequence[Finding]
    compared: pd.DataFrame
    trained: Sequence[LossRow]
    losses: Sequence[LossRow]
    rates: Sequence[RateStudy]
    scan: Sequence[LossRow]
    scanned: Sequence[RateStudy]
    alignment: Sequence[AlignmentRow]
    criteria: Criteria = DEFAULT

    @property
    def verdicts(self) -> list[Finding]:
        """The findings that need a verdict."""
        return [finding for finding in self.findings if finding.needs_verdict]

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The settings of all trials of the plan that have a result; see ``memsweep.report.read.settings``."""
        return trial_table(self.study.records, self.study.tables["replicas"], ALWAYS)


def analyse(study: Study, criteria: Criteria = DEFAULT, *, planned: bool = False) -> Contents:
    """Compute a report's contents.

    Args:
        study: with its results.
        criteria: of the verdicts: other thresholds or another slope limit than the rule's own judge the stored results
            again; nothing is trained. Claims and searches compare radii at the rule's own smallest threshold.
        planned: conditions are told apart, and named, by the whole plan, not by what has finished of it; of a search,
            whose trials are not planned, by what has finished.
    """
    searched = read_searched(study, study.search) if study.search is not None else None
    measured = winners_part(study, searched) if searched is not None else study
    ignored = searched.ignored if searched is not None else ()
    planned = planned and searched is None
    known = {name: {"config": config} for name, config in study.rows.items()} if planned else measured.records
    replicas = planned_replicas(study.rows) if planned else measured.tables["replicas"]
    grouping = find_grouping(known, replicas, ignored)
    findings = judge_conditions(measured, grouping, criteria)
    trained = loss_rows(measured, grouping)
    labels = Labels([*grouping.conditions.values()] if planned else [row.condition for row in trained])
    rates = rate_studies(trained, labels)
    scan = _scan(study, searched) if searched is not None else []
    grid = searched is not None and searched.history.algorithm == GRID
    return Contents(
        study=study,
        measured=measured,
        searched=searched,
        grouping=grouping,
        labels=labels,
        findings=findings,
        compared=_compared(measured, searched),
        trained=trained,
        losses=_answering(trained, findings, _measured(measured, grouping), rates),
        rates=rates,
        scan=scan,
        scanned=rate_studies(scan, Labels([row.condition for row in scan])) if grid else (),
        alignment=alignment_rows(trained, measured),
        criteria=criteria,
    )


def _answering(
    rows: Sequence[LossRow], findings: Sequence[Finding], measured: Set[Key], rates: Sequence[RateStudy]
) -> list[LossRow]:
    """The losses of tasks without a kernel or with a metric, and of conditions without a verdict or another answer.

    All of them where the study is one of learning rates.
    """
    judged = {finding.key for finding in findings if finding.needs_verdict} | measured
    return [
        row
        for row in rows
        if rates or row.condition.get(KERNEL) is None or row.metric or tuple(row.condition.values()) not in judged
    ]


def _measured(study: Study, grouping: Grouping) -> set[Key]:
    """The conditions that a measure answers by curves of errors."""
    measures = (registry.get(registry.MEASURE, name) for name in registry.names(registry.MEASURE))
    names = {curve for measure in measures for curve in measure.answering}
    found = set()
    for condition, identities in grouping.members():
        curves = study.of("curves", identities)
        if len(curves[curves["ball"].isin(names)].dropna(subset=["width", "horizon"])):
            found.add(tuple(condition.values()))
    return found


def _scan(study: Study, searched: Searched) -> list[LossRow]:
    """All suggestions of a search over the learning rate alone, on the seeds of the search."""
    scan = scan_of(study, searched)
    if scan is None:
        return []
    return loss_rows(scan, find_grouping(scan.records, scan.tables["replicas"], OF_A_SEARCH))


def _compared(measured: Study, searched: Searched | None) -> pd.DataFrame:
    """The claims that compare cells; those of a search are tested on its retrained winners."""
    claims = measured.claims.compare if measured.claims is not None else ()
    chosen = searched.measured if searched is not None else None
    return compared_frame(compare_cells(claims, measured.records, measured.tables, chosen) if claims else ())
