"""Sealed files are checked for the types of their values where they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_store import A, filled

from memsweep.errors import StoreError
from memsweep.sweep.planning.plan_file import SCHEMA, read_plan
from memsweep.sweep.store.record import sealed
from memsweep.sweep.store.results import Store

PLAN: dict[str, Any] = {
    **{"schema": SCHEMA, "serial": 0, "study": "s", "description": "", "trials": [], "protocol": "matched"},
    **{"claims": None, "grid": {}, "resources": {}, "tracking": {}, "provenance": {}},
}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tracking": 7}, "tracking must be _Tracking, got int"),
    ({"tracking": {"params": [1]}}, "tracking.params must be"),
    ({"provenance": 7}, "provenance must be"),
    ({"grid": {"model.width": 7}}, "grid.model.width must be"),
    ({"trials": {}}, "trials must be"),
    ({"trials": [{"identity": A}]}, r"trials\[0\] lacks config"),
    ({"trials": [{"identity": A, "config": {}}]}, "lacks model, perturbation, task, training"),
    ({"serial": 10**400}, "a whole number of 401 digits"),
    ({"serial": True}, "serial must be int, got bool"),
    ({"study": None}, "study must be str, got NoneType"),
]


def test_a_well_formed_plan_is_read(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(sealed(PLAN)))
    plan = read_plan(tmp_path)
    assert plan is not None
    assert plan.study == "s"


@pytest.mark.parametrize(("change", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_a_sealed_plan_with_a_value_of_another_type_is_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(sealed(PLAN | change)))
    with pytest.raises(StoreError, match=sentence):
        read_plan(tmp_path)


@pytest.mark.parametrize("key", ["study", "outcome", "config", "summary", "provenance", "files"])
@pytest.mark.parametrize("value", [None, 7, [[]], {"": []}, 10**400], ids=["null", "7", "list", "object", "400 digits"])
def test_a_sealed_record_with_a_value_of_another_type_is_damaged(tmp_path: Path, key: str, value: Any) -> None:
    filled(tmp_path, A)
    file = tmp_path / "records" / f"{A}.json"
    file.write_text(json.dumps(sealed(json.loads(file.read_text()) | {key: value})))
    if (key, value) == ("provenance", {"": []}):  # what no program reads may be anything
        assert Store(tmp_path).record(A)["provenance"] == value
    else:
        assert "memsweep resume STUDY recomputes what is damaged" in Store(tmp_path).check([A])[A]
