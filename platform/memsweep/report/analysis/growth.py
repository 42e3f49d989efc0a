"""How measured numbers grow with the width or the horizon: the slope of the log number against the log size.

A slope is that of the least squares over all sizes for each seed, with Student's interval over seeds, as that of an
effective state size (``capacity/sizes.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import SIZES, Grouping, group
from memsweep.report.read.study import Study
from memsweep.stability.verdict.trend import NO_SLOPE, Slope, trend

IN_TRAINING = ("output_change", "time_scale_low", "time_scale", "time_scale_high", "sharpness", "ceiling")
"""Of the table ``sharpness``."""
MOVED = re.compile(r"(.+)_(?:(\d+)_bits|radius_([^_]+))")
"""The name of a metric that was measured again, with rounded weights or with the worst push that a search found."""
LEAST = 3
"""Sizes from which on there is a row."""


@dataclass(frozen=True)
class GrowthRow:
    """One number of one condition at several widths, or horizons.

    Attributes:
        condition: column -> value, as in a Finding.
        quantity: one of IN_TRAINING, or the task's metric; with ``_4_bits`` or ``_radius_0.1`` behind it where the
            weights were rounded or moved.
        step: of training; None at its end.
        axis: ``width`` or ``horizon``.
        other: the value of the other one, which is the same throughout; None where there is none.
        values: ``[seeds, sizes]``, of the seeds that have a value at every size.
        identities: of the trials behind them.
    """

    condition: Mapping[str, Any]
    quantity: str
    step: int | None
    axis: str
    other: float | None
    values: pd.DataFrame
    identities: tuple[str, ...]

    @property
    def sizes(self) -> list[float]:
        """Increasing."""
        return [float(size) for size in self.values.columns]

    def at(self, size: float) -> Spread:
        """The number there, over the seeds."""
        return Spread.of(self.values[size])

    @cached_property
    def slope(self) -> Slope:
        """0 where the number does not depend on the size, 1 where it is proportional to it.

        Not available where a value of some seed is infinite or not positive.
        """
        return slope_of(self.values)


def slope_of(values: pd.DataFrame) -> Slope:
    """Of log values against the log of their columns, with an interval over the rows, which are seeds.

    By least squares over all columns for each seed: a limit slope would amplify the steps of whole numbers.
    """
    numbers = values.to_numpy(float)
    if not numbers.size or not (np.isfinite(numbers) & (numbers > 0)).all():
        return NO_SLOPE
    return trend(values.columns.to_numpy(float), numbers, numbers, [*map(int, values.index)]).over_range


def growth_rows(study: Study, grouping: Grouping) -> list[GrowthRow]:
    """A row for each condition, number, axis and value of the other axis, where there are several sizes.

    Of numbers that are measured in training, after the first step that was measured and after the last.
    """
    rows = [
        GrowthRow(condition, quantity, step, axis, other, values, behind)
        for condition, identities in grouping.members()
        for quantity, step, table in _measured(study, identities)
        for axis in SIZES
        for other, values, behind in _by_size(table, axis)
    ]
    order = {quantity: place for place, quantity in enumerate(IN_TRAINING)}
    return sorted(rows, key=lambda row: (order.get(row.quantity, -1), row.quantity, row.axis != "width", row.step or 0))


def _measured(study: Study, identities: list[str]) -> Iterator[tuple[str, int | None, pd.DataFrame]]:
    """Quantity, step, and a row for each replica: ``identity``, ``seed``, ``width``, ``horizon`` and ``value``."""
    sizes = ["identity", "seed", *SIZES]
    replicas = study.of("replicas", identities)
    for named, part in group(replicas.dropna(subset=["metric"]), ["metric"]):
        yield named["metric"], None, part[sizes].assign(value=part["test_metric"])
    others = study.of("metrics", identities)
    again = others[others["metric"].astype(str).str.fullmatch(MOVED)]
    for named, part in group(again.merge(replicas[sizes], on=["identity", "seed"]), ["metric"]):
        yield named["metric"], None, part[[*sizes, "value"]]
    in_training = study.of("sharpness", identities)
    steps = sorted(in_training.loc[in_training["step"] > 0, "step"].unique())
    for step in dict.fromkeys([*steps[:1], *steps[-1:]]):
        part = in_training[in_training["step"] == step]
        for quantity in IN_TRAINING:
            yield quantity, int(step), part[sizes].assign(value=part[quantity])


def _by_size(table: pd.DataFrame, axis: str) -> Iterator[tuple[float | None, pd.DataFrame, tuple[str, ...]]]:
    """The values ``[seeds, sizes]`` along an axis and their trials, for each value of the other one."""
    (other,) = {*SIZES} - {axis}
    for at, part in group(table.dropna(subset=[axis]), [other]):
        values = part.pivot_table(index="seed", columns=axis, values="value").dropna()
        if values.shape[1] >= LEAST and len(values):
            yield at[other], values, tuple(part["identity"].astype(str).unique())
