"""Tables and pictures of a study, made from its stored results alone (no Ray, no MLflow, no training code).

Heavy libraries are imported when a report is asked for, not when this package is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.sweep.store.filesystem import Location


@dataclass(frozen=True)
class ReportPaths:
    """Where the parts of one report lie.

    Attributes:
        folder: ``<study folder>/report``, or a copy on this machine of one that lies in a bucket.
        uri: where it lies for everybody: the folder's path, or ``s3://...``.
        page: the self-contained HTML page.
        verdicts, radii: the CSV tables.
        curves: every error curve of the study, Parquet.
        figures: PNG pictures for papers, 200 dpi; empty while no trial has finished.
        published: a published table beside the verdicts, CSV; None where the study claims nothing.
        losses: final losses and metrics by condition, CSV; None where the verdicts say everything.
        alignment: gradients of learning rules beside the true ones, CSV; None where none were compared.
        search: every suggestion of a search, CSV; None where the study searches nothing.
        winners: the best suggestions, as the search and fresh seeds saw them, CSV; likewise.
        compared: claims that compare cells, tested, CSV; None where the study has none.
        said: the search in sentences; empty where there was none.
        rules: how learning rules stand to one another and to true gradients, in sentences; empty where nothing says.
    """

    folder: Path
    uri: str
    page: Path
    verdicts: Path
    radii: Path
    curves: Path
    figures: tuple[Path, ...]
    published: Path | None = None
    losses: Path | None = None
    alignment: Path | None = None
    search: Path | None = None
    winners: Path | None = None
    compared: Path | None = None
    said: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()


def build(where: Location | Path | str) -> ReportPaths:
    """Write the report of a study into its folder, in place of an older one.

    Works on an empty or partly finished study, and then says what is missing; a result that is damaged is missing
    too. The old report stays until the new one is complete.

    Args:
        where: ``results/<study>`` or ``s3://bucket/<study>``, with ``records/``, ``curves/`` and so on; its plan
            names the rows that belong to the study (without it, every stored row does, and none is known to be
            missing).

    Raises:
        StoreError: the folder does not exist or cannot be written, or its plan is damaged.
    """
    from memsweep.report.assemble import build_report
    from memsweep.sweep.store.filesystem import Location

    return build_report(Location.at(where))


def table_text(source: ReportPaths | pd.DataFrame, *, width: int | None = None, colour: bool | None = None) -> str:
    """The verdict table for a terminal, and beside it what the study has of published claims and losses.

    Args:
        source: a report, or the table of its ``verdicts.csv`` (then the verdicts alone).
        width: columns to fill (None: the terminal's, at most 120; 110 when the output is no terminal).
        colour: write ANSI colours (None: only when standard output is a terminal).
    """
    from memsweep.report.terminal.verdicts import verdict_table

    return verdict_table(source, width=width, colour=colour)
