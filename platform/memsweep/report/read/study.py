"""A study as its folder holds it: the records, their tables, and what the plan still misses."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from memsweep.config.claims.types import Claims
from memsweep.errors import StoreError
from memsweep.outcome import Outcome
from memsweep.report.read.stored import read_results
from memsweep.search.history import SearchHistory
from memsweep.search.history import read as read_search
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.results import Store

DAMAGED = "damaged"
"""In place of an outcome, for a result that is there and cannot be read."""


@dataclass(frozen=True)
class MissingRow:
    """A planned trial without a result that can be used.

    Attributes:
        outcome: why, as an outcome's name; ``not run`` when nothing was tried yet; ``damaged``.
        reason: what the outcome means and what to do.
        traceback: of the last try; empty when there was none.
    """

    identity: str
    config: Mapping[str, Any]
    outcome: str
    reason: str
    traceback: str


@dataclass(frozen=True)
class Study:
    """Everything that a report is made from.

    Attributes:
        planned: number of trials in the plan (of stored results where there is no plan).
        records: identity -> record, in the order of the plan.
        tables: ``curves``, ``replicas``, ``memory``, ``history``, ``alignment``, one frame each over all records.
        missing: planned trials without a result that can be used.
        claims: what was published about the conditions; None where the study file claims nothing.
        protocol: the preset under the study's settings; empty where the plan does not say.
        left_out: stored results that the plan does not name (older code, other overrides).
        search: what was searched, and how it went; None for a study that searches nothing.
    """

    name: str
    description: str
    planned: int
    records: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, pd.DataFrame]
    missing: tuple[MissingRow, ...]
    left_out: int
    plan_provenance: Mapping[str, Any]
    claims: Claims | None
    protocol: str
    search: SearchHistory | None = None

    @property
    def damaged(self) -> int:
        """How many of the missing rows have a result that is damaged."""
        return sum(row.outcome == DAMAGED for row in self.missing)

    @property
    def resume(self) -> str:
        """The command that computes what is missing."""
        return f"memsweep resume {shlex.quote(self.name)}"


def load_study(where: Location | Path) -> Study:
    """Read a study's folder; damaged results are among the missing ones.

    Raises:
        StoreError: the folder does not exist, its plan is damaged, or the storage cannot be read.
    """
    place = Location.at(where)
    with storage_errors("read", place):
        if not (place.local.is_dir() if place.local else place.names() or place.folders()):
            raise StoreError(f"there is no study folder {place}. Run the study first, or check the workspace.")
    store, plan = Store(place), read_plan(place)
    stored = store.identities()
    planned = plan.rows if plan else {identity: {} for identity in sorted(stored)}
    chosen = [identity for identity in planned if identity in stored]
    results = read_results(store, chosen)
    failures = store.failures()
    first: Mapping[str, Any] = next(iter(results.records.values()), {})
    return Study(
        name=plan.study if plan else str(first.get("study", place.name)),
        description=plan.description if plan else "",
        planned=len(planned),
        records=results.records,
        tables=results.tables,
        missing=tuple(
            _missing(identity, config, results.damaged.get(identity, ""), failures.get(identity))
            for identity, config in planned.items()
            if identity not in results.records
        ),
        left_out=len(stored) - len(chosen),
        plan_provenance=plan.provenance if plan else {},
        claims=plan.claims if plan else None,
        protocol=plan.protocol if plan else "",
        search=read_search(place, plan) if plan else None,
    )


def _missing(identity: str, config: Mapping[str, Any], fault: str, failure: Mapping[str, Any] | None) -> MissingRow:
    if fault:
        reason = "The stored result is damaged, and left out here. memsweep resume computes it anew."
        return MissingRow(identity, config, DAMAGED, reason, fault)
    if failure is None:
        return MissingRow(identity, config, "not run", "No attempt has ended yet. Run the same command again.", "")
    outcome = str(failure.get("outcome", Outcome.FAILED))
    known = outcome in {str(member) for member in Outcome}
    reason = Outcome(outcome).explanation if known else "The last attempt left no result."
    return MissingRow(identity, config, outcome, reason, str(failure.get("traceback") or failure.get("error") or ""))
