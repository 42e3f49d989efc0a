"""Tables and pictures of a study, made from its stored results alone (no Ray, no MLflow, no training code).

Heavy libraries are imported when a report is asked for, not when this package is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.report.paths import ReportPaths

if TYPE_CHECKING:
    from memsweep.sweep.store.filesystem import Location

__all__ = ["ReportPaths", "build", "table_text"]


def build(where: Location | Path | str, *, apart: bool = False) -> ReportPaths:
    """Write the report of a study into its folder, in place of an older one.

    Works on an empty or partly finished study, and then says what is missing; a result that is damaged is missing
    too. The old report stays until the new one is complete.

    Args:
        where: ``results/<study>`` or ``s3://bucket/<study>``, with ``records/``, ``curves/`` and so on; its plan
            names the trials that belong to the study. Without a plan every stored trial does, and none is known to
            be missing.
        apart: write it into a folder of this user on this machine, because the study's takes nothing.

    Raises:
        StoreError: the folder does not exist or cannot be written, or its plan is damaged.
    """
    from memsweep.report.assemble import report_on
    from memsweep.report.read.study import load_study
    from memsweep.sweep.store.filesystem import Location

    location = Location.at(where)
    return report_on(load_study(location), location, apart=apart)


def table_text(paths: ReportPaths, *, width: int | None = None, colour: bool | None = None) -> str:
    """The verdicts, losses and claims of a report for a terminal.

    Args:
        paths: a report.
        width: columns to fill (None: the terminal's, at most 120; 110 when the output is no terminal).
        colour: write ANSI colours (None: only when standard output is a terminal).
    """
    from memsweep.report.terminal.text import report_text

    return report_text(paths.contents, paths.tables, width=width, colour=colour)
