"""Writes study folders with known answers: closed-form errors, so that every slope in the report is known.

E(radius) = L0 * (floor + (radius / reach)^2), infinite beyond 30 * reach, with
reach = base * (horizon / 50)^slope_horizon * (width / 2)^slope_width: the radius at a threshold scales like reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

WIDTHS, HORIZONS, SEEDS = (2, 3, 4, 6, 8), (50, 100, 200, 400), 5
ZERO_LOSS = 2.5
RADII = (0.0, *np.geomspace(1e-4, 3.0, 30).tolist())


@dataclass(frozen=True)
class Condition:
    """One condition and its truth: the slopes of its radius."""

    kernel: str | None = "polynomial"
    parameterization: str = "direct"
    base: float = 0.1
    slope_horizon: float = 0.0
    slope_width: float = 0.0
    floor: float = 1e-3
    task: str = "linear_functional"
    model: str = "diagonal_rnn"
    activation: str | None = "linear"
    normalize: bool | None = False
    training: Mapping[str, Any] = field(default_factory=dict)

    @property
    def decay(self) -> tuple[float | None, float | None]:
        """Rate and exponent of the kernel."""
        return {"exponential": (1.0, None), "polynomial": (0.1, 1.1)}.get(str(self.kernel), (None, None))

    def target(self, lags: np.ndarray) -> np.ndarray:
        """The target memory."""
        return np.exp(-lags) if self.kernel == "exponential" else (1 + 0.1 * lags) ** -1.1


THEORY = (
    Condition(kernel="exponential", parameterization="direct", base=0.2),
    Condition(kernel="exponential", parameterization="exp", base=0.6),
    Condition(kernel="exponential", parameterization="softplus", base=0.85),
    Condition(kernel="polynomial", parameterization="direct", base=0.05, slope_horizon=-0.6),
    Condition(kernel="polynomial", parameterization="exp", base=0.6, slope_horizon=-0.05),
    Condition(kernel="polynomial", parameterization="softplus", base=0.7, slope_horizon=-0.05),
)


def write_study(
    folder: Path,
    conditions: Iterable[Condition] = THEORY,
    *,
    name: str = "synthetic",
    widths: Sequence[int] = WIDTHS,
    horizons: Sequence[int] = HORIZONS,
    seeds: int = SEEDS,
    balls: Sequence[str] = ("recurrent", "all"),
    skip: Iterable[int] = (),
    failed: Mapping[int, str] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> list[str]:
    """Write a study folder as a sweep leaves it.

    Args:
        skip: positions in the plan of trials that have no result.
        failed: position -> traceback of trials whose last attempt failed (they have no result either).

    Returns:
        The identities of the plan, in order.
    """
    failed = dict(failed or {})
    without = {*skip, *failed}
    for part in ("records", "curves", "replicas", "memory", "history", "failures"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    trials = []
    for index, (condition, horizon, width) in enumerate(product(conditions, horizons, widths)):
        identity = f"{index:032x}"
        config = _config(condition, horizon, width, seeds)
        trials.append({"identity": identity, "config": config})
        if index in failed:
            failure = {"identity": identity, "outcome": "failed", "traceback": failed[index]}
            (folder / "failures" / f"{identity}.json").write_text(json.dumps(failure))
        if index not in without:
            _write_trial(folder, name, identity, config, condition, (horizon, width, seeds), balls, provenance or {})
    plan = {"study": name, "description": "expected: as constructed", "trials": trials, "provenance": {}}
    (folder / "plan.json").write_text(json.dumps(plan))
    return [trial["identity"] for trial in trials]


def _config(condition: Condition, horizon: int, width: int, seeds: int) -> dict[str, Any]:
    rate, exponent = condition.decay
    task = {"name": condition.task, "kernel": condition.kernel, "rate": rate, "exponent": exponent, "horizon": horizon}
    model = {"name": condition.model, "width": width, "parameterization": {"name": condition.parameterization}}
    model |= {"activation": condition.activation, "normalize": condition.normalize}
    training = {"seeds": seeds, "first_seed": 0, "learning_rate": 0.01, "steps": 2500, **condition.training}
    return {
        "task": {key: value for key, value in task.items() if value is not None},
        "model": {key: value for key, value in model.items() if value is not None},
        "training": training,
        "perturbation": {"balls": ["recurrent", "all"], "radii": {"from": 1e-4, "to": 3.0, "count": 30}},
    }


def _write_trial(
    folder: Path,
    name: str,
    identity: str,
    config: dict[str, Any],
    condition: Condition,
    size: tuple[int | None, int, int],
    balls: Sequence[str],
    provenance: Mapping[str, Any],
) -> None:
    horizon, width, seeds = size
    rate, exponent = condition.decay
    named = {
        **{"identity": identity, "task": condition.task, "kernel": condition.kernel, "rate": rate},
        **{"exponent": exponent, "horizon": horizon, "model": condition.model, "activation": condition.activation},
        **{"parameterization": condition.parameterization, "normalize": condition.normalize, "width": width},
    }
    curves, replicas, memory = [], [], []
    lags = np.arange(horizon)
    for seed in range(seeds):
        reach = condition.base * (horizon / 50) ** condition.slope_horizon * (width / 2) ** condition.slope_width
        reach *= 1 + 0.02 * np.sin(7.0 * seed + 3.0 * width + 0.1 * horizon)
        for ball, radius in product(balls, RADII):
            here = reach if ball == "recurrent" else 0.6 * reach
            error = ZERO_LOSS * (condition.floor + (radius / here) ** 2) if radius <= 30 * here else np.inf
            curve = {"seed": seed, "ball": ball, "norm": "spectral", "method": "worst_case", "radius": radius}
            curves.append({**named, **curve, "error": error, "zero_loss": ZERO_LOSS})
        replica = {"seed": seed, "outcome": "done", "steps": 2500, "best_step": 2450, "validation_loss": 0.01}
        replica |= {"error": ZERO_LOSS * condition.floor, "zero_loss": ZERO_LOSS, "margin": 0.1, "slowest_rate": 0.1}
        replicas.append({**named, **replica, "encoder_norm": 1.0, "readout_norm": 1.0})
        learned = condition.target(lags) * (1 + 0.3 * np.sin(lags / 3 + seed))
        memory.append(
            pd.DataFrame(
                {"identity": identity, "seed": seed, "lag": lags, "learned": learned, "target": condition.target(lags)}
            )
        )
    pd.DataFrame(curves).to_parquet(folder / "curves" / f"{identity}.parquet")
    pd.DataFrame(replicas).to_parquet(folder / "replicas" / f"{identity}.parquet")
    pd.concat(memory).to_parquet(folder / "memory" / f"{identity}.parquet")
    record = {
        **{"schema": 1, "identity": identity, "study": name, "outcome": "done", "config": config, "summary": {}},
        "provenance": {
            **{
                "code_fingerprint": "f00d",
                "code_revision": "abc1234",
                "versions": {"torch": "2.13.0", "python": "3.11"},
            },
            **{"host": "node-1", "device": "cpu", "finished": "2026-01-02T03:04:05+00:00", "seconds": 12.5},
            **{"pack": [identity], **provenance},
        },
    }
    (folder / "records" / f"{identity}.json").write_text(json.dumps(record))
