"""Metrics of a trial by name: one value per seed for comparisons, their median for a search.

Names: the measured columns of a replica (``validation_loss``, ``error``, ``relative_error``, ``margin``,
``slowest_rate``), the stability radius of a ball (``radius`` for recurrent weights, ``radius_weights``,
``radius_all``) at the verdict's smallest threshold, and ``test_<metric>`` for what the task reports besides its loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memsweep.config.schema.search import BALL_OF, METRICS, TEST
from memsweep.errors import MemsweepError, did_you_mean
from memsweep.stability.verdict.radius import ABOVE, BELOW, BETWEEN, NOT_CENSORED, THRESHOLD, curves_of

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("replicas", "metrics", "curves")
"""The tables that metrics are read from."""
POSITIVE = frozenset({"validation_loss", "error", "relative_error", *BALL_OF})
"""Names whose values are never negative and vary by factors, so that they are compared on a logarithmic scale."""


@dataclass(frozen=True)
class SeedValue:
    """A metric of one replica.

    Attributes:
        seed: of the replica.
        value: as measured. Of a diverged replica, losses are inf, radii 0, and the other metrics nan.
        censored: of a radius: ``above`` (the change stays below the threshold at every radius that was tried; ``value``
            is the last of them), ``below`` (it passes the threshold before the smallest radius that was tried, which
            is ``value``), ``between`` (it jumps beyond the threshold above ``value``, the largest radius known to
            hold). Empty where the value is known.
        beyond: of a radius ``between``: the next radius that was tried, beyond the threshold. None of others: a nan
            would make two equal values differ from Python 3.13 on.
    """

    seed: int
    value: float
    censored: str = NOT_CENSORED
    beyond: float | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The true value lies between these two, which are equal where it is known."""
        low = 0.0 if self.censored == BELOW else self.value
        high = self.value if self.beyond is None else self.beyond
        return low, math.inf if self.censored == ABOVE else high


def per_seed(name: str, tables: Mapping[str, pd.DataFrame]) -> list[SeedValue]:
    """The metric of each replica of one trial, by seed.

    Args:
        name: of the metric.
        tables: those of ``TABLES``, the rows of one trial.

    Raises:
        MemsweepError: there is no such metric, or the trial did not measure it.
    """
    _check(name)
    values = _radii(BALL_OF[name], tables["curves"]) if name in BALL_OF else _columns(name, tables)
    return sorted(values, key=lambda value: value.seed)


def fitting_seeds(ball: str, curves: pd.DataFrame) -> frozenset[int]:
    """The seeds of one trial whose models fit, by what their radii are read from: those that enter verdicts."""
    moved = curves[curves["ball"] == ball].assign(width=0, horizon=0)
    return frozenset(int(curve.seed) for curve in curves_of(moved) if curve.valid)


def median(name: str, summary: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> float:
    """The median over the replicas, which a search uses; nan and inf as they are.

    A radius that is censored counts as its ``SeedValue.value``: above all that were tried, as the last of them. So a
    search cannot tell apart settings whose radii are both above.

    Args:
        name: of the metric.
        summary: of the trial's record.
        tables: of the trial.

    Raises:
        MemsweepError: there is no such metric, or the trial did not measure it.
    """
    _check(name)
    if name not in BALL_OF and name in summary:
        return float(summary[name])
    return float(np.median([seed.value for seed in per_seed(name, tables)]))


def _check(name: str) -> None:
    """Refuse a name that is no metric."""
    if name not in METRICS and not name.startswith(TEST):
        known = f"{', '.join(METRICS)}, {TEST}<a metric of the task>"
        raise MemsweepError(f"there is no metric {name!r}.{did_you_mean(name, METRICS)} Metrics: {known}.")


def _columns(name: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[SeedValue]:
    rows = tables["replicas"]
    if name == "relative_error":
        values = rows["error"] / rows["zero_loss"]
    elif name.startswith(TEST):
        rows, values = _test_metric(name.removeprefix(TEST), tables)
    else:
        values = rows[name]
    return (SeedValue(int(seed), float(value)) for seed, value in zip(rows["seed"], values, strict=True))


def _test_metric(name: str, tables: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, pd.Series]:
    """A row per replica, and this metric of the task in each: the first one, or one beside it."""
    replicas, others = tables["replicas"], tables["metrics"]
    if (replicas["metric"] == name).any():
        return replicas, replicas["test_metric"]
    rows = others[others["metric"] == name] if len(others) else others  # without rows it may lack columns
    if rows.empty:
        known = [f"{TEST}{one}" for one in dict.fromkeys([*replicas["metric"].dropna(), *others.get("metric", ())])]
        raise MemsweepError(
            f"{TEST}{name} was not measured: the results hold {', '.join(known) or 'no metric of the task'}. Compare "
            "by another metric."
        )
    return rows, rows["value"]


def _radii(ball: str, curves: pd.DataFrame) -> Iterator[SeedValue]:
    moved = curves[curves["ball"] == ball] if len(curves) else curves
    if moved.empty:
        raise MemsweepError(f"the ball {ball!r} was not measured: add it to perturbation.balls.")
    return (_radius(int(curve["seed"].iloc[0]), curve) for _, curve in moved.groupby("seed"))


def _radius(seed: int, curve: pd.DataFrame) -> SeedValue:
    own = next(curves_of(curve.assign(width=0, horizon=0)))
    if not own.errors[0] <= THRESHOLD * own.zero_loss:  # known: not even without perturbation
        return SeedValue(seed, 0.0)
    at = own.radius(THRESHOLD)
    return SeedValue(seed, at.radius, at.censored, at.high if at.censored == BETWEEN else None)
