"""Trained weights that come with the repository: whole, small, and those whose accuracies docs/seeds.md tells."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd
import pytest
import safetensors.numpy

from benchmarks.published import seeds
from memsweep.sweep.planning.plan_file import FILES, read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.record import decode
from paths import ROOT

STORES = sorted((ROOT / "docs" / "evidence" / "stores").iterdir())
MIB = 2**20


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_a_kept_store_is_whole_and_small(store: Path) -> None:
    """As a sweep that finds it reads it: a record that was edited after it was sealed would be trained again."""
    paths = sorted((store / "records").glob("*.json"))
    records = [decode(path.read_bytes(), path.stem, path.name) for path in paths]
    kept = {path.relative_to(store).as_posix() for path in files(store)}
    expected = {f"records/{record['identity']}.json" for record in records} | {*FILES}
    plan = read_plan(Location.at(store))
    assert plan is not None
    for record in records:
        assert record["study"] == store.name
        assert record["outcome"] in ("done", "diverged")
        assert record["config"] == plan.rows[record["identity"]]
        for folder, told in record["files"].items():
            (path,) = (store / folder).glob(f"{record['identity']}.*")
            expected.add(path.relative_to(store).as_posix())
            assert hashlib.sha256(path.read_bytes()).hexdigest() == told["sha256"]
        weights = safetensors.numpy.load_file(store / "weights" / f"{record['identity']}.safetensors")
        assert {name.partition("/")[0] for name in weights} == {
            str(seed) for seed in range(record["config"]["training"]["seeds"])
        }
    assert records
    assert kept == expected
    assert sum(path.stat().st_size for path in files(store)) <= 30 * MIB


def test_all_kept_stores_are_small_together() -> None:
    assert sum(path.stat().st_size for store in STORES for path in files(store)) <= 150 * MIB


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_the_page_tells_the_accuracies_of_the_kept_weights(store: Path) -> None:
    told = pd.read_csv(seeds.RESULTS)
    rows = pd.DataFrame(seeds._accuracies(store), columns=seeds.COLUMNS)
    both = rows.merge(told, on=["study", "condition", "measured"], suffixes=("", "_told"))
    assert len(both) == len(rows) > 0
    for name in ("value", "low", "high", "seeds"):
        assert both[name].to_numpy() == pytest.approx(both[f"{name}_told"].to_numpy(), rel=1e-3, nan_ok=True)
