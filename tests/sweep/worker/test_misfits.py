"""Rows that a table cannot take cost their measure, and not the trial."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from engine import trial
from memsweep import registry
from memsweep.measures.capacity import Capacity
from memsweep.measures.linear_readout import LinearReadout
from memsweep.outcome import Outcome
from memsweep.stability.results import TrialResult
from memsweep.sweep.worker.misfits import without_misfits

SIZE = {"horizon": 8, "width": 4, "seed": 0}
RIGHT = SIZE | {"best": 0.5, "trained": 0.6, "states": 4}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"best": "abc"}, "column 'best' must be double: "),
    ({"best": None}, "column 'best' has 1 empty values"),
    ({"bes": 1.0}, "wrong columns (missing: none; unknown: bes). Allowed are exactly: identity, horizon"),
    ({"states": 2**70}, "column 'states' must be int64"),
]


def result(readout: dict[str, Any], **summary: Any) -> TrialResult:
    values = pd.DataFrame([SIZE | {"map": "memory", "index": 0, "value": 1.0}])
    tables = {LinearReadout.table: pd.DataFrame([readout]), Capacity.table: values}
    return TrialResult(trial(), Outcome.DONE, {"error": 0.1, **summary}, tables, {})


@pytest.mark.parametrize(("changed", "told"), WRONG)
def test_rows_that_do_not_fit_are_not_measured(changed: dict[str, Any], told: str) -> None:
    registry.discover()
    kept = without_misfits("a1", result(RIGHT | changed, not_measured="memory function: no"))
    assert kept.tables.keys() == {Capacity.table}
    assert kept.summary["error"] == 0.1
    assert str(kept.summary["not_measured"]).startswith(f"memory function: no; linear readout: {told}")


def test_rows_that_fit_stay() -> None:
    registry.discover()
    found = result(RIGHT)
    assert without_misfits("a1", found) is found
