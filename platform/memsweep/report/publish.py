"""A report as files: written in a folder of this machine, then put where its study lies, in place of the old one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memsweep.errors import MemsweepError
from memsweep.report.analysis.comparison import StudyComparison
from memsweep.report.analysis.contents import Contents
from memsweep.report.export import write_csv
from memsweep.report.figures.galleries import RADIUS, comparison_gallery, galleries_of
from memsweep.report.figures.panels import Shown, draw, embedded, parts_of
from memsweep.report.formats import FIGURES, PAGE, REPORT
from memsweep.report.page.render import on_page, render, render_comparison
from memsweep.report.read.settings import typed, with_settings
from memsweep.report.rows.comparison import ComparisonTables
from memsweep.report.rows.report import Tables
from memsweep.report.rows.verdicts import radii_table
from memsweep.stability.verdict.judgement import DEFAULT, Criteria
from memsweep.sweep.store.filesystem import Location, storage_errors

JUDGED = "judged"
"""The folder of reports by other criteria."""
_DRAFT, _STALE_SECONDS = ".report-", 86_400.0
_ROWS = 50_000  # of a measured table that get their settings at once
_MOST_DRAWN = 1  # picture of a gallery, 12 panels, where no formats are asked for: the page draws every condition

_COMPARISON = frozenset({PAGE, "verdicts.csv", "losses.csv", "settings.csv", *(f"{RADIUS}.{form}" for form in FIGURES)})


def publish(
    contents: Contents, tables: Tables, place: Location, *, apart: bool = False, formats: Sequence[str] | None = None
) -> Path:
    """Write the report of the study in this place.

    Args:
        contents, tables: of the report.
        place: the study's folder.
        apart: the report stays in a folder of this user on this machine.
        formats: of the figure files, as of ``memsweep.report.build``.

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
            _write(draft, contents, tables, formats)
        with storage_errors("write", place / name):
            draft.chmod(0o755)  # mkdtemp's folders are private; a report is for reading
            if place.local is None and not apart:
                _upload(draft, place / name)
            (home / name).parent.mkdir(exist_ok=True)
            _replace(home / name, draft)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return home / name


def publish_comparison(
    comparison: StudyComparison, tables: ComparisonTables, folder: Path, formats: Sequence[str] = ()
) -> Path:
    """Write a comparison as a page and CSV files into a folder of its own.

    Args:
        comparison, tables: what is written.
        folder: where.
        formats: of the figure's files.

    Returns:
        The page.

    Raises:
        MemsweepError: the folder holds something else than an earlier comparison.
        StoreError: it cannot be written.
    """
    with storage_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted({path.name for path in folder.iterdir()} - _COMPARISON)
        if others:
            raise MemsweepError(
                f"{folder} holds {others[0]!r}, which is no part of a comparison: nothing was written there. Give an "
                "empty folder, or one that does not exist."
            )
        for name in _COMPARISON:
            (folder / name).unlink(missing_ok=True)
        for table in tables.named.values():
            write_csv(table.frame(), folder / f"{table.name}.csv")
        gallery = comparison_gallery(comparison)
        if formats and gallery.panels:
            draw(gallery, folder, formats)
        text = render_comparison(comparison, tables, embedded(gallery) if gallery.panels else None)
        (folder / PAGE).write_text(text, encoding="utf-8", errors="replace")
    return folder / PAGE


def folder_of(criteria: Criteria) -> str:
    """The folder of a report within its study's: one of its own for each rule that is not the usual one."""
    if criteria == DEFAULT:
        return REPORT
    thresholds = ",".join(f"{threshold:g}" for threshold in criteria.thresholds)
    return f"{JUDGED}/thresholds={thresholds}_slope_limit={criteria.slope_limit:g}"


def _write(folder: Path, contents: Contents, tables: Tables, formats: Sequence[str] | None) -> None:
    (folder / "figures").mkdir()
    shown, most = on_page(contents, tables.sections), _MOST_DRAWN if formats is None else None
    formats, pictures, undrawn = FIGURES[:1] if formats is None else formats, dict[str, Shown](), 0
    for gallery in galleries_of(contents, tables.sections):
        picture = draw(gallery, folder / "figures", formats, most=most, embed=shown(gallery.name))
        pictures |= {gallery.name: picture} if picture is not None else {}
        undrawn += len([*parts_of(gallery)][most:]) if most else 0
    for table in tables.exported:
        write_csv(table.frame(), folder / f"{table.name}.csv")
    trials = contents.trials
    with (folder / "radii.csv").open("w", encoding="utf-8", newline="") as file:
        for number, part in enumerate(_in_parts(radii_table(contents.findings), trials)):
            write_csv(part, file, headings=number == 0)
    write_csv(trials, folder / "trials.csv")
    if not contents.compared.empty:
        write_csv(contents.compared, folder / "compared.csv")
    with contextlib.ExitStack() as closing:
        writer = None
        for part in _in_parts(contents.measured.tables["curves"], trials):
            rows = pa.Table.from_pandas(part, preserve_index=False)
            writer = writer or closing.enter_context(pq.ParquetWriter(folder / "curves.parquet", rows.schema))
            writer.write_table(rows)
    text = render(contents, tables, pictures, formats, undrawn)
    (folder / PAGE).write_text(text, encoding="utf-8", errors="replace")


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
    own = f"{place.name[:60]}-{hashlib.sha256(place.uri.encode()).hexdigest()[:16]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "memsweep" / "reports" / own
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
