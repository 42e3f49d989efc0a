"""Build a report beside the old one, then put it in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memsweep.report import ReportPaths
from memsweep.report.answer import MOVES
from memsweep.report.draw_error import error_gallery
from memsweep.report.draw_memory import memory_gallery
from memsweep.report.draw_radius import radius_gallery
from memsweep.report.draw_rates import rate_gallery
from memsweep.report.export import radii_frame, verdict_frame, write_csv
from memsweep.report.findings import BALLS, Finding, find
from memsweep.report.grouping import Grouping, find_grouping
from memsweep.report.labels import Labels
from memsweep.report.losses import loss_frame, loss_rows
from memsweep.report.page import Contents, Galleries, Section, render
from memsweep.report.panels import write_png
from memsweep.report.publish import REPORT, drafted
from memsweep.report.published import compare, published_frame
from memsweep.report.rates import rate_studies
from memsweep.report.study import Study, load_study
from memsweep.report.view_losses import shown_losses
from memsweep.sweep.storage import Place


def build_report(place: Place) -> ReportPaths:
    """See ``memsweep.report.build``."""
    study = load_study(place)
    grouping = find_grouping(study.records, study.tables["replicas"])
    contents = _contents(study, grouping)
    with drafted(place) as draft:
        _write(draft.folder, contents)
    return _paths(draft.final, (place / REPORT).uri)


def _contents(study: Study, grouping: Grouping) -> Contents:
    findings = find(study, grouping)
    losses = loss_rows(study, grouping)
    labels = Labels([row.condition for row in losses])
    rates = rate_studies(losses, labels)
    return Contents(
        study=study,
        grouping=grouping,
        labels=labels,
        findings=findings,
        comparisons=compare(study.claims, findings),
        losses=shown_losses(losses, findings, rates),
        rates=rates,
    )


def _write(folder: Path, contents: Contents) -> None:
    figures, extra = folder / "figures", contents.grouping.columns
    figures.mkdir()
    galleries = _galleries(contents)
    for gallery in galleries.all:
        write_png(gallery, figures)
    write_csv(verdict_frame(contents.asked, extra), folder / "verdicts.csv")
    write_csv(radii_frame(contents.findings, extra), folder / "radii.csv")
    if contents.study.claims is not None:
        write_csv(published_frame(contents.comparisons, extra), folder / "published.csv")
    if contents.losses:
        write_csv(loss_frame(contents.losses, extra), folder / "losses.csv")
    curves = contents.grouping.attach(contents.study.tables["curves"])
    curves.to_parquet(folder / "curves.parquet", index=False)
    (folder / "index.html").write_text(render(contents, galleries), encoding="utf-8", errors="replace")


def _galleries(contents: Contents) -> Galleries:
    labels = contents.labels
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
    )


def _asked(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.asked]


def _paths(report: Path, uri: str) -> ReportPaths:
    published, losses = report / "published.csv", report / "losses.csv"
    return ReportPaths(
        folder=report,
        uri=uri,
        page=report / "index.html",
        verdicts=report / "verdicts.csv",
        radii=report / "radii.csv",
        curves=report / "curves.parquet",
        figures=tuple(sorted((report / "figures").glob("*.png"))),
        published=published if published.exists() else None,
        losses=losses if losses.exists() else None,
    )
