"""A report, written: as files in place of an older one, and as named values of each trial for a tracking server."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memsweep.errors import MemsweepError
from memsweep.extras import is_there, need
from memsweep.home import cache_folder
from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.charts.every import chart_sets, trial_set
from memsweep.report.export import write_csv
from memsweep.report.formats import FIGURES, PAGE, PER_PICTURE, RADIUS, REPORT, TRIALS, Shown, width_of
from memsweep.report.page.files import Files
from memsweep.report.page.render import on_page, render, render_comparison
from memsweep.report.read.study import Study, load_study, typed, with_settings
from memsweep.report.rows.report import Tables, tables_of
from memsweep.report.rows.verdicts import radii_table
from memsweep.report.terminal import report_text
from memsweep.stability.verdict.judgement import DEFAULT, Criteria
from memsweep.sweep.store.filesystem import Location, storage_errors

if TYPE_CHECKING:
    from memsweep.report.analysis.contents import Contents
    from memsweep.report.values.chart import ChartSet
    from memsweep.report.values.side_by_side import SideBySide


JUDGED = "judged"
"""The folder of reports by other criteria."""
_DRAFT, _STALE_SECONDS = ".report-", 86_400.0
_ROWS = 50_000  # of a measured table that get their settings at once


@dataclass(frozen=True)
class ReportPaths:
    """A finished report.

    Attributes:
        folder: ``<study folder>/report``, or the one of other criteria (see ``build``), or a copy on this machine of
            one that lies in a bucket: ``index.html``, a self-contained page; the tables as CSV; ``curves.parquet``;
            and pictures for papers in ``figures``.
        uri: the address for everybody: the folder's path, or ``s3://...``.
        contents, tables: what the terminal shows.
    """

    folder: Path
    uri: str
    contents: Contents
    tables: Tables

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.folder / PAGE

    def text(self, *, width: int | None = None, colour: bool | None = None, advice: bool = True) -> str:
        """The report for a terminal; see ``memsweep.report.terminal.report_text``."""
        return report_text(self.contents, self.tables, width=width, colour=colour, advice=advice)


def build(
    where: Location | Path | str,
    *,
    apart: bool = False,
    criteria: Criteria = DEFAULT,
    formats: Sequence[str] | None = None,
) -> ReportPaths:
    """Write the report of a study into its folder, in place of an older one.

    Works on an empty or partly finished study, and then says what is missing; a result that is damaged is missing
    too. The old report stays until the new one is complete.

    Args:
        where: ``results/<study>`` or ``s3://bucket/<study>``, with ``records/``, ``curves/`` and so on; its plan
            names the trials that belong to the study.
        apart: write it into a folder of this user on this machine, because the study's takes nothing.
        criteria: of the verdicts, as of ``memsweep.report.judge``. A report by other criteria than the rule's own goes
            to a folder of its own, ``judged/thresholds=0.01,0.1_slope_limit=-0.3``, and leaves the study's report as
            it is.
        formats: of the figure files: png, pdf, svg; ``trials`` among them: the charts of every trial, too;
            ``single`` or ``double``: as wide as one or both columns of a paper. None: png,
            and of many conditions the first ones alone, because drawing all of a thousand trials takes longer than
            everything else.

    Raises:
        StoreError: the folder does not exist or cannot be written, or its plan is missing or damaged.
    """
    location = Location.at(where)
    return report_on(load_study(location), location, apart=apart, criteria=criteria, formats=formats)


def report_on(
    study: Study,
    place: Location,
    *,
    apart: bool = False,
    criteria: Criteria = DEFAULT,
    formats: Sequence[str] | None = None,
) -> ReportPaths:
    """Write the report of a study that was read from a place; see ``build``."""
    contents = analyse(study, criteria)
    tables = tables_of(contents)
    folder = publish(contents, tables, place, apart=apart, formats=formats)
    uri = str(folder) if apart else (place / folder_of(criteria)).uri
    return ReportPaths(folder, uri, contents, tables)


def standing(folder: Path) -> ReportPaths:
    """The report that was written into a study's folder, read again for the terminal."""
    contents = analyse(load_study(folder))
    return ReportPaths(folder / REPORT, str(folder / REPORT), contents, tables_of(contents))


def publish(
    contents: Contents, tables: Tables, place: Location, *, apart: bool = False, formats: Sequence[str] | None = None
) -> Path:
    """Write the report of the study in this place.

    Args:
        contents, tables: of the report.
        place: the study's folder.
        apart: the report stays in a folder of this user on this machine.
        formats: of the figure files, as of ``build``.

    Returns:
        Its folder on this machine; of a study in a bucket, that of a copy.

    Raises:
        StoreError: the storage cannot take it.
    """
    home = (None if apart else place.local) or _copies(place)
    with storage_errors("write", home):
        _forget_drafts(home)
        draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=home))
    try:
        name = folder_of(contents.criteria)
        with storage_errors("write", home / name):
            records = "" if apart else "../" * len(Path(name).parts) + "records/"
            _write(draft, contents, tables, formats, records)
        with storage_errors("write", place / name):
            draft.chmod(0o755)  # mkdtemp's folders are private; a report is for reading
            if place.local is None and not apart:
                _upload(draft, place / name)
            (home / name).parent.mkdir(exist_ok=True)
            _replace(home / name, draft)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return home / name


def publish_comparison(found: SideBySide, folder: Path, formats: Sequence[str] = ()) -> Path:
    """Write a comparison as a page and CSV files into a folder of its own.

    Args:
        found: what is written.
        folder: where.
        formats: of the figure's files.

    Returns:
        The page.

    Raises:
        MemsweepError: the folder holds something else than an earlier comparison.
        StoreError: it cannot be written.
    """
    if formats:
        need("matplotlib", "--figures")
    own = {PAGE, *(f"{name}.csv" for name in found.tables), *(f"{RADIUS}.{form}" for form in FIGURES)}
    with storage_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted({path.name for path in folder.iterdir()} - own)
        if others:
            raise MemsweepError(
                f"{folder} holds {others[0]!r}, which is no part of a comparison: nothing was written there. Give an "
                "empty folder, or one that does not exist."
            )
        for name in own:
            (folder / name).unlink(missing_ok=True)
        for table in found.named.values():
            write_csv(table.frame(), folder / f"{table.name}.csv")
        text = render_comparison(found, _comparison(folder, found, formats))
        (folder / PAGE).write_text(text, encoding="utf-8", errors="replace")
    return folder / PAGE


def _comparison(folder: Path, found: SideBySide, formats: Sequence[str]) -> Shown | None:
    """Writes the figure of a comparison, and gives it for the page; None where there is none, or no matplotlib."""
    if not is_there("matplotlib"):
        return None
    from memsweep.report.figures.charts import comparison_gallery
    from memsweep.report.figures.panels import draw, embedded

    gallery = comparison_gallery(found.drawn)
    if formats and gallery.panels:
        draw(gallery, folder, [form for form in formats if form in FIGURES], width=width_of(formats))
    return embedded(gallery) if gallery.panels else None


def folder_of(criteria: Criteria) -> str:
    """The folder of a report within its study's: one of its own for each rule that is not the usual one."""
    if criteria == DEFAULT:
        return REPORT
    thresholds = ",".join(f"{threshold:g}" for threshold in criteria.thresholds)
    return f"{JUDGED}/thresholds={thresholds}_slope_limit={criteria.slope_limit:g}"


def page_text(contents: Contents, tables: Tables) -> str:
    """The page of a report, for those who show it without its folder: it links no file."""
    with tempfile.TemporaryDirectory(prefix=_DRAFT) as folder:
        return _page(Path(folder), contents, tables, None, None)


def _write(folder: Path, contents: Contents, tables: Tables, formats: Sequence[str] | None, records: str) -> None:
    text = _page(folder, contents, tables, formats, records)
    _write_tables(folder, contents, tables)
    (folder / PAGE).write_text(text, encoding="utf-8", errors="replace")


def _page(folder: Path, contents: Contents, tables: Tables, formats: Sequence[str] | None, records: str | None) -> str:
    """The page, with the files of its figures in a folder; without ``records`` it links none of them."""
    sets, whole = [*chart_sets(contents, tables.sections)], formats is not None
    asked, formats = {*(formats or ())}, [form for form in formats or () if form in FIGURES] or FIGURES[:1]
    single = contents.study.records if TRIALS in asked else ()
    drawn = [charts for charts in sets if whole or not charts.extra]
    drawn += [trial_set(contents.study, identity) for identity in single]
    shown = on_page(contents, sets)
    most, width = None if whole else PER_PICTURE, width_of(asked)
    pictures, files = _figures(folder / "figures", drawn, formats, shown, most, width)
    beside = Files() if records is None else Files(files, records)
    return render(contents, tables, sets, pictures, formats, whole=whole, files=beside)


def _figures(
    folder: Path,
    sets: Sequence[ChartSet],
    formats: Sequence[str],
    shown: Callable[[str], bool],
    most: int | None,
    width: float | None,
) -> tuple[dict[str, Shown], dict[str, list[str]]]:
    """Writes the figures of a report into a folder; the pictures for the page, and the names of the files, by set.

    None without matplotlib: the page draws its charts itself.
    """
    pictures, files = dict[str, Shown](), dict[str, list[str]]()
    folder.mkdir()
    if not is_there("matplotlib"):
        return pictures, files
    from memsweep.report.figures.charts import gallery_of
    from memsweep.report.figures.panels import draw, parts_of

    for charts in sets:
        gallery = gallery_of(charts, most)
        picture = draw(gallery, folder, formats, embed=shown(charts.name), width=width)
        pictures |= {charts.name: picture} if picture is not None else {}
        files[charts.name] = [f"{name}.{form}" for name in parts_of(gallery, width) for form in formats]
    return pictures, files


def _write_tables(folder: Path, contents: Contents, tables: Tables) -> None:
    for table in tables.exported:
        write_csv(table.frame(), folder / f"{table.name}.csv")
    trials = contents.trials
    with (folder / "radii.csv").open("w", encoding="utf-8", newline="") as file:
        for number, part in enumerate(_in_parts(radii_table(contents.findings), trials)):
            write_csv(part, file, headings=number == 0)
    write_csv(trials, folder / "trials.csv")
    with contextlib.ExitStack() as closing:
        writer, curves = None, contents.measured.tables["curves"]
        settings = pa.Schema.from_pandas(typed(trials).drop(columns=curves.columns, errors="ignore"))
        for part in _in_parts(curves, trials):
            schema = _of_all_parts(pa.Schema.from_pandas(part, preserve_index=False), settings)
            writer = writer or closing.enter_context(pq.ParquetWriter(folder / "curves.parquet", schema))
            writer.write_table(pa.Table.from_pandas(part, schema=writer.schema, preserve_index=False))


def _of_all_parts(part: pa.Schema, settings: pa.Schema) -> pa.Schema:
    """The schema of a part with the types that settings have in all trials: in some parts one has no value at all."""
    return pa.schema([settings.field(one.name) if one.name in settings.names else one for one in part])


def _in_parts(table: pd.DataFrame, trials: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """A measured table with the settings of its trials, part by part: whole, it is several times as large."""
    settings = typed(trials)
    for at in range(0, max(len(table), 1), _ROWS):
        yield with_settings(table.iloc[at : at + _ROWS], settings)


def _forget_drafts(home: Path) -> None:
    """Removes the drafts of reports whose process was killed: those on which nobody has worked for a day."""
    for draft in home.glob(f"{_DRAFT}*"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(draft, ignore_errors=True)


def _copies(place: Location) -> Path:
    """Where this user keeps a copy of a report that lies elsewhere; one of its own for each study."""
    folder = cache_folder() / "reports" / place.own_name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="memsweep-report-"))


def _upload(folder: Path, report: Location) -> None:
    """The page last: it is what one opens. Pictures of an older report that this one has not go after it."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for name in [*sorted(names - {PAGE}), PAGE]:
        report.write(name, (folder / name).read_bytes())
    for below in ("", *report.folders()):
        for old in report.names(below):
            name = f"{below}/{old}" if below else old
            if name not in names:
                report.delete(name)


def _replace(report: Path, draft: Path) -> None:
    """Swap folders: a crash at any point leaves a whole report, at worst under its old name until the next build."""
    old = report.with_name(f".{report.name}-old")
    if old.exists() and report.exists():
        shutil.rmtree(old)
    if report.exists():
        os.replace(report, old)
    os.replace(draft, report)
    shutil.rmtree(old, ignore_errors=True)
