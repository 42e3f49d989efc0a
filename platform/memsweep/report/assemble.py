"""Build a report beside the old one, then put it in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from memsweep.report import ReportPaths
from memsweep.report.analysis.claims import compare_cells, compared_frame
from memsweep.report.analysis.findings import BALLS, Finding, find
from memsweep.report.analysis.gradient_alignment import AlignmentRow, alignment_frame, alignment_rows
from memsweep.report.analysis.learning_rates import RateStudy, rate_studies
from memsweep.report.analysis.losses import LossRow, loss_frame, loss_rows
from memsweep.report.analysis.published import compare, published_frame
from memsweep.report.analysis.search.searched import Searched, part_of, read_searched, scan_of
from memsweep.report.analysis.summary import MOVES
from memsweep.report.export.csv import radii_frame, verdict_frame, write_csv
from memsweep.report.export.publish import REPORT, drafted
from memsweep.report.export.search import search_frame, winners_frame
from memsweep.report.figures.alignment import alignment_along, alignment_gallery, varied
from memsweep.report.figures.error import error_gallery
from memsweep.report.figures.gradients import gradient_gallery
from memsweep.report.figures.learning_rates import rate_gallery
from memsweep.report.figures.memory import memory_gallery
from memsweep.report.figures.panels import Gallery, write_png
from memsweep.report.figures.radius import radius_gallery
from memsweep.report.figures.search.pictures import search_pictures
from memsweep.report.figures.training import training_gallery
from memsweep.report.naming.conditions import OF_A_SEARCH, find_grouping
from memsweep.report.naming.labels import Labels, field_name
from memsweep.report.page.page import Contents, Galleries, Section, render
from memsweep.report.read.study import Study, load_study
from memsweep.report.rows.alignment import alignment_sentences, order_sentences
from memsweep.report.rows.losses import shown_losses
from memsweep.report.rows.search import sentences
from memsweep.sweep.store.filesystem import Location


def build_report(place: Location) -> ReportPaths:
    """See ``memsweep.report.build``."""
    return report_on(load_study(place), place)


def report_on(study: Study, place: Location) -> ReportPaths:
    """Write the report of a study that was read from a place."""
    contents = _contents(study)
    with drafted(place) as draft:
        _write(draft.folder, contents)
    said = tuple(sentences(contents.searched)) if contents.searched is not None else ()
    rules = (
        *order_sentences(contents.losses, contents.labels, contents.rates),
        *alignment_sentences(contents.alignment, contents.labels),
    )
    return _paths(draft.final, (place / REPORT).uri, said, rules)


def _contents(study: Study) -> Contents:
    searched = read_searched(study, study.search) if study.search is not None else None
    measured = part_of(study, searched) if searched is not None else study
    ignored = searched.ignored if searched is not None else ()
    grouping = find_grouping(measured.records, measured.tables["replicas"], ignored)
    findings = find(measured, grouping)
    losses = loss_rows(measured, grouping)
    labels = Labels([row.condition for row in losses])
    rates = rate_studies(losses, labels)
    return Contents(
        study=study,
        measured=measured,
        searched=searched,
        grouping=grouping,
        labels=labels,
        findings=findings,
        comparisons=compare(study.claims, findings),
        compared=_compared(measured, searched),
        trained=losses,
        losses=shown_losses(losses, findings, rates),
        rates=rates,
        scanned=_scanned(study, searched) if searched is not None else (),
        alignment=alignment_rows(losses, measured.tables["alignment"]),
    )


def _scanned(study: Study, searched: Searched) -> Sequence[RateStudy]:
    """The curves of a search over a grid of learning rates, on the seeds of the search."""
    scan = scan_of(study, searched)
    if scan is None:
        return ()
    rows = loss_rows(scan, find_grouping(scan.records, scan.tables["replicas"], OF_A_SEARCH))
    return rate_studies(rows, Labels([row.condition for row in rows]))


def _compared(measured: Study, searched: Searched | None) -> pd.DataFrame:
    """The claims that compare cells; of a search, by what was measured anew."""
    claims = measured.claims.compare if measured.claims is not None else ()
    chosen = searched.measured if searched is not None else None
    return compared_frame(compare_cells(claims, measured.records, measured.tables, chosen))


def _write(folder: Path, contents: Contents) -> None:
    figures, extra = folder / "figures", contents.grouping.columns
    figures.mkdir()
    galleries = _galleries(contents)
    for gallery in galleries.all:
        write_png(gallery, figures)
    write_csv(verdict_frame(contents.asked, extra), folder / "verdicts.csv")
    write_csv(radii_frame(contents.findings, extra), folder / "radii.csv")
    if contents.study.claims is not None and contents.study.claims.rows:
        write_csv(published_frame(contents.comparisons, extra), folder / "published.csv")
    if contents.losses:
        write_csv(loss_frame(contents.losses, extra), folder / "losses.csv")
    if contents.alignment:
        write_csv(alignment_frame(contents.alignment, extra), folder / "alignment.csv")
    if not contents.compared.empty:
        write_csv(contents.compared, folder / "compared.csv")
    if contents.searched is not None:
        write_csv(search_frame(contents.searched), folder / "search.csv")
        write_csv(winners_frame(contents.searched), folder / "winners.csv")
    curves = contents.grouping.attach(contents.measured.tables["curves"])
    curves.to_parquet(folder / "curves.parquet", index=False)
    (folder / "index.html").write_text(render(contents, galleries), encoding="utf-8", errors="replace")


def _galleries(contents: Contents) -> Galleries:
    labels, tables = contents.labels, contents.measured.tables
    sections = []
    for ball in BALLS:
        part = [finding for finding in contents.findings if finding.ball == ball]
        if part:
            error = error_gallery(part, labels, f"error-{ball}")
            radius = radius_gallery(_asked(part), labels, f"radius-{ball}")
            sections.append(Section(ball, MOVES[ball], error, radius))
    return Galleries(
        sections=tuple(sections),
        memory=memory_gallery(contents.findings, labels, "memory"),
        rates=rate_gallery([*contents.rates, *contents.scanned], "learning-rates"),
        training=training_gallery(_trained(contents), tables["history"], labels, "training"),
        gradients=gradient_gallery(contents.trained, tables["memory"], labels, "gradients"),
        alignment=alignment_gallery(contents.alignment, labels, "alignment"),
        along=tuple(_along(contents.alignment, labels)),
        search=search_pictures(contents.study, contents.searched) if contents.searched is not None else (),
    )


def _along(rows: Sequence[AlignmentRow], labels: Labels) -> Iterator[tuple[str, Gallery]]:
    """The alignment against each number of the model that the study varies, and the field's name."""
    for field in varied(rows):
        file = re.sub(r"\W+", "-", field.removeprefix("model."))  # a name, whatever a stored config calls its fields
        yield field_name(field), alignment_along(rows, labels, field, f"alignment-{file}")


def _trained(contents: Contents) -> Sequence[LossRow]:
    """The rows whose training is drawn: where the loss is the answer, and no curve over learning rates tells more."""
    return [] if contents.asked or contents.rates else contents.losses


def _asked(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.asked]


def _paths(report: Path, uri: str, said: tuple[str, ...], rules: tuple[str, ...]) -> ReportPaths:
    names = ("published", "losses", "alignment", "search", "winners", "compared")
    optional = {name: path for name in names if (path := report / f"{name}.csv").exists()}
    return ReportPaths(
        folder=report,
        uri=uri,
        page=report / "index.html",
        verdicts=report / "verdicts.csv",
        radii=report / "radii.csv",
        curves=report / "curves.parquet",
        figures=tuple(sorted((report / "figures").glob("*.png"))),
        said=said,
        rules=rules,
        **optional,
    )
