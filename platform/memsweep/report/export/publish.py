"""A report is drafted in a folder of this machine, then put where its study lies, in place of the old one."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memsweep.sweep.store.filesystem import Location, storage_errors

REPORT = "report"
"""The report's folder within its study's."""

_PAGE = "index.html"
_OLD = ".report-old"


@dataclass(frozen=True)
class Draft:
    """A report in the making.

    Attributes:
        folder: empty, for its files.
        final: where they lie on this machine once the draft has ended.
    """

    folder: Path
    final: Path


@contextmanager
def drafted(place: Location, *, apart: bool = False) -> Iterator[Draft]:
    """A draft of the report of the study in this place, which becomes the report when the body has ended well.

    Args:
        place: the study's folder.
        apart: the report stays in a folder of this user on this machine.

    Raises:
        StoreError: the storage cannot take it.
    """
    home = (None if apart else place.local) or _copies(place)
    with storage_errors("write", home):
        folder = Path(tempfile.mkdtemp(prefix=".report-", dir=home))
    try:
        yield Draft(folder, home / REPORT)
        with storage_errors("write", place / REPORT):
            folder.chmod(0o755)  # mkdtemp's folders are private; a report is for reading
            if place.local is None and not apart:
                _upload(folder, place / REPORT)
            _replace(home / REPORT, folder, home / _OLD)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
