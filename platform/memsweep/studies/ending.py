"""How a run ended, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsweep.report import ReportPaths
    from memsweep.sweep.driver.runner import RunSummary


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        code: the exit code of the command: 0 done, 1 some trials have no result, 3 stopped at a limit, 130 interrupted.
        study: its name.
        trials: number of trials of the study.
        reused: how many of them had a result before the run.
        left: trials that neither have a result nor failed for good in this run; a search may add more.
        summary: of the run.
        report: None where the storage is away and gave nothing to report.
        seconds: how long the run took.
        tracking: MLflow's address, the experiment, and the path of its page of runs; None where the storage is away.
        complaint: what MLflow lacks, in words; empty where it lacks nothing.
    """

    code: int
    study: str
    trials: int
    reused: int
    left: int
    summary: RunSummary
    report: ReportPaths | None
    seconds: float
    tracking: tuple[str, str | None, str] | None
    complaint: str
