"""Every rule against sensitivities that are carried forward by dense matrices, in an account of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness import Options
from benchmarks.rules import rules
from benchmarks.rules.forward_mode import ACCOUNTS, Oracle
from benchmarks.rules.small_stacks import fits, flat, relative
from memsweep import registry


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("unit", ACCOUNTS)
def test_every_rule_is_what_forward_mode_carries(unit: str, layers: int) -> None:
    oracle = Oracle(unit, layers)
    able = [name for name in registry.names(registry.RULE) if fits(name, oracle.case.model.config)]
    assert len(able) == (8 if unit == "lru" else 5)
    for name in able:
        assert relative(flat(oracle.case.gradient(name)), oracle.gradient(name)) < 1e-10, name


@pytest.mark.more
def test_the_benchmark_writes_all_three_tables(tmp_path: Path) -> None:
    rules.run(Options(quick=True, out=tmp_path))
    rows = json.loads((tmp_path / "rules.json").read_text())["rows"]
    exact, memory, time = ([row for row in rows if row["table"] == name] for name in ("exactness", "memory", "time"))
    assert {row["depth"] for row in exact} == set(rules.DEPTHS)
    assert max(row["forward_mode"] for row in exact) < 1e-10
    assert max(row["last"] for row in exact if row["rule"] == "online_full") < 1e-10
    stepping, batched = ([row["bytes"] for row in memory if row["form"] == form] for form in ("stepping", "batched"))
    assert max(stepping) < min(batched)
    assert {row["unit"] for row in time} == set(ACCOUNTS)
    assert all(row["ratio"] > 0 for row in time)
