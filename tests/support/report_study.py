"""Writes study folders with known answers: closed-form errors, so that every slope in the report is known.

E(radius) = L0 * (floor + (radius / reach)^2), infinite beyond 30 * reach, with
reach = base * (horizon / 50)^slope_horizon * (width / 2)^slope_width: the radius at a threshold scales like reach.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memsweep import registry
from memsweep.report import ReportPaths
from memsweep.sweep.planning.plan_file import SCHEMA
from memsweep.sweep.store.record import sealed
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import columns

registry.discover_when_asked("memsweep.models.parameterizations")  # as a report does
WIDTHS, HORIZONS, SEEDS = (2, 3, 5, 8), (50, 100, 200, 400), 5
ZERO_LOSS = 2.5
RADII = (0.0, *np.geomspace(1e-4, 3.0, 30).tolist())


@dataclass(frozen=True)
class Condition:
    """One condition and its truth: the slopes of its radius."""

    kernel: str | None = "polynomial"
    parameterization: str | None = "direct"
    base: float = 0.1
    slope_horizon: float = 0.0
    slope_width: float = 0.0
    floor: float = 1e-3
    task: str = "linear_functional"
    model: str = "diagonal_rnn"
    activation: str | None = "linear"
    normalize: bool | None = False
    training: Mapping[str, Any] = field(default_factory=dict)
    model_fields: Mapping[str, Any] = field(default_factory=dict)
    method: str = "worst_case"
    exact: bool = True
    found: float = math.nan  # of the worst error, at horizon 50; nan: no stronger search ran
    found_slope: float = 0.0  # of that share in the log of the horizon
    metric: str | None = None
    values: Sequence[float] = ()  # of the metric, by seed; none: 0.9, and 0.01 less for every further seed
    loss: float | None = None  # of the first seed, others a little higher; None: floor times the zero loss
    criterion: float | None = None
    memoryless: float = math.nan  # loss of the best model that forgets
    diverged: int = 0  # so many seeds, the last ones
    alignment: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # layer -> cosine and norm ratio

    @property
    def decay(self) -> tuple[float | None, float | None]:
        """Rate and exponent of the kernel."""
        return {"exponential": (1.0, None), "polynomial": (0.1, 1.1)}.get(str(self.kernel), (None, None))

    def target(self, lags: np.ndarray) -> np.ndarray:
        """The target memory."""
        return np.exp(-lags) if self.kernel == "exponential" else (1 + 0.1 * lags) ** -1.1


THEORY = (
    Condition(kernel="exponential", parameterization="direct", base=0.2),
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
    memory: bool = True,
    skip: Iterable[int] = (),
    failed: Mapping[int, str] | None = None,
    provenance: Mapping[str, Any] | None = None,
    claims: Mapping[str, Any] | None = None,
    first_identity: int = 0,
    complete: Callable[[int, dict[str, pd.DataFrame]], None] = lambda index, tables: None,
) -> list[str]:
    """Write a study folder as a sweep leaves it.

    Args:
        memory: whether the models have memory functions (without them a report is drawn faster).
        skip: positions in the plan of trials that have no result.
        claims: the plan's published claims.
        failed: position -> traceback of trials whose last attempt failed (they have no result either).
        first_identity: of the study's trials, which are numbered from it; studies with other trials need other ones.
        complete: given a position in the plan, changes the tables before they are stored.

    Returns:
        The identities of the plan, in order.
    """
    registry.discover()  # the tables of measures
    failed = dict(failed or {})
    without = {*skip, *failed}
    trials, store = [], Store(folder)
    for index, (condition, horizon, width) in enumerate(product(conditions, horizons, widths)):
        identity = f"{first_identity + index:032x}"
        config = config_of(condition, horizon, width, seeds)
        trials.append({"identity": identity, "config": config})
        if index in failed:
            store.fail(identity, {"outcome": "failed", "error": "ValueError: bad", "traceback": failed[index]})
        if index not in without:
            tables = tables_of(identity, config, condition, (horizon, width, seeds), balls)
            if not memory:
                del tables["memory"]
            complete(index, tables)
            write_trial(store, name, identity, config, tables, provenance or {})
    write_planned(
        folder, {"study": name, "description": "expected: as constructed", "trials": trials, "claims": claims}
    )
    return [trial["identity"] for trial in trials]


def exported(paths: ReportPaths, name: str, **options: Any) -> pd.DataFrame:
    """One of a report's CSV files."""
    return pd.read_csv(paths.folder / f"{name}.csv", **options)


def charts(paths: ReportPaths, section: str) -> list[dict[str, Any]]:
    """The charts that the page's script draws in a section."""
    page = paths.page.read_text(encoding="utf-8")
    assert f'data-charts="{section}"' in page
    data = page.split('id="data">')[1].split("</script>")[0]
    found: list[dict[str, Any]] = json.loads(data)["charts"][section]
    return found


def drawn(paths: ReportPaths) -> list[str]:
    """Names of a report's pictures."""
    return sorted(path.stem for path in (paths.folder / "figures").iterdir())


def config_of(condition: Condition, horizon: int, width: int, seeds: int) -> dict[str, Any]:
    rate, exponent = condition.decay
    task = {"name": condition.task, "kernel": condition.kernel, "rate": rate, "exponent": exponent, "horizon": horizon}
    model: dict[str, Any] = {"name": condition.model, "width": width, **condition.model_fields}
    if condition.parameterization is not None:
        model["parameterization"] = {"name": condition.parameterization}
    model |= {"activation": condition.activation, "normalize": condition.normalize}
    training = {"seeds": seeds, "first_seed": 0, "learning_rate": 0.01, "steps": 2500, **condition.training}
    training |= {"steps": 1000 * width} if training["steps"] == "1000 widths" else {}
    return {
        "task": {key: value for key, value in task.items() if value is not None},
        "model": {key: value for key, value in model.items() if value is not None},
        "training": training,
        "perturbation": {"balls": ["recurrent", "all"], "radii": {"from": 1e-4, "to": 3.0, "count": 30}},
    }


def _replica(condition: Condition, seed: int, seeds: int) -> dict[str, Any]:
    lost = seed >= seeds - condition.diverged
    loss = ZERO_LOSS * condition.floor if condition.loss is None else condition.loss * (1 + 0.1 * seed)
    row: dict[str, Any] = {"seed": seed, "outcome": "diverged" if lost else "done", "steps": 2500, "best_step": 2450}
    row |= {"validation_loss": 0.01, "error": np.inf if lost else loss, "zero_loss": ZERO_LOSS, "margin": 0.1}
    row |= {"memoryless_loss": condition.memoryless, "slowest_rate": 0.1, "encoder_norm": 1.0, "readout_norm": 1.0}
    if condition.metric is not None:
        value = condition.values[seed] if condition.values else 0.9 - 0.01 * seed
        row |= {"metric": condition.metric, "test_metric": np.nan if lost else value}
    if condition.criterion is not None:
        for name, share in (("max", 1.0), ("q90", 0.5), ("median", 0.1)):
            row[f"gradient_over_weight_{name}"] = share * condition.criterion * (1 + 0.1 * seed)
    return row


def _compared(identity: str, condition: Condition, seeds: int) -> list[dict[str, Any]]:
    """Gradients compared at three steps: means are the condition's for seed 0, of ratios the geometric ones."""
    return [
        {"identity": identity, "seed": seed, "step": 10 * step, "layer": layer}
        | {
            "cosine": cosine - 0.01 * seed + 0.02 * (step - 1),
            "norm_ratio": ratio * 4.0 ** (step - 1) * (1 + 0.1 * seed),
        }
        for seed in range(seeds)
        for step in range(3)
        for layer, (cosine, ratio) in condition.alignment.items()
    ]


def write_planned(folder: Path, plan: Mapping[str, Any]) -> None:
    """Write a plan as a sweep writes it."""
    whole = {"schema": SCHEMA, "serial": 1, "protocol": "published", "claims": None, **plan}
    whole |= {"grid": {}, "resources": {}, "tracking": {}, "provenance": {}}
    (folder / "plan.json").write_text(json.dumps(sealed(whole)))


def write_trial(
    store: Store,
    study: str,
    identity: str,
    config: dict[str, Any],
    tables: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Any],
) -> None:
    """Store a trial's record and tables; columns that the tables lack are empty."""
    about = {"code_fingerprint": "f00d", "code_revision": "abc1234", "versions": {"torch": "2.13.0", "python": "3.11"}}
    about |= {"processor": {"model": "one", "torch": "AVX2", "instructions": "fma"}, "host": "node-1", "device": "cpu"}
    about |= {"finished": "2026-01-02T03:04:05+00:00", "seconds": 12.5, "pack": identity, **provenance}
    record = {"identity": identity, "study": study, "outcome": "done", "config": config, "summary": {}}
    whole = {name: table.reindex(columns=list(columns(name))) for name, table in tables.items()}
    assert store.write(identity, {**record, "provenance": about}, whole)


def tables_of(
    identity: str, config: dict[str, Any], condition: Condition, size: tuple[int, int, int], balls: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """A trial's tables; its seeds begin with the config's first."""
    horizon, width, seeds = size
    named = {"identity": identity, "horizon": horizon, "width": width}
    curves, replicas, memory = [], [], []
    lags = np.arange(horizon)
    for seed in range(seeds):
        reach = condition.base * (horizon / 50) ** condition.slope_horizon * (width / 2) ** condition.slope_width
        reach *= 1 + 0.02 * np.sin(7.0 * seed + 3.0 * width + 0.1 * horizon)
        found = condition.found * (horizon / 50) ** condition.found_slope if seed % 5 == 0 else math.nan
        for ball, radius in product(balls, RADII):
            here = reach if ball == "recurrent" else 0.6 * reach
            error = ZERO_LOSS * (condition.floor + (radius / here) ** 2) if radius <= 30 * here else np.inf
            curve = {"seed": seed, "ball": ball, "norm": "spectral", "method": condition.method, "radius": radius}
            curves.append(
                {
                    **named,
                    **curve,
                    "error": error,
                    "zero_loss": ZERO_LOSS,
                    "exact": condition.exact,
                    "stronger": error / found,
                    "reading": "error",
                    "change": error,
                }
            )
        replicas.append({**named, **_replica(condition, seed, seeds)})
        learned = condition.target(lags) * (1 + 0.3 * np.sin(lags / 3 + seed))
        memory.append(
            pd.DataFrame(
                {"identity": identity, "seed": seed, "lag": lags, "learned": learned, "target": condition.target(lags)}
            )
        )
    names = None if curves else [*named, "seed", "ball", "radius", "error"]
    tables = {"curves": pd.DataFrame(curves, columns=names), "replicas": pd.DataFrame(replicas)}
    tables["memory"] = pd.concat(memory)
    if condition.alignment:
        tables["alignment"] = pd.DataFrame(_compared(identity, condition, seeds))
    for table in tables.values():
        table["seed"] += config["training"]["first_seed"]
    return tables


MODELS = (("diagonal_rnn", "linear"), ("diagonal_rnn", "hardtanh"), ("diagonal_rnn", "tanh"), ("ssm", "linear"))
MODELS += (("ssm", "tanh"), ("lru", "linear"), ("stable_ssm", None))
CLAIMED = {
    "source": "a published table",
    "rows": [
        {"name": "Diagonal RNN", "where": {"model": ["diagonal_rnn"], "parameterization": ["direct"]}}
        | {"exponential": "stable", "polynomial": "unstable"},
        {"name": "LRU", "where": {"model": ["lru"]}, "exponential": "stable", "polynomial": "unstable"},
        {"name": "Stable reparameterization", "where": {"parameterization": ["exp", "softplus"]}}
        | {"exponential": "stable", "polynomial": "stable"},
        {"name": "Transformer", "where": {"model": ["transformer"]}, "polynomial": "stable"},
    ],
}
"""A published table: one row that our conditions bear out, one that they contradict, one unmeasured."""


def gallery() -> list[Condition]:
    """Sixty conditions: seven models with four parameterizations and two without, on two kernels."""
    conditions = []
    for kernel, (model, activation) in product(("exponential", "polynomial"), MODELS):
        for name in ("direct", "exp", "softplus", "best(a=1.0, b=0.5)"):
            shrinks = -0.6 if (kernel, name) == ("polynomial", "direct") else -0.02
            shrinks = -0.2 if model == "stable_ssm" else shrinks
            one = {"kernel": kernel, "parameterization": name, "base": 0.3, "slope_horizon": shrinks}
            kind = {"model": model, "activation": activation, "normalize": None if model == "stable_ssm" else False}
            conditions.append(Condition(**one, **kind, exact=activation == "linear"))  # type: ignore[arg-type]
        if activation == "tanh":
            kind = {"model": "vanilla_rnn", "activation": "relu" if model == "ssm" else "tanh", "normalize": None}
            conditions.append(Condition(kernel=kernel, parameterization=None, slope_horizon=-0.5, exact=False, **kind))  # type: ignore[arg-type]
    return conditions


def rate_conditions(rates: Sequence[float] = (5e-4, 5e-3, 5e-2, 0.5, 5.0), **more: Any) -> list[Condition]:
    """A study of learning rates: ``direct`` diverges at the larger ones, wholly or in part, ``exp`` never."""
    conditions = []
    for (index, rate), name in product(enumerate(rates), ("direct", "exp")):
        lost = {3: 2, 4: SEEDS}.get(index, 0) if name == "direct" else 0
        loss = 0.2 * (1 + abs(index - 2)) * (1 if name == "exp" else 1.5)
        settings: dict[str, Any] = {"kernel": None, "task": "digits", "model": "stable_ssm", "activation": None}
        settings |= {"normalize": None, "metric": "accuracy", "criterion": 10.0 ** (index - 1), **more}
        conditions.append(
            Condition(parameterization=name, loss=loss, diverged=lost, training={"learning_rate": rate}, **settings)
        )
    return conditions


def longest(text: str) -> int:
    """Letters of its longest line, but for a command: it stays whole, to be copied."""
    return max(len(line) for line in text.splitlines() if not line.startswith(("To decide", "Or round")))
