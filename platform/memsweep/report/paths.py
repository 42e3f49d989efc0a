"""A finished report: where its files lie, and what a terminal shows of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsweep.report.analysis.contents import Contents
    from memsweep.report.rows.report import Tables


@dataclass(frozen=True)
class ReportPaths:
    """A finished report.

    Attributes:
        folder: ``<study folder>/report``, or a copy on this machine of one that lies in a bucket.
        uri: the address for everybody: the folder's path, or ``s3://...``.
        page: the self-contained HTML page.
        verdicts, radii: the CSV tables.
        curves: every error curve of the study, Parquet.
        trials: the settings of every stored trial that differ in the study, CSV.
        figures: PNG pictures for papers, 200 dpi; empty while no trial has finished.
        contents, tables: what the terminal shows.
        slopes: the slopes at every threshold, CSV; None where the study asks for no verdict.
        published: a published table beside the verdicts, CSV; None where the study claims nothing.
        losses: final losses and metrics by condition, CSV; None where the verdicts say everything.
        alignment: gradients of learning rules beside the true ones, CSV; None where none were compared.
        search: every suggestion of a search, CSV; None where the study searches nothing.
        winners: the best suggestions with their values in the search and on fresh seeds, CSV; likewise.
        compared: claims that compare cells, tested, CSV; None where the study has none.
    """

    folder: Path
    uri: str
    page: Path
    verdicts: Path
    radii: Path
    curves: Path
    trials: Path
    figures: tuple[Path, ...]
    contents: Contents
    tables: Tables
    slopes: Path | None = None
    published: Path | None = None
    losses: Path | None = None
    alignment: Path | None = None
    search: Path | None = None
    winners: Path | None = None
    compared: Path | None = None
