"""``plan.json`` of a study's folder: which trials belong to the study, results or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memsweep.config.canonical import to_dict
from memsweep.config.claims import claims_to_dict
from memsweep.sweep.atomic import Staged
from memsweep.sweep.plan import Plan
from memsweep.sweep.store import explained

FILE = "plan.json"
_SCHEMA = 1


def write_plan(folder: Path, plan: Plan, provenance: dict[str, Any]) -> None:
    """Write a plan before anything of it runs; it replaces the plan of an earlier sweep of the study.

    Raises:
        StoreError: the disk cannot take it.
    """
    content = {
        "schema": _SCHEMA,
        "study": plan.study,
        "description": plan.description,
        "trials": [{"identity": trial.identity, "config": to_dict(trial.config)} for trial in plan.trials],
        "protocol": plan.protocol,
        "claims": claims_to_dict(plan.claims) if plan.claims is not None else None,
        "provenance": provenance,
    }
    staging = folder / ".partial"
    with explained("write", folder):
        staging.mkdir(parents=True, exist_ok=True)
        Staged(folder / FILE, json.dumps(content, ensure_ascii=False).encode(), staging).commit()
