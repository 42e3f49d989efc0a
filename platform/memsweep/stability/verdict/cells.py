"""The radii of one condition as arrays, and those of them that enter a slope."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from memsweep.stability.verdict.judgement import SMALLEST_GRID, SMALLEST_SEEDS
from memsweep.stability.verdict.trend import NO_SLOPE, NO_TREND, Slope, Trend, as_evidence, over_seeds, trend

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Radii:
    """The radii of one condition in one ball, by seed, width, horizon and threshold.

    Attributes:
        seeds, widths, horizons, thresholds: increasing.
        low, high: ``[S, W, H, T]``, bounds of each radius, equal where it is known; nan where it was not measured.
        valid: ``[S, W, H]``, whether the replica approximates its target.
        fit: ``[S, W, H]``, its error without perturbation, as a share of the zero predictor's loss.
        change_at: gives the changes ``[S, W]`` of the replicas at the longest horizon when their weights move by a
            radius.
    """

    seeds: tuple[int, ...]
    widths: tuple[int, ...]
    horizons: tuple[int, ...]
    thresholds: tuple[float, ...]
    low: np.ndarray
    high: np.ndarray
    valid: np.ndarray
    fit: np.ndarray
    change_at: Callable[[float], np.ndarray] = field(repr=False)

    @staticmethod
    def of(radii: pd.DataFrame, change_at: Callable[[Sequence[int], Sequence[int], float], np.ndarray]) -> Radii:
        """Of the table of ``stability_radii``.

        Args:
            radii: its rows.
            change_at: as the attribute, of seeds, widths and a radius.
        """
        axes, places = zip(
            *(np.unique(radii[name], return_inverse=True) for name in ("seed", "width", "horizon", "threshold")),
            strict=True,
        )
        shape = tuple(map(len, axes))

        def table(column: str) -> np.ndarray:
            values = np.full(shape, math.nan)
            values[places] = radii[column].to_numpy(float)
            return values

        seeds, widths, horizons = (tuple(map(int, axis)) for axis in axes[:3])
        return Radii(
            seeds=seeds,
            widths=widths,
            horizons=horizons,
            thresholds=tuple(map(float, axes[3])),
            low=table("radius_low"),
            high=table("radius_high"),
            valid=table("valid")[..., 0] == 1.0,
            fit=table("fit")[..., 0],
            change_at=lambda radius: change_at(seeds, widths, radius),
        )

    @property
    def top_widths(self) -> tuple[int, ...]:
        """Of which a seed was measured at the longest horizon: trials of other widths may be still to come."""
        measured = ~np.isnan(self.low[:, :, -1, 0]).all(0)
        return tuple(width for width, known in zip(self.widths, measured, strict=True) if known)

    def along_horizon(self) -> Cells:
        """The cells of the largest width that is valid at every horizon; none without one."""
        for place in reversed(range(len(self.widths))):
            cells = Cells.of(self.seeds, self.horizons, self.valid[:, place])
            if len(cells.values) == len(self.horizons) and len(cells.seeds) >= SMALLEST_SEEDS:
                low, high = (cells.taken(bounds[:, place]) for bounds in (self.low, self.high))
                return cells.with_bounds(low, high, at=self.widths[place])
        return Cells()

    def along_width(self) -> Cells:
        """The cells at the longest horizon."""
        cells = Cells.of(self.seeds, self.widths, self.valid[:, :, -1])
        low, high = (cells.taken(bounds[:, :, -1]) for bounds in (self.low, self.high))
        return cells.with_bounds(low, high)


@dataclass(frozen=True)
class Cells:
    """The cells along one axis that enter a slope: in each of them, the same seeds approximate the target.

    Attributes:
        values: of the axis, increasing.
        seeds: valid at all of them; empty where a cell has fewer than SMALLEST_SEEDS.
        rows, columns: their places in the tables of ``Radii``.
        low, high: ``[seeds, values, thresholds]``.
        at: the width of cells along the horizon.
    """

    values: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, int), repr=False)
    columns: np.ndarray = field(default_factory=lambda: np.zeros(0, int), repr=False)
    low: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0)), repr=False)
    high: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0)), repr=False)
    at: int | None = None

    @staticmethod
    def of(seeds: Sequence[int], values: Sequence[int], valid: np.ndarray) -> Cells:
        """All cells with SMALLEST_SEEDS valid seeds or more, and the seeds that are valid in each of them.

        Args:
            seeds, values: of the axes of ``valid``.
            valid: ``[S, X]``.
        """
        columns = np.flatnonzero(valid.sum(0) >= SMALLEST_SEEDS)
        rows = np.flatnonzero(valid[:, columns].all(1)) if columns.size else columns
        return Cells(tuple(values[int(c)] for c in columns), tuple(seeds[int(r)] for r in rows), rows, columns)

    def taken(self, table: np.ndarray) -> np.ndarray:
        """The part of a table ``[S, X, ...]`` that enters."""
        return table[np.ix_(self.rows, self.columns)]

    def with_bounds(self, low: np.ndarray, high: np.ndarray, at: int | None = None) -> Cells:
        """These cells with bounds of their radii."""
        return Cells(self.values, self.seeds, self.rows, self.columns, low, high, at)

    @property
    def enough(self) -> bool:
        """Whether there are enough cells and seeds for a slope."""
        return len(self.values) >= SMALLEST_GRID and len(self.seeds) >= SMALLEST_SEEDS

    def trend(self, place: int, since: float = 0.0, shares: int = 1) -> Trend:
        """Of the radius at a threshold, by its place; NO_TREND with too few cells or seeds.

        Args:
            place: of the threshold.
            since, shares: as in ``memsweep.stability.verdict.trend.trend``.
        """
        if not self.enough:
            return NO_TREND
        x = np.array(self.values, float)
        found = trend(x, self.low[..., place], self.high[..., place], self.seeds, since=since, shares=shares)
        return replace(found, over_range=as_evidence(found.over_range), limit=as_evidence(found.limit))

    def slope(self, values: np.ndarray) -> Slope:
        """Of numbers ``[seeds, values]``: the limit slope, or that over a range too short for one.

        NO_SLOPE with too few cells or seeds.
        """
        if not self.enough:
            return NO_SLOPE
        found = trend(np.array(self.values, float), values, values, self.seeds)
        return as_evidence(found.limit if found.limit.available else found.over_range)

    def step(self, place: int, width: int | None) -> Slope:
        """How log radius changes from a width to the next one, at a threshold by its place.

        Where the width is the largest, from the one below to it. NO_SLOPE without two widths.
        """
        if width not in self.values or len(self.values) < 2 or len(self.seeds) < SMALLEST_SEEDS:
            return NO_SLOPE
        upper = min(self.values.index(width) + 1, len(self.values) - 1)
        with np.errstate(divide="ignore"):
            low, high = (np.log(bounds[:, upper - 1 : upper + 1, place]) for bounds in (self.low, self.high))
        return as_evidence(over_seeds(np.array([-1.0, 1.0]), low, high, self.seeds))
