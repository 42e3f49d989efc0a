"""The document of a command that ran a study: how it ended, and what its report says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memsweep.studies.ending import stopped

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.documents.keys.runs import MeasuredItem, ReportItem, RunDocument, TrackingItem
    from memsweep.report.publish import ReportPaths
    from memsweep.studies.ending import Ending


def run_document(ending: Ending, measured: Sequence[MeasuredItem] = ()) -> RunDocument:
    """The document of a run.

    Args:
        ending: of the run.
        measured: what was measured on a file of weights.
    """
    summary, profile = ending.summary, ending.summary.profile
    return {
        "study": ending.study,
        "trials": ending.trials,
        "reused": ending.reused,
        "finished": {identity: str(outcome) for identity, outcome in summary.finished.items()},
        "diverged": summary.diverged,
        "failed": [
            {
                "identity": identity,
                "outcome": str(failure["outcome"]),
                "error": failure["error"],
                "traceback": failure["traceback"],
            }
            for identity, failure in summary.failed.items()
        ],
        "left": ending.left,
        "stopped": stopped(ending) or None,
        "seconds": ending.seconds,
        "inline": ending.inline,
        "time": {"seconds": profile.makespan, "slots": profile.slots, "phases": dict(profile.seconds)},
        "report": None if ending.report is None else report_item(ending.report),
        "tracking": None if ending.tracking is None else _tracking(*ending.tracking),
        "tracking_lacks": ending.complaint or None,
        "measured": list(measured),
    }


def _tracking(uri: str, experiment: str | None, page: str) -> TrackingItem:
    return {"uri": uri, "experiment": experiment, "page": page or None}


_OWN = ("verdicts", "compared")
"""Tables that have a key of their own in the document."""


def report_item(paths: ReportPaths) -> ReportItem:
    """A report: its paths, and the rows of its tables as their CSV files hold them."""
    from memsweep.report.headline.answer import answer_of
    from memsweep.report.naming.guesses import guessed_roles
    from memsweep.report.rows.failures import failures_item

    contents, tables = paths.contents, paths.tables
    columns, study = contents.grouping.columns, contents.study
    verdicts = [
        {"condition": {name: row[name] for name in columns}, **{k: v for k, v in row.items() if k not in columns}}
        for row in rows_of(tables.verdicts.frame())
    ]
    claims = [row for table in tables.exported if table.name == "compared" for row in rows_of(table.frame())]
    return {
        "folder": str(paths.folder),
        "page": str(paths.page),
        "uri": paths.uri,
        "planned": study.planned,
        "missing": [row.identity for row in study.missing],
        "failures": failures_item(study.failures),
        "answers": list(answer_of(contents).sentences),
        "throughout": dict(contents.grouping.fixed),
        "coupled": [*contents.grouping.coupled],
        "guesses": guessed_roles(study.records.values()),
        "verdicts": verdicts,  # type: ignore[typeddict-item]  # rows of a DataFrame: the schema's test looks at them
        "claims": claims,  # type: ignore[typeddict-item]
        "tables": {table.name: rows_of(table.frame()) for table in tables.exported if table.name not in _OWN},
    }


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as plain data."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
