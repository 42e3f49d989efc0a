"""Final losses and metrics by condition: the answer of tasks that ask no question of stability."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memsweep.outcome import Outcome
from memsweep.report.naming.conditions import Grouping, group
from memsweep.report.read.study import Study

_LOSSES = ("test_loss", "error", "validation_loss")
"""Where the loss of a seed without perturbation is found, best first."""
CRITERIA = ("gradient_over_weight_max", "gradient_over_weight_q90", "gradient_over_weight_median")
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


@dataclass(frozen=True, eq=False)
class LossRow:
    """The seeds of one condition, width and horizon.

    Attributes:
        condition: column -> value, as in a Finding.
        width, horizon: None where the model or the task has none.
        replicas: a row per seed, of the results' table ``replicas``; results of older code lack some columns.
    """

    condition: Mapping[str, Any]
    width: float | None
    horizon: float | None
    replicas: pd.DataFrame

    def spread(self, column: str) -> Spread:
        """A column of ``replicas`` over the seeds; nan where the results lack it."""
        return Spread.of(self.replicas.get(column, []))

    @property
    def seeds(self) -> int:
        """How many were trained."""
        return len(self.replicas)

    @cached_property
    def losses(self) -> np.ndarray:
        """The unperturbed test loss of each seed, shape (seeds,); infinite where training diverged."""
        loss = np.full(self.seeds, math.nan)
        for name in _LOSSES:
            if name in self.replicas:
                loss = np.where(np.isnan(loss), self.replicas[name].to_numpy(float), loss)
        lost = (self.replicas["outcome"] == Outcome.DIVERGED).to_numpy()
        return np.where(lost | np.isinf(loss), math.inf, loss)

    @cached_property
    def loss(self) -> Spread:
        """Of ``losses``."""
        return Spread.of(self.losses)

    @property
    def diverged(self) -> int:
        """How many seeds ended without a finite loss."""
        return int(np.isinf(self.losses).sum())

    @cached_property
    def zero_loss(self) -> float:
        """Loss of the model that always answers zero."""
        return self._median("zero_loss")

    @cached_property
    def memoryless(self) -> float:
        """Loss of the best model that forgets each input; nan in results of older code."""
        return self._median("memoryless_loss")

    @property
    def below(self) -> int:
        """How many seeds have a loss below ``BELOW`` of the memoryless baseline."""
        return int((self.losses < BELOW * self.memoryless).sum())

    @property
    def beats_memoryless(self) -> bool:
        """Whether all seeds are below the memoryless baseline."""
        return self.below == self.seeds

    @cached_property
    def metric(self) -> str:
        """Name of the task's metric; empty without one."""
        names = list(self.replicas["metric"].dropna().unique()) if "metric" in self.replicas else []
        return str(names[0]) if names else ""

    @cached_property
    def value(self) -> Spread:
        """Of the metric."""
        return self.spread("test_metric")

    @property
    def identities(self) -> tuple[str, ...]:
        """The trials."""
        return tuple(self.replicas["identity"].unique())

    @property
    def loss_by_seed(self) -> dict[int, float]:
        """Seed -> its loss."""
        return self._by_seed(self.losses)

    @property
    def value_by_seed(self) -> dict[int, float]:
        """Seed -> its metric."""
        return self._by_seed(self.replicas["test_metric"]) if "test_metric" in self.replicas else {}

    def _median(self, column: str) -> float:
        return float(self.replicas[column].median()) if column in self.replicas else math.nan

    def _by_seed(self, values: Iterable[float]) -> dict[int, float]:
        return {int(seed): float(value) for seed, value in zip(self.replicas["seed"], values, strict=True)}


def loss_rows(study: Study, grouping: Grouping) -> list[LossRow]:
    """One row per condition, width and horizon, in the order of the plan."""
    replicas = grouping.attach(study.tables["replicas"])
    return [
        LossRow(condition, size.get("width"), size.get("horizon"), seeds)
        for condition, part in group(replicas, grouping.columns)
        for size, seeds in group(part, ["width", "horizon"])
    ]


def largest(rows: Sequence[LossRow]) -> list[LossRow]:
    """Of each condition, the row of its longest horizon, and there of the widest."""
    best: dict[tuple[object, ...], LossRow] = {}
    for row in rows:
        key = tuple(row.condition.values())
        best[key] = max(best.get(key, row), row, key=lambda r: (r.horizon or 0.0, r.width or 0.0))
    return list(best.values())
