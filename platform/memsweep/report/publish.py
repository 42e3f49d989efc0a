"""A report as files: written in a folder of this machine, then put where its study lies, in place of the old one."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from memsweep.report.analysis.contents import Contents
from memsweep.report.figures.galleries import galleries_of
from memsweep.report.figures.panels import draw
from memsweep.report.page import render
from memsweep.report.read.settings import with_settings
from memsweep.report.rows.report import Tables
from memsweep.report.rows.verdicts import radii_table
from memsweep.sweep.store.filesystem import Location, storage_errors

REPORT = "report"
"""The report's folder within its study's."""

_PAGE = "index.html"
_OLD = ".report-old"
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def publish(contents: Contents, tables: Tables, place: Location, *, apart: bool = False) -> Path:
    """Write the report of the study in this place.

    Args:
        contents, tables: of the report.
        place: the study's folder.
        apart: the report stays in a folder of this user on this machine.

    Returns:
        Its folder on this machine; of a study in a bucket, that of a copy.

    Raises:
        StoreError: the storage cannot take it.
    """
    home = (None if apart else place.local) or _copies(place)
    with storage_errors("write", home):
        draft = Path(tempfile.mkdtemp(prefix=".report-", dir=home))
    try:
        _write(draft, contents, tables)
        with storage_errors("write", place / REPORT):
            draft.chmod(0o755)  # mkdtemp's folders are private; a report is for reading
            if place.local is None and not apart:
                _upload(draft, place / REPORT)
            _replace(home / REPORT, draft, home / _OLD)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return home / REPORT


def _write(folder: Path, contents: Contents, tables: Tables) -> None:
    (folder / "figures").mkdir()
    pictures = {gallery.name: draw(gallery, folder / "figures") for gallery in galleries_of(contents)}
    for table in tables.exported:
        write_csv(table.frame(), folder / f"{table.name}.csv")
    trials = contents.trials
    write_csv(with_settings(radii_table(contents.findings), trials), folder / "radii.csv")
    write_csv(trials, folder / "trials.csv")
    if not contents.compared.empty:
        write_csv(contents.compared, folder / "compared.csv")
    curves = with_settings(contents.measured.tables["curves"], trials)
    curves.to_parquet(folder / "curves.parquet", index=False)
    (folder / _PAGE).write_text(render(contents, tables, pictures), encoding="utf-8", errors="replace")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table so that a spreadsheet reads its text as text.

    Text that begins with ``= + - @``, a tab or a carriage return would be run as a formula: it gets a leading
    apostrophe. Numbers stay numbers: infinities are ``inf`` and ``-inf``, and an empty cell is a null.
    """
    safe = table.astype(object).map(_as_text).rename(columns=_as_text)
    safe.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    text = "'" + cell if cell.startswith(_FORMULA_STARTS) else cell
    return text.replace("\r\n", "\n").replace("\r", "\n")  # a bare carriage return would end the row for many readers


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
    for name in [*sorted(names - {_PAGE}), _PAGE]:
        report.write(name, (folder / name).read_bytes())
    for below in ("", *report.folders()):
        for old in report.names(below):
            name = f"{below}/{old}" if below else old
            if name not in names:
                report.delete(name)


def _replace(report: Path, draft: Path, old: Path) -> None:
    """Swap folders: a crash at any point leaves a whole report, at worst under its old name until the next build."""
    if old.exists() and report.exists():
        shutil.rmtree(old)
    if report.exists():
        os.replace(report, old)
    os.replace(draft, report)
    shutil.rmtree(old, ignore_errors=True)
