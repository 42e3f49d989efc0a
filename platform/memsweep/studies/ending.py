"""How a run ended; and the note in the plan of a complete study, by which the next run knows that nothing is to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from memsweep import __version__
from memsweep.redaction import redacted
from memsweep.report.formats import PAGE, REPORT
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.form import mismatch
from memsweep.sweep.tracking.uri import default_uri, is_here, is_whole, tracking_uri

if TYPE_CHECKING:
    from memsweep.report.publish import ReportPaths
    from memsweep.sweep.driver.runner import RunSummary


Tracking = tuple[str, str | None, str]
"""MLflow's address, the experiment, and the path of its page of runs."""
_COMPLETE = "complete"
"""The key of the note in the provenance of the plan."""


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
        tracking: where MLflow has the runs; None where the storage is away.
        complaint: what MLflow lacks, in words; empty where it lacks nothing.
        inline: it ran in this process, without Ray.
        resume: the command that goes on, as it works when it is typed.
    """

    code: int
    study: str
    trials: int
    reused: int
    left: int
    summary: RunSummary
    report: ReportPaths | None
    seconds: float
    tracking: Tracking | None
    complaint: str
    inline: bool
    resume: str


class _Note(TypedDict):
    """In the plan's provenance."""

    version: str
    rule: int
    uri: str
    experiment: str
    page: str


def note(tracking: Tracking, results: Location) -> dict[str, _Note]:
    """The note for the plan's provenance when the report holds all results, and MLflow all runs.

    The database of the results folder has an empty address: the folder may be moved.
    """
    from memsweep.stability.verdict.judgement import RULE_VERSION

    uri, experiment, page = tracking
    uri = "" if uri == redacted(default_uri(results)) else uri
    return {
        _COMPLETE: {
            "version": __version__,
            "rule": RULE_VERSION,
            "uri": uri,
            "experiment": experiment or "",
            "page": page,
        }
    }


def noted(provenance: Mapping[str, Any], folder: Path, results: Location) -> Tracking | None:
    """Where MLflow has the runs, as it was noted; None where the note does not hold here.

    That is so with another version of memsweep or of the verdicts' rule, with another MLflow, a database that is lost
    or damaged, and without the report.

    A server of MLflow is not asked whether it still has the runs: ``memsweep sync`` does that.

    Args:
        provenance: the plan's.
        folder: the study's.
        results: the folder of all studies.
    """
    from memsweep.stability.verdict.judgement import RULE_VERSION

    found: Any = provenance.get(_COMPLETE)
    if mismatch(found, _Note):
        return None
    uri = tracking_uri(None, results)
    noted_uri = found["uri"] or redacted(default_uri(results))
    as_now = (found["version"], found["rule"]) == (__version__, RULE_VERSION)
    same = as_now and noted_uri == redacted(uri) and is_whole(uri)
    there = same and (found["uri"] != "" or is_here(results)) and (folder / REPORT / PAGE).is_file()
    return (noted_uri, found["experiment"], found["page"]) if there else None
