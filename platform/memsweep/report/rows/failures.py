"""The tables of what a study lacks: failures by cause, trials without a result, trials that ended unusually."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsweep.outcome import Outcome
from memsweep.report.naming.numbers import show
from memsweep.report.read.failures import FailureGroup, failure_lines
from memsweep.report.read.fields import varied_fields
from memsweep.report.read.study import DAMAGED, MissingRow, Study
from memsweep.report.values.table import SHOWN, Cell, Column, Table

if TYPE_CHECKING:
    from memsweep.documents.keys.shared import FailuresItem


def failure_table(study: Study) -> Table[FailureGroup]:
    """The causes of failures, the most frequent first."""
    columns: list[Column[FailureGroup]] = [
        Column("trials", lambda row: f"{row.count} of {row.planned}", views=SHOWN),
        Column("cause", lambda row: row.cause, cell=lambda row: Cell(row.cause, "bad"), views=SHOWN, style=""),
        Column("settings they share", lambda row: row.where or "none of their own", views=SHOWN, style=""),
        Column("line of code", _line, cell=lambda row: Cell(_line(row), detail=_detail(row.traceback)), views=SHOWN),
        Column("next step", lambda row: row.advice, views=SHOWN, style=""),
    ]
    return Table("failures", "Failures by cause", study.failures, columns)


def _line(row: FailureGroup) -> str:
    return f"{row.file}:{row.line}" if row.file else "not known"


def _detail(traceback: str, heading: str = "traceback") -> tuple[str, str] | None:
    return (heading, traceback) if traceback else None


def missing_table(study: Study) -> Table[MissingRow]:
    """The planned trials without a result by their settings, those that failed first."""
    settings = _settings(study)
    columns: list[Column[MissingRow]] = [
        Column("settings", lambda row: settings[row.identity] or "the only such trial", views=SHOWN, style=""),
        Column("outcome", lambda row: row.outcome, cell=lambda row: Cell(_words(row.outcome), "bad"), views=SHOWN),
        Column("cause or next step", lambda row: row.error or row.reason, cell=_reason, views=SHOWN, style=""),
        Column("trial", lambda row: row.identity, views=SHOWN, style="id"),
    ]
    rows = sorted(study.missing, key=lambda row: (not row.error, row.outcome != DAMAGED))
    return Table("missing", "Trials without a result", rows, columns)


def _reason(row: MissingRow) -> Cell:
    said = (row.error.splitlines() or [row.reason])[0]
    return Cell(said, detail=_detail(row.traceback, "fault" if row.outcome == DAMAGED else "traceback"))


def unusual_table(study: Study) -> Table[tuple[str, str]]:
    """The stored trials with seeds that diverged or stopped early, and how many of them did."""
    replicas, settings = study.tables["replicas"], _settings(study)
    rows = []
    for identity, outcomes in replicas.groupby("identity", sort=False)["outcome"]:
        others = outcomes[outcomes != Outcome.DONE].value_counts()
        seeds = ", ".join(f"{count} of {len(outcomes)} seeds {_words(name)}" for name, count in others.items())
        rows += [(str(identity), seeds)] if seeds else []
    columns: list[Column[tuple[str, str]]] = [
        Column("settings", lambda row: settings[row[0]] or "the only such trial", views=SHOWN, style=""),
        Column("seeds", lambda row: row[1], views=SHOWN, style=""),
        Column("trial", lambda row: row[0], views=SHOWN, style="id"),
    ]
    return Table("unusual", "Trials that ended unusually", rows, columns)


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def _settings(study: Study) -> dict[str, str]:
    """identity -> the fields in which the planned trials differ: ``task.horizon 400, model.width 8``."""
    configs = {identity: record["config"] for identity, record in study.records.items()}
    configs |= {row.identity: row.config for row in study.missing}
    return {
        identity: ", ".join(f"{name} {show(value)}" for name, value in fields.items())
        for identity, fields in varied_fields(configs).items()
    }


def failures_item(groups: Sequence[FailureGroup]) -> FailuresItem:
    """The failures of a study by cause, in words and one by one."""
    return {
        "words": failure_lines(groups),
        "causes": [
            {
                "outcome": group.outcome,
                "error": group.kind,
                "text": group.text,
                "file": group.file or None,
                "line": group.line or None,
                "settings": {path: list(values) for path, values in group.settings.items()},
                "trials": list(group.identities),
            }
            for group in groups
        ],
    }
