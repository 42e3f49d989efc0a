"""Build a report beside the old one, then put it in its place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from memsweep.report import ReportPaths
from memsweep.report.answer import MOVES
from memsweep.report.draw_error import error_gallery
from memsweep.report.draw_memory import memory_gallery
from memsweep.report.draw_radius import radius_gallery
from memsweep.report.export import radii_frame, verdict_frame, write_csv
from memsweep.report.findings import BALLS, Finding, find
from memsweep.report.grouping import Grouping, find_grouping
from memsweep.report.labels import Labels
from memsweep.report.page import Section, render
from memsweep.report.panels import write_png
from memsweep.report.study import Study, load_study

_OLD = ".report-old"


def build_report(folder: Path) -> ReportPaths:
    """See ``memsweep.report.build``."""
    study = load_study(folder)
    grouping = find_grouping(study.records, study.tables["replicas"])
    findings = find(study, grouping)
    draft = Path(tempfile.mkdtemp(prefix=".report-", dir=folder))
    try:
        _write(draft, study, grouping, findings)
        draft.chmod(0o755)  # mkdtemp's folders are private; a report is for reading
        _replace(folder / "report", draft, folder / _OLD)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _paths(folder / "report")


def _write(folder: Path, study: Study, grouping: Grouping, findings: Sequence[Finding]) -> None:
    figures = folder / "figures"
    figures.mkdir()
    labels = Labels(findings)
    sections = []
    for ball in BALLS:
        part = [finding for finding in findings if finding.ball == ball]
        if part:
            error, radius = error_gallery(part, labels, f"error-{ball}"), radius_gallery(part, labels, f"radius-{ball}")
            sections.append(Section(ball, MOVES[ball], error, radius))
    memory = memory_gallery(findings, labels, "memory")
    for gallery in (*(g for section in sections for g in (section.error, section.radius)), memory):
        write_png(gallery, figures)
    write_csv(verdict_frame(findings, grouping.columns), folder / "verdicts.csv")
    write_csv(radii_frame(findings, grouping.columns), folder / "radii.csv")
    grouping.attach(study.tables["curves"]).to_parquet(folder / "curves.parquet", index=False)
    page = render(study, findings, grouping, sections, memory)
    (folder / "index.html").write_text(page, encoding="utf-8", errors="replace")


def _replace(report: Path, draft: Path, old: Path) -> None:
    """Swap folders: a crash at any point leaves a whole report, at worst under its old name until the next build."""
    if old.exists() and report.exists():
        shutil.rmtree(old)
    if report.exists():
        os.replace(report, old)
    os.replace(draft, report)
    shutil.rmtree(old, ignore_errors=True)


def _paths(report: Path) -> ReportPaths:
    return ReportPaths(
        folder=report,
        page=report / "index.html",
        verdicts=report / "verdicts.csv",
        radii=report / "radii.csv",
        curves=report / "curves.parquet",
        figures=tuple(sorted((report / "figures").glob("*.png"))),
    )
