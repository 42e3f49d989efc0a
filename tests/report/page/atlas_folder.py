"""Writes a study folder from the tables of the small atlas, as they stand in ``docs/atlas``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from memsweep import registry
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import columns
from paths import ROOT
from report_study import write_planned, write_trial

LOSSES = ROOT / "docs" / "atlas" / "losses.csv"
SEEDS = 8
LONGER = ("accuracy_2T", "accuracy_4T")


def write_atlas(folder: Path) -> None:
    """A trial of each line of losses.csv, whose seeds have its median, its least and its greatest value."""
    registry.discover()
    trials, store = list[dict[str, Any]](), Store(folder)
    for index, row in enumerate(pd.read_csv(LOSSES).to_dict("records")):
        identity, config = f"{index:032x}", _config(row)
        trials.append({"identity": identity, "config": config})
        write_trial(store, "atlas_small", identity, config, _tables(identity, row), {})
    write_planned(folder, {"study": "atlas_small", "description": "", "trials": trials})


def _config(row: dict[str, Any]) -> dict[str, Any]:
    task = {"name": row["task"], "horizon": row["horizon"]}
    longer = not math.isnan(row["accuracy_4T"])
    unit = {key: row[f"model.unit.{key}"] for key in ("convolution", "head_dim", "parameterization", "states")}
    unit = {"name": row["model.unit"]} | {key: value for key, value in unit.items() if value == value}
    return {
        "task": task | ({"test_factor": 4} if longer else {}),
        "model": {"name": row["model"], "width": row["width"], "unit": unit},
        "training": {"seeds": SEEDS, "first_seed": 0, "learning_rate": 0.01, "steps": 1200},
        "perturbation": {"balls": [], "radii": {"from": 1e-4, "to": 3.0, "count": 30}},
    }


def _seeds(row: dict[str, Any], name: str) -> list[float]:
    return [row[f"{name}_low"], *[row[name]] * (SEEDS - 2), row[f"{name}_high"]]


def _zero_loss(row: dict[str, Any]) -> float:
    """A loss of 0 says nothing of what it is a share of."""
    return float(row["loss"] / row["relative_loss"]) if row["relative_loss"] else 1.0


def _tables(identity: str, row: dict[str, Any]) -> dict[str, pd.DataFrame]:
    one = {"identity": identity, "horizon": row["horizon"], "width": row["width"], "seed": range(SEEDS)}
    one |= {"outcome": "done", "steps": 1200, "best_step": 1200, "margin": 0.1, "metric": row["metric"]}
    one |= {"error": _seeds(row, "loss"), "validation_loss": _seeds(row, "loss")}
    one |= {"zero_loss": _zero_loss(row), "memoryless_loss": row["memoryless_loss"]}
    metrics = [
        {"identity": identity, "seed": seed, "metric": name, "value": value}
        for name in LONGER
        if not math.isnan(row[name])
        for seed, value in enumerate(_seeds(row, name))
    ]
    made = {"replicas": pd.DataFrame(one | {"test_metric": _seeds(row, "metric_value")})}
    made |= {"metrics": pd.DataFrame(metrics, columns=list(columns("metrics")))}
    return made | {name: pd.DataFrame(columns=list(columns(name))) for name in ("curves", "memory")}
