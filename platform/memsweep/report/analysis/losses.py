"""Final losses and metrics by condition: the answer of tasks that ask no question of stability."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from memsweep.outcome import Outcome
from memsweep.report.naming.conditions import CONDITION, Grouping, group
from memsweep.report.read.study import Study

_LOSSES = ("test_loss", "error", "validation_loss")
"""Where a replica's loss without perturbation is found, best first."""
CRITERIA = ("gradient_over_weight_max", "gradient_over_weight_q90", "gradient_over_weight_median")
LOSS_COLUMNS = (
    *("task", *CONDITION, "width", "horizon", "seeds", "diverged", "loss", "loss_low", "loss_high", "relative_loss"),
    *("metric", "metric_value", "metric_low", "metric_high", *CRITERIA),
    *("memoryless_loss", "below_memoryless"),
)
BELOW = 0.99
"""A loss of more than this share of the memoryless baseline is at it: training noise moves it so far."""


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest over the seeds; nan where nothing was measured, inf where it was not finite."""

    middle: float
    low: float
    high: float

    @staticmethod
    def of(values: Any) -> Spread:
        """Over the values that are not nan."""
        known = np.asarray(values, float)
        known = np.sort(known[~np.isnan(known)])
        if not known.size:
            return Spread(math.nan, math.nan, math.nan)
        inner = known[(known.size - 1) // 2 : known.size // 2 + 1]  # one value or two, of which one may be inf
        return Spread(float(inner.sum() / inner.size), float(known[0]), float(known[-1]))


@dataclass(frozen=True)
class LossRow:
    """The replicas of one condition, width and horizon.

    Attributes:
        condition: column -> value, as in a Finding.
        width, horizon: None where the model or the task has none.
        diverged: how many of the ``seeds`` ended without a finite loss.
        loss: unperturbed test loss; a diverged seed's is infinite.
        zero_loss: of the zero predictor.
        metric: name of the task's metric; empty without one.
        value: of the metric.
        criteria: name in CRITERIA -> the gradient-over-weight criterion over training.
        identities: the trials.
        memoryless: loss of the best model that forgets each input; nan in results of older code.
        below: how many seeds have a loss below ``BELOW`` of it.
        loss_of, value_of: seed -> its loss, and its metric.
    """

    condition: Mapping[str, Any]
    width: float | None
    horizon: float | None
    seeds: int
    diverged: int
    loss: Spread
    zero_loss: float
    metric: str
    value: Spread
    criteria: Mapping[str, Spread]
    identities: tuple[str, ...]
    memoryless: float = math.nan
    below: int = 0
    loss_of: Mapping[int, float] = field(default_factory=dict)
    value_of: Mapping[int, float] = field(default_factory=dict)

    @property
    def beats_memoryless(self) -> bool:
        """Whether all seeds are below the memoryless baseline."""
        return self.below == self.seeds


def loss_rows(study: Study, grouping: Grouping) -> list[LossRow]:
    """One row per condition, width and horizon, in the order of the plan."""
    replicas = grouping.attach(study.tables["replicas"])
    rows = []
    for condition, part in group(replicas, ["task", *CONDITION, *grouping.columns]):
        rows += [_row(condition, size, seeds) for size, seeds in group(part, ["width", "horizon"])]
    return rows


def largest(rows: Sequence[LossRow]) -> list[LossRow]:
    """Of each condition, the row of its longest horizon, and there of the widest."""
    found: dict[tuple[object, ...], LossRow] = {}
    for row in rows:
        key = tuple(row.condition.values())
        found[key] = max(found.get(key, row), row, key=lambda r: (r.horizon or 0.0, r.width or 0.0))
    return list(found.values())


def loss_frame(rows: Sequence[LossRow], extra: Sequence[str]) -> pd.DataFrame:
    """The rows as a table: LOSS_COLUMNS, then the study's extra columns."""
    return pd.DataFrame([_plain(row) for row in rows], columns=[*LOSS_COLUMNS, *extra])


def _row(condition: Mapping[str, Any], size: Mapping[str, Any], seeds: pd.DataFrame) -> LossRow:
    diverged = (seeds["outcome"] == Outcome.DIVERGED).to_numpy()
    loss = _losses(seeds)
    diverged = diverged | np.isinf(loss)
    loss = np.where(diverged, math.inf, loss)
    memoryless = float(seeds["memoryless_loss"].median()) if "memoryless_loss" in seeds else math.nan
    names = list(seeds["metric"].dropna().unique()) if "metric" in seeds else []
    return LossRow(
        condition=condition,
        width=size.get("width"),
        horizon=size.get("horizon"),
        seeds=len(seeds),
        diverged=int(diverged.sum()),
        loss=Spread.of(loss),
        zero_loss=float(seeds["zero_loss"].median()) if "zero_loss" in seeds else math.nan,
        metric=str(names[0]) if names else "",
        value=_spread(seeds, "test_metric"),
        criteria={name: _spread(seeds, name) for name in CRITERIA},
        identities=tuple(seeds["identity"].unique()),
        memoryless=memoryless,
        below=int((loss < BELOW * memoryless).sum()),
        loss_of=_of_seeds(seeds, loss),
        value_of=_of_seeds(seeds, seeds["test_metric"]) if "test_metric" in seeds else {},
    )


def _losses(seeds: pd.DataFrame) -> np.ndarray:
    loss = np.full(len(seeds), math.nan)
    for name in _LOSSES:
        if name in seeds:
            loss = np.where(np.isnan(loss), seeds[name].to_numpy(float), loss)
    return loss


def _of_seeds(seeds: pd.DataFrame, values: Any) -> dict[int, float]:
    return {int(seed): float(value) for seed, value in zip(seeds["seed"], values, strict=True)}


def _spread(seeds: pd.DataFrame, column: str) -> Spread:
    return Spread.of(seeds.get(column, []))


def _plain(row: LossRow) -> dict[str, Any]:
    data: dict[str, Any] = {**row.condition, "width": row.width, "horizon": row.horizon, "seeds": row.seeds}
    data |= {"diverged": row.diverged, "loss": row.loss.middle, "loss_low": row.loss.low, "loss_high": row.loss.high}
    data |= {"relative_loss": row.loss.middle / row.zero_loss if row.zero_loss > 0 else math.nan}
    data |= {"metric": row.metric or None, "metric_value": row.value.middle}
    data |= {"metric_low": row.value.low, "metric_high": row.value.high}
    data |= {name: spread.middle for name, spread in row.criteria.items()}
    return data | {"memoryless_loss": row.memoryless, "below_memoryless": row.below if row.memoryless > 0 else None}
