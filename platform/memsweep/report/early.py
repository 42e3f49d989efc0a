"""Verdicts while a sweep runs: each as soon as all trials of its condition have a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from memsweep.errors import StoreError
from memsweep.report.analysis.bounds import MARK
from memsweep.report.analysis.findings import Finding, judge_conditions
from memsweep.report.naming.conditions import find_grouping, planned_replicas
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import slope_text
from memsweep.report.read.study import Study
from memsweep.report.rows.verdicts import LETTERS, SIGNS
from memsweep.report.terminal import STYLES
from memsweep.sweep.store.results import Store

_READ = ("curves", "replicas", "memory")


class EarlyVerdicts:
    """Judges every condition of a grid once, when its last trial has ended.

    Args:
        store: of the results.
        rows: identity -> config of every planned trial, as plain data.
        done: identities that had a result before; conditions that need no other trial are not judged.
    """

    def __init__(self, store: Store, rows: Mapping[str, Mapping[str, Any]], done: frozenset[str]) -> None:
        known = {identity: {"config": config} for identity, config in rows.items()}
        self._store = store
        self._grouping = find_grouping(known, planned_replicas(rows))
        self._labels = Labels([*self._grouping.conditions.values()])
        self._members: dict[tuple[Any, ...], list[str]] = {}
        for identity in rows:
            self._members.setdefault(self._key(identity), []).append(identity)
        self._waiting = {key: {*members} - done for key, members in self._members.items()}

    def ended(self, identity: str) -> Iterator[tuple[str, str]]:
        """A trial has a result: the lines that can be said now, each with its style."""
        if identity not in self._grouping.conditions:
            return
        waiting = self._waiting[self._key(identity)]
        waiting.discard(identity)
        if not waiting:
            yield from map(self._line, self._judged(self._members[self._key(identity)]))

    def _key(self, identity: str) -> tuple[Any, ...]:
        return tuple(self._grouping.conditions[identity].values())

    def _judged(self, members: list[str]) -> list[Finding]:
        try:
            results = [self._store.result(identity, _READ) for identity in members]
        except StoreError:  # the report says it, with the reason
            return []
        records = dict(zip(members, (record for record, _ in results), strict=True))
        tables = {name: pd.concat([part[name] for _, part in results], ignore_index=True) for name in _READ}
        study = Study("", "", len(members), records, tables, (), 0, None, "")
        return [finding for finding in judge_conditions(study, self._grouping) if finding.needs_verdict]

    def _line(self, finding: Finding) -> tuple[str, str]:
        word, (axis, slope) = finding.judgement.verdict.value, finding.deciding
        name = f"{self._labels.memory(finding.condition)}, {self._labels.machine(finding.condition)}"
        evidence = f"{LETTERS[axis]} {slope_text(slope)}" if slope.available else "no slope"
        return f"{SIGNS[word]} {word}{MARK if finding.bound else ''} {evidence}: {name} ({finding.ball})", STYLES[word]
