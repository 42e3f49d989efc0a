"""Tables and pictures of a study, made from its stored results alone (no Ray, no MLflow, no training code).

Heavy libraries are imported when a report is asked for, not when this package is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.report.formats import REPORT

if TYPE_CHECKING:
    from memsweep.report.analysis.contents import Contents
    from memsweep.report.read.study import Study
    from memsweep.report.rows.report import Tables
    from memsweep.report.values.side_by_side import SideBySide
    from memsweep.stability.verdict.judgement import Criteria
    from memsweep.sweep.store.filesystem import Location

__all__ = ["ReportPaths", "build", "compare", "comparison_text", "judge", "report_on", "table_text"]


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
        return self.folder / "index.html"


def build(
    where: Location | Path | str,
    *,
    apart: bool = False,
    criteria: Criteria | None = None,
    formats: Sequence[str] | None = None,
) -> ReportPaths:
    """Write the report of a study into its folder, in place of an older one.

    Works on an empty or partly finished study, and then says what is missing; a result that is damaged is missing
    too. The old report stays until the new one is complete.

    Args:
        where: ``results/<study>`` or ``s3://bucket/<study>``, with ``records/``, ``curves/`` and so on; its plan
            names the trials that belong to the study.
        apart: write it into a folder of this user on this machine, because the study's takes nothing.
        criteria: of the verdicts, as of ``judge``. A report by other criteria than the rule's own goes to a folder of
            its own, ``judged/thresholds=0.01,0.1_slope_limit=-0.3``, and leaves the study's report as it is.
        formats: of the figure files: png, pdf, svg; ``trials`` among them: the charts of every trial, too. None: png,
            and of many conditions the first ones alone, because drawing all of a thousand trials takes longer than
            everything else.

    Raises:
        StoreError: the folder does not exist or cannot be written, or its plan is missing or damaged.
    """
    from memsweep.report.read.study import load_study
    from memsweep.sweep.store.filesystem import Location

    location = Location.at(where)
    return report_on(load_study(location), location, apart=apart, criteria=criteria, formats=formats)


def standing(folder: Path) -> ReportPaths:
    """The report that was written into a study's folder, read again for the terminal; see ``build``."""
    from memsweep.report.rows.report import tables_of

    contents = judge(folder)
    return ReportPaths(folder / REPORT, str(folder / REPORT), contents, tables_of(contents))


def report_on(
    study: Study,
    place: Location,
    *,
    apart: bool = False,
    criteria: Criteria | None = None,
    formats: Sequence[str] | None = None,
) -> ReportPaths:
    """Write the report of a study that was read from a place; see ``build``."""
    from memsweep.report.analysis.contents import analyse
    from memsweep.report.publish import folder_of, publish
    from memsweep.report.rows.report import tables_of
    from memsweep.stability.verdict.judgement import DEFAULT

    contents = analyse(study, criteria or DEFAULT)
    tables = tables_of(contents)
    folder = publish(contents, tables, place, apart=apart, formats=formats)
    uri = str(folder) if apart else (place / folder_of(contents.criteria)).uri
    return ReportPaths(folder, uri, contents, tables)


def judge(where: Location | Path | str, criteria: Criteria | None = None) -> Contents:
    """Judge a study from its stored results; trains and writes nothing.

    Args:
        where: as of ``build``.
        criteria: ``memsweep.stability.verdict.judgement.Criteria(thresholds, slope_limit)``; None: the rule's own.

    Returns:
        ``.findings`` holds the verdicts with their evidence, ``.criteria`` the thresholds and the slope limit.

    Raises:
        StoreError: as of ``build``.
    """
    from memsweep.report.analysis.contents import analyse
    from memsweep.report.read.study import load_study
    from memsweep.stability.verdict.judgement import DEFAULT
    from memsweep.sweep.store.filesystem import Location

    return analyse(load_study(Location.at(where)), criteria or DEFAULT)


def compare(studies: Mapping[str, Location | Path | str | Contents], criteria: Criteria | None = None) -> SideBySide:
    """Compare stored studies, by all analyses that compare studies; trains and writes nothing.

    Args:
        studies: name -> the study's folder, or the study as ``judge`` gave it; the first is the reference.
        criteria: of all verdicts, as of ``judge``; they do not change what was judged before.

    Raises:
        MemsweepError: there are fewer than two studies, or they were judged by different criteria.
        StoreError: as of ``build``.
    """
    from memsweep.report.analysis.contents import Contents
    from memsweep.report.values.side_by_side import side_by_side

    return side_by_side(
        {name: each if isinstance(each, Contents) else judge(each, criteria) for name, each in studies.items()}
    )


def table_text(paths: ReportPaths, *, width: int | None = None, colour: bool | None = None) -> str:
    """The verdicts, losses and claims of a report for a terminal.

    Args:
        paths: a report.
        width: columns to fill (None: the terminal's, at most 120; 110 when the output is no terminal).
        colour: write ANSI colours (None: only when standard output is a terminal).
    """
    from memsweep.report.terminal import report_text

    return report_text(paths.contents, paths.tables, width=width, colour=colour)


def comparison_text(found: SideBySide, *, width: int | None = None, colour: bool | None = None) -> str:
    """A comparison for a terminal.

    Args:
        found: of ``compare``.
        width, colour: as of ``table_text``.
    """
    from memsweep.report import terminal

    return terminal.comparison_text(found, width=width, colour=colour)
