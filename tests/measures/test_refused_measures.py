"""Registration refuses a measure whose rows the store could not take, before a trial is trained for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from memsweep import registry
from memsweep.errors import RegistryError
from memsweep.stability.optional import _ENGINES, Measure
from memsweep.sweep.store import journal, layout, lease, tables


@dataclass(frozen=True, kw_only=True)
class Config:
    """No settings."""


COMPLETE: dict[str, Any] = {
    "Config": Config,
    "table": "mean_leak",
    "columns": {"value": "float64"},
    "section": "somewhere:section",
    "cost": classmethod(lambda *_: 0.0),
    "rows": lambda *_: (),
}
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"table": "replicas"}, "has the table 'replicas', which is the engine's: call it otherwise"),
    ({"table": "curves"}, "which is the engine's"),
    ({"table": "weights"}, "which is the engine's"),
    ({"table": "memory_over_inputs"}, "which is that of the measure 'memory_over_inputs': call it otherwise"),
    ({"table": "../leak"}, "its name must be of a-z"),
    ({"columns": {"seed": "int64", "value": "float64"}}, "has the column 'seed', which each table has already"),
    ({"columns": {"width": "int64"}}, "has the column 'width'"),
    ({"columns": {"value": "double"}}, r"types that no table has \(value double\): there are bool, float64, int64"),
    ({"grows": {"size": "mean leak"}}, "grows names 'size', which is none of its columns: value"),
]


def measure(**attributes: Any) -> type:
    return type("MeanLeak", (Measure,), {**COMPLETE, **attributes})


@pytest.mark.parametrize(("attributes", "told"), FAULTS)
def test_a_table_that_could_not_be_stored_is_refused(attributes: dict[str, Any], told: str) -> None:
    registry.discover()
    with pytest.raises(RegistryError, match=rf"measure 'mean_leak' \(MeanLeak\) .*{told}"):
        registry.register_measure("mean_leak")(measure(**attributes))
    assert "mean_leak" not in registry.names(registry.MEASURE)


def test_what_a_measure_lacks_is_named() -> None:
    part = type("MeanLeak", (Measure,), {name: COMPLETE[name] for name in ("Config", "table", "cost", "rows")})
    with pytest.raises(RegistryError, match="lacks columns, section: define each"):
        registry.register_measure("mean_leak")(part)


def test_a_measure_that_can_be_stored_is_registered_twice() -> None:
    """A file may be imported twice; columns of sizes are free where a table has none."""
    with registry.lent(registry.MEASURE, "mean_leak", measure()):
        registry.register_measure("mean_leak")(measure())
    with registry.lent(registry.MEASURE, "mean_leak", measure(columns={"width": "int64"}, has_sizes=False)):
        pass


def test_names_of_the_engine_are_those_of_its_tables_and_folders() -> None:
    assert {*tables.DEFINITIONS} <= _ENGINES
    folders = {layout.WEIGHTS, layout.CHECKPOINTS, layout.STATES, layout.GIVEN, journal._FOLDER, lease._FOLDER}
    assert folders <= _ENGINES
