"""Core seconds to each verdict, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import BALLS, Contents, Finding
from memsweep.report.analysis.effort import core_seconds, key_of, replaced_in
from memsweep.report.naming.numbers import figure
from memsweep.report.rows.verdicts import MOVES
from memsweep.report.values.section import Place, Section
from memsweep.report.values.table import CSV, NOTHING, Cell, Column, Table, condition_columns

WORDS = (
    "What each verdict took: the trials that a condition has, those that a round replaced (by a longer training, "
    "other radii or a stronger search), and the core seconds of both. A core second is a second by the clock of a "
    "process on one core. The balls of a condition share its trials."
)


@dataclass(frozen=True)
class _Row:
    """One condition.

    Attributes:
        findings: by ball.
        rounds: that went on with it.
        seconds: core seconds of ``trials`` and ``replaced``.
    """

    condition: Mapping[str, Any]
    findings: Mapping[str, Finding]
    rounds: int
    trials: int
    replaced: int
    seconds: float


def section(contents: Contents) -> Section:
    """The table, of a study that went on until it was decided; without rows of any other."""
    rows = [*_rows(contents)] if _was_decided(contents) else []
    title = "Core seconds to a verdict"
    columns: Sequence[Column[_Row]] = [
        *condition_columns(contents.grouping.columns, contents.labels),
        *(_verdict(ball) for ball in BALLS if any(ball in row.findings for row in rows)),
        Column("rounds", lambda row: row.rounds),
        Column("trials", lambda row: row.trials),
        Column("replaced", lambda row: row.replaced),
        Column("core seconds", lambda row: row.seconds, figure, key="core_seconds"),
    ]
    # of one run on one machine: killed and undisturbed runs have the same CSV files
    places = {CSV: Place.NOWHERE}
    return Section(title, WORDS, Table("time_to_verdict", title, rows, columns), heading=title, places=places)


def _was_decided(contents: Contents) -> bool:
    """Whether rounds were made, or the last command was to decide: the study's own plan may have been enough."""
    study = contents.study
    return bool(study.rounds) or study.command.split()[1:2] == ["decide"] or "decide(" in study.command


def _rows(contents: Contents) -> Iterator[_Row]:
    """A row for each condition that needs a verdict."""
    study, members = contents.study, {tuple(one.values()): names for one, names in contents.grouping.members()}
    for key, names in members.items():
        findings = {finding.ball: finding for finding in contents.verdicts if finding.key == key}
        if not findings:
            continue
        condition = next(iter(findings.values())).condition
        yield _Row(
            condition,
            findings,
            rounds=sum(key_of(condition) in one.keys for one in study.rounds),
            trials=len(names),
            replaced=len([*replaced_in(study, condition)]),
            seconds=core_seconds(study, condition, names),
        )


def _verdict(ball: str) -> Column[_Row]:
    def value(row: _Row) -> str | None:
        return row.findings[ball].judgement.verdict.value if ball in row.findings else None

    def cell(row: _Row) -> Cell:
        word = value(row)
        return Cell(NOTHING) if word is None else Cell(word, word)

    return Column(f"when {MOVES[ball]}", value, cell=cell, key=f"verdict_{ball}")
