"""A study as its folder holds it: the records, their tables, and what the plan still misses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from memsweep.config.claims import Claims, claims_from_dict
from memsweep.errors import StoreError
from memsweep.outcome import Outcome
from memsweep.sweep.record import decode, from_json
from memsweep.sweep.tables import TABLES


@dataclass(frozen=True)
class MissingRow:
    """A planned trial without a result.

    Attributes:
        outcome: why, as an outcome's name; ``not run`` when nothing was tried yet.
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
        tables: ``curves``, ``replicas``, ``memory``, ``history``, one frame each over all records.
        missing: planned trials without a record.
        claims: what was published about the conditions; None where the study file claims nothing.
        protocol: the preset under the study's settings; empty where the plan does not say.
        left_out: stored results that the plan does not name (older code, other overrides).
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


def load_study(folder: Path) -> Study:
    """Read a study's folder.

    Raises:
        StoreError: the folder does not exist, or a file in it is damaged.
    """
    if not folder.is_dir():
        raise StoreError(f"there is no study folder {folder}. Run the study first, or check the workspace.")
    plan_file = folder / "plan.json"
    plan = from_json(_bytes(plan_file), plan_file) if plan_file.exists() else {}
    stored = {path.stem: path for path in sorted((folder / "records").glob("*.json"))}
    planned = {str(row["identity"]): row.get("config", {}) for row in plan.get("trials", [])}
    chosen = [identity for identity in planned if identity in stored] if plan else list(stored)
    records = {identity: decode(_bytes(stored[identity]), stored[identity]) for identity in chosen}
    first: Mapping[str, Any] = next(iter(records.values()), {})
    return Study(
        name=str(plan.get("study", first.get("study", folder.name))),
        description=str(plan.get("description") or ""),
        planned=len(planned) if plan else len(records),
        records=records,
        tables={name: _table(folder / name, chosen) for name in TABLES},
        missing=tuple(_missing(folder, key, planned[key]) for key in planned if key not in stored),
        left_out=len(stored) - len(chosen),
        plan_provenance=plan.get("provenance") or {},
        claims=claims_from_dict(plan.get("claims")),
        protocol=str(plan.get("protocol") or ""),
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _table(folder: Path, identities: Iterable[str]) -> pd.DataFrame:
    parts = []
    for path in (folder / f"{identity}.parquet" for identity in identities):
        if not path.exists():  # a model without a memory function, say, has no such table
            continue
        try:
            parts.append(pq.read_table(path, partitioning=None))
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{path} cannot be read ({error}). Remove its record and run the study again.") from error
    if not parts:
        return pd.DataFrame()
    # Permissive: a column that is null throughout one trial (a kernel without a rate) has no type of its own there.
    return pa.concat_tables(parts, promote_options="permissive").to_pandas()


def _missing(folder: Path, identity: str, config: Mapping[str, Any]) -> MissingRow:
    path = folder / "failures" / f"{identity}.json"
    if not path.exists():
        return MissingRow(identity, config, "not run", "No attempt has ended yet. Run the same command again.", "")
    failure = from_json(_bytes(path), path)
    outcome = str(failure.get("outcome", Outcome.FAILED))
    known = outcome in {str(member) for member in Outcome}
    reason = Outcome(outcome).explanation if known else "The last attempt left no result."
    return MissingRow(identity, config, outcome, reason, str(failure.get("traceback") or failure.get("error") or ""))
