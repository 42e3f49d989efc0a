"""``plan.json`` of a study's folder: its trials, and everything else that ``resume`` needs.

It is written twice, one copy after the other, so that one damaged file loses nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from memsweep.config.core.build import config_from
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.claims import claims_from_dict
from memsweep.config.schema.search import ConfirmConfig
from memsweep.config.schema.study import KEEP, ResourcesConfig, SweepConfig
from memsweep.config.search.sections import search_from_dict, search_to_dict
from memsweep.errors import ConfigError, StoreError
from memsweep.sweep.planning.identity import without_later
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.form import Form, OtherSchemaError, require
from memsweep.sweep.store.record import MEND, Record, from_json, of_form, require_config, sealed, to_json

if TYPE_CHECKING:
    from memsweep.config.schema.claims import Claims
    from memsweep.config.schema.search import Search
    from memsweep.sweep.planning.plan import Plan

FILES = ("plan.copy.json", "plan.json")
"""In the order in which they are written."""
SCHEMA = 3
_FORM = Form[dict[str, Any]](SCHEMA)


@dataclass(frozen=True)
class StoredPlan:
    """The plan as it is stored in the folder of a study.

    Attributes:
        rows: identity -> canonical config, in the order of the plan.
        grid: the axes as they were written.
        resources: what one pack asks for, as plain data.
        tracking: params and tags of the sweep's own run in MLflow, and what names its trials' runs.
        provenance: when, and by which code, the plan was made.
        serial: one more than the plan before it.
        cells: canonical configs of the grid that is searched, in its order; the rows are then the search's.
        search: what is searched.
        confirm: how the winners are retrained with fresh seeds.
        keep: what of a trained trial is kept beside its tables.
        extended: identities of the trials that ``memsweep extend`` added; ``search`` where it extended a search.
    """

    study: str
    description: str
    rows: Mapping[str, Mapping[str, Any]]
    protocol: str
    claims: Claims | None
    grid: Mapping[str, Any]
    resources: Mapping[str, Any]
    tracking: Mapping[str, Any]
    provenance: Mapping[str, Any]
    serial: int
    cells: Sequence[Mapping[str, Any]] = ()
    search: Search | None = None
    confirm: ConfirmConfig | None = None
    keep: str = KEEP[0]
    extended: tuple[str, ...] = ()

    def sweep(self) -> SweepConfig:
        """The study as its study file once said it.

        Raises:
            ConfigError: a row is no valid trial here (a part is not registered, or a field has changed since).
        """
        return SweepConfig(
            name=self.study,
            rows=tuple(map(trial_from_dict, self.rows.values() if self.search is None else self.cells)),
            grid={path: tuple(values) for path, values in self.grid.items()},
            resources=config_from(ResourcesConfig, self.resources, "the stored resources"),
            description=self.description,
            claims=self.claims,
            protocol=self.protocol,
            search=self.search,
            confirm=self.confirm,
            keep=self.keep,
        )


def write_plan(
    location: Location | Path,
    plan: Plan,
    provenance: Mapping[str, Any],
    tracking: Mapping[str, Any] | None = None,
    extended: Sequence[str] = (),
) -> None:
    """Write a plan before anything of it runs; it replaces the plan of an earlier sweep of the study.

    Args:
        location: the study's folder.
        plan: the study and its trials; those of a search are what was suggested so far.
        provenance: when, and by which code.
        tracking: ``params``, ``tags`` and ``varied``, as for ``memsweep.sweep.tracking.Tracker``.
        extended: as of ``StoredPlan``.

    Raises:
        StoreError: the storage cannot take it.
    """
    location = Location.at(location)
    content = {**_content(plan, tracking, extended), "serial": _next_serial(location), "provenance": provenance}
    data = to_json(sealed(_json(content)), "the plan")
    with storage_errors("write", location):
        for name in FILES:
            location.write(name, data)


def is_stored(
    before: StoredPlan, plan: Plan, tracking: Mapping[str, Any] | None = None, extended: Sequence[str] = ()
) -> bool:
    """Whether ``write_plan`` would change nothing but serial and provenance of the stored plan."""
    content = {**_content(plan, tracking, extended), "serial": before.serial, "provenance": before.provenance}
    new = _plan(sealed(_json(content)), "the plan")
    return new == before and [*new.rows] == [*before.rows]


def _content(plan: Plan, tracking: Mapping[str, Any] | None, extended: Sequence[str]) -> dict[str, Any]:
    """Everything but serial and provenance."""
    sweep = plan.sweep
    content = {
        "schema": SCHEMA,
        "study": sweep.name,
        "description": sweep.description,
        "trials": [{"identity": trial.identity, "config": to_dict(trial.config)} for trial in plan.trials],
        "protocol": sweep.protocol,
        "keep": sweep.keep,
        "claims": dataclasses.asdict(sweep.claims) if sweep.claims is not None else None,
        "grid": sweep.grid,
        "resources": without_later(to_dict(sweep.resources), sweep.resources),
        "tracking": tracking or {},
        "extended": list(extended),
    }
    if sweep.search is not None:
        content |= {
            "search": search_to_dict(sweep.search),
            "confirm": to_dict(sweep.confirm) if sweep.confirm is not None else None,
            "cells": [to_dict(cell) for cell in sweep.rows],
        }
    return content


def _json(content: Mapping[str, Any]) -> dict[str, Any]:
    """As it will be read."""
    return cast("dict[str, Any]", json.loads(json.dumps(content, default=_plain)))


def _next_serial(location: Location) -> int:
    before = plan_to_replace(location)
    return before.serial + 1 if before else 0


def plan_to_replace(location: Location | Path) -> StoredPlan | None:
    """The plan that a new one will replace; None where there is none, or a damaged one.

    Raises:
        StoreError: the storage gives no answer, or the plan is of a schema that this version does not know.
    """
    try:
        return read_plan(location)
    except OtherSchemaError:
        raise
    except StoreError as error:
        if isinstance(error.__cause__, OSError):
            raise
        return None


def read_plan(location: Location | Path) -> StoredPlan | None:
    """The plan of a study's folder; None where there is none.

    Raises:
        StoreError: both of its files are damaged, or of a schema that this version does not know.
    """
    location = Location.at(location)
    plans: list[StoredPlan] = []
    faults: list[StoreError] = []
    for name in reversed(FILES):
        where = f"{location}/{name}"
        try:
            with storage_errors("read", where):
                plans.append(_plan(from_json(location.read(name), where), where))
        except OtherSchemaError:
            raise
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue
            if isinstance(error.__cause__, OSError):  # no answer of the storage: the plan may be intact
                raise
            faults.append(error)
    if not plans and faults:
        raise StoreError(
            f"the plan of this study is damaged: {str(faults[0]).removesuffix(MEND).rstrip()} No result is lost by "
            "this: run the study file once more (memsweep sweep STUDY), which writes the plan again and reuses them."
        ) from faults[0]
    return max(plans, key=lambda plan: plan.serial, default=None)


def no_plan(location: Location) -> str:
    """Says that the folder of a study holds no plan, and what to do."""
    if location.names("records"):
        return (
            f"{location} holds results but no plan: run its study file once more (memsweep sweep STUDY), which writes "
            "the plan again and reuses the results. memsweep measure needs no plan."
        )
    return f"there is no study in {location}. Run the study first, or give another folder with --results."


def of_records(study: str, records: Iterable[Record]) -> StoredPlan:
    """A plan of the trials that a store holds, for one that lacks its own: of the study itself it knows the name."""
    return StoredPlan(
        study=study,
        description="",
        rows={record["identity"]: record["config"] for record in records},
        protocol="",
        claims=None,
        grid={},
        resources=to_dict(ResourcesConfig()),
        tracking={},
        provenance={},
        serial=0,
    )


class _Row(TypedDict):
    identity: str
    config: dict[str, Any]


class _Tracking(TypedDict, total=False):
    params: dict[str, str | float | bool | None]
    tags: dict[str, str]
    varied: list[str]


class _Plan(TypedDict):
    """The JSON object in ``plan.json`` of a study without a search."""

    serial: int
    study: str
    description: str
    trials: list[_Row]
    protocol: str
    claims: dict[str, Any] | None
    grid: dict[str, list[Any]]
    resources: dict[str, Any]
    tracking: _Tracking
    provenance: dict[str, Any]


class _SearchPlan(_Plan, total=False):
    keep: str
    extended: list[str]
    search: dict[str, Any] | None
    confirm: dict[str, Any] | None
    cells: list[dict[str, Any]]


def _plan(content: dict[str, Any], where: str) -> StoredPlan:
    data = of_form(_FORM, content, where)
    require(data, _SearchPlan, where, "")
    cells, confirm = data.get("cells", []), data.get("confirm")
    for config in [*(row["config"] for row in data["trials"]), *cells]:
        require_config(config, where, "")
    try:
        return StoredPlan(
            study=data["study"],
            description=data["description"],
            rows={row["identity"]: row["config"] for row in data["trials"]},
            protocol=data["protocol"],
            claims=claims_from_dict(data["claims"]),
            grid=data["grid"],
            resources=data["resources"],
            tracking=data["tracking"],
            provenance=data["provenance"],
            serial=data["serial"],
            cells=tuple(cells),
            search=search_from_dict(data.get("search")),
            confirm=config_from(ConfirmConfig, confirm, "the stored confirmation") if confirm is not None else None,
            keep=data.get("keep", KEEP[0]),
            extended=tuple(data.get("extended", [])),
        )
    except ConfigError as error:
        raise StoreError(f"{where} holds a search that this version cannot read: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(f"{where} is no plan ({type(error).__name__}: {error}).") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    return str(value)
