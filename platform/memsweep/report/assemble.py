"""Build a report beside the old one, then put it in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from memsweep.report import ReportPaths
from memsweep.report.answer import MOVES
from memsweep.report.compared import compare_cells, compared_frame
from memsweep.report.draw_error import error_gallery
from memsweep.report.draw_gradients import gradient_gallery
from memsweep.report.draw_memory import memory_gallery
from memsweep.report.draw_radius import radius_gallery
from memsweep.report.draw_rates import rate_gallery
from memsweep.report.draw_training import training_gallery
from memsweep.report.export import radii_frame, verdict_frame, write_csv
from memsweep.report.findings import BALLS, Finding, find
from memsweep.report.grouping import find_grouping
from memsweep.report.labels import Labels
from memsweep.report.losses import LossRow, loss_frame, loss_rows
from memsweep.report.page import Contents, Galleries, Section, render
from memsweep.report.panels import write_png
from memsweep.report.publish import REPORT, drafted
from memsweep.report.published import compare, published_frame
from memsweep.report.rates import rate_studies
from memsweep.report.search_frames import search_frame, winners_frame
from memsweep.report.search_pictures import search_pictures
from memsweep.report.searched import Searched, part_of, read_searched
from memsweep.report.study import Study, load_study
from memsweep.report.view_losses import shown_losses
from memsweep.report.view_search import sentences
from memsweep.sweep.storage import Place


def build_report(place: Place) -> ReportPaths:
    """See ``memsweep.report.build``."""
    return report_on(load_study(place), place)


def report_on(study: Study, place: Place) -> ReportPaths:
    """Write the report of a study that was read from a place."""
    contents = _contents(study)
    with drafted(place) as draft:
        _write(draft.folder, contents)
    said = tuple(sentences(contents.searched)) if contents.searched is not None else ()
    return _paths(draft.final, (place / REPORT).uri, said)


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
    )


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
        rates=rate_gallery(contents.rates, "learning-rates"),
        training=training_gallery(_trained(contents), tables["history"], labels, "training"),
        gradients=gradient_gallery(contents.trained, tables["memory"], labels, "gradients"),
        search=search_pictures(contents.study, contents.searched) if contents.searched is not None else (),
    )


def _trained(contents: Contents) -> Sequence[LossRow]:
    """The rows whose training is drawn: where the loss is the answer, and no curve over learning rates tells more."""
    return [] if contents.asked or contents.rates else contents.losses


def _asked(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.asked]


def _paths(report: Path, uri: str, said: tuple[str, ...]) -> ReportPaths:
    names = ("published", "losses", "search", "winners", "compared")
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
        **optional,
    )
