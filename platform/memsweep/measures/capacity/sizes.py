"""Effective state size: for each condition and horizon, by width, and how it grows with the width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.losses import Spread
from memsweep.report.analysis.slopes import slope_of
from memsweep.report.naming.conditions import Grouping, group
from memsweep.report.read.study import Study
from memsweep.stability.verdict.trend import Slope

TOLERANCES = (0.01, 1e-4)
"""A singular value counts above this share of the largest."""


@dataclass(frozen=True)
class SizeRow:
    """How many numbers of the past the later outputs of one condition show, at one horizon.

    Attributes:
        condition: column -> value, as in a Finding.
        map: from the past to the future: ``block`` or ``hankel``; ``truncation``: the errors of a pruned layer.
        tolerance: one of TOLERANCES.
        sizes: ``identity``, ``seed``, ``width`` and ``size``, a row per replica; nan where a derivative is not finite.
    """

    condition: Mapping[str, Any]
    map: str
    tolerance: float
    horizon: int
    sizes: pd.DataFrame

    @cached_property
    def by_width(self) -> dict[int, Spread]:
        """Width -> the size, over the seeds."""
        groups = {int(width): self.sizes["width"] == width for width in sorted(self.sizes["width"].unique())}
        return {width: Spread.of(self.sizes.loc[rows, "size"]) for width, rows in groups.items()}

    @cached_property
    def slope(self) -> Slope:
        """Of log size against log width: 1 where it is proportional to the width, 0 where constant.

        Not available where a model of some seed keeps nothing.
        """
        return slope_of(self.sizes.pivot_table(index="seed", columns="width", values="size").dropna())


def size_rows(study: Study, grouping: Grouping) -> list[SizeRow]:
    """A row per map, tolerance, condition and horizon that was measured."""
    rows = []
    for condition, identities in grouping.members():
        values = study.of("singular_values", identities).dropna(subset=["width", "horizon"])
        for of, part in group(values, ["map", "horizon"]):
            rows += [
                SizeRow(condition, of["map"], tolerance, of["horizon"], sizes_of(part, tolerance))
                for tolerance in TOLERANCES
            ]
    return sorted(rows, key=lambda row: (row.map, -row.tolerance))


def sizes_of(values: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """The sizes of replicas from the singular values of one map."""
    replicas = values.groupby(["identity", "seed", "width"], observed=True)["value"]
    largest = replicas.transform("max")
    counted = values.assign(size=np.where(largest.isna(), np.nan, values["value"] > tolerance * largest))
    sizes = counted.groupby(["identity", "seed", "width"], observed=True)["size"].sum(min_count=1)
    return sizes.reset_index()
