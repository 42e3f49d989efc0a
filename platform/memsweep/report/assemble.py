"""Build a report beside the old one, then put it in its place."""

from __future__ import annotations

from pathlib import Path

from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.export.csv import write_csv
from memsweep.report.export.publish import REPORT, drafted
from memsweep.report.figures.galleries import galleries_of
from memsweep.report.figures.panels import write_png
from memsweep.report.naming.conditions import ALWAYS
from memsweep.report.page.page import render
from memsweep.report.paths import ReportPaths
from memsweep.report.read.settings import trial_table
from memsweep.report.read.study import Study
from memsweep.report.rows.report import Tables, tables_of
from memsweep.report.rows.verdicts import radii_table
from memsweep.sweep.store.filesystem import Location


def report_on(study: Study, location: Location, *, apart: bool = False) -> ReportPaths:
    """Write the report of a study that was read from a location; see ``memsweep.report.build``."""
    contents = analyse(study)
    tables = tables_of(contents)
    with drafted(location, apart=apart) as draft:
        _write(draft.folder, contents, tables)
    report = draft.final
    names = ("slopes", "published", "losses", "alignment", "search", "winners", "compared")
    optional = {name: path for name in names if (path := report / f"{name}.csv").exists()}
    return ReportPaths(
        folder=report,
        uri=str(report) if apart else (location / REPORT).uri,
        page=report / "index.html",
        verdicts=report / "verdicts.csv",
        radii=report / "radii.csv",
        curves=report / "curves.parquet",
        trials=report / "trials.csv",
        figures=tuple(sorted((report / "figures").glob("*.png"))),
        contents=contents,
        tables=tables,
        **optional,
    )


def _write(folder: Path, contents: Contents, tables: Tables) -> None:
    galleries = galleries_of(contents)
    (folder / "figures").mkdir()
    for gallery in galleries.all:
        write_png(gallery, folder / "figures")
    for table in tables.exported:
        write_csv(table.frame(), folder / f"{table.name}.csv")
    write_csv(radii_table(contents.findings, contents.grouping.columns), folder / "radii.csv")
    write_csv(trial_table(contents.study.records, contents.study.tables["replicas"], ALWAYS), folder / "trials.csv")
    if not contents.compared.empty:
        write_csv(contents.compared, folder / "compared.csv")
    curves = contents.grouping.attach(contents.measured.tables["curves"])
    curves.to_parquet(folder / "curves.parquet", index=False)
    page = render(contents, tables, galleries)
    (folder / "index.html").write_text(page, encoding="utf-8", errors="replace")
