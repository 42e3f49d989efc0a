"""How many bits a memory needs: for each condition and rounding, by horizon, and how that grows."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.findings import of_trials
from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import Grouping
from memsweep.report.naming.labels import Labels
from memsweep.report.read.study import Study
from memsweep.stability.rounding.kinds import FLOAT, ROUNDINGS, SIGNIFICANT
from memsweep.stability.verdict.judgement import SLOPE_LIMIT, Criteria
from memsweep.stability.verdict.radius import THRESHOLD, stability_radii
from memsweep.stability.verdict.rule import judge
from memsweep.stability.verdict.trend import Slope

_SIZE = ["width", "horizon"]
_AT = Criteria(thresholds=(THRESHOLD,))


class Growth(enum.StrEnum):
    """The verdict in bits: whether a longer memory needs more of them. The limit is that of the stability verdict."""

    GROWS = "grows"
    """The whole interval of the slope lies above the limit: bits for each doubling of the horizon."""
    CONSTANT = "constant"
    """The whole interval lies below the limit."""
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class BitsRow:
    """The bits that one condition needs under one rounding, so that its error stays at ``THRESHOLD``.

    Attributes:
        condition: column -> value, as in a Finding.
        rounding: one of ROUNDINGS.
        radii: rows of ``stability_radii`` at THRESHOLD, with the identity of each one's trial; a radius is 2^-bits,
            between two of the measured ones.
        fewest, most: of the measured numbers of bits.
        width: whose bits are shown: the largest that is valid at every horizon, or else the largest.
        slope: bits for each doubling of the horizon, at ``width``, with its interval over seeds.
    """

    condition: Mapping[str, Any]
    rounding: str
    radii: pd.DataFrame
    fewest: int
    most: int
    width: int
    slope: Slope

    @cached_property
    def bits(self) -> dict[int, Spread]:
        """Horizon -> the least whole number of bits, over the valid seeds: inf beyond ``most``, nan without one."""
        at = self.radii[self.radii["width"] == self.width]
        groups = {int(horizon): at[at["horizon"] == horizon] for horizon in sorted(at["horizon"].unique())}
        return {horizon: bits_of(rows) for horizon, rows in groups.items()}

    @property
    def growth(self) -> Growth:
        """The verdict in bits: the slope's interval against the limit of the stability verdict."""
        if self.slope.low > -SLOPE_LIMIT:
            return Growth.GROWS
        return Growth.CONSTANT if self.slope.high < -SLOPE_LIMIT else Growth.UNDECIDED

    @property
    def holding(self) -> list[str]:
        """The usual floating-point formats with enough significant bits for all valid seeds, at the longest horizon."""
        longest = self.bits[max(self.bits)]
        return [name for name, bits in SIGNIFICANT.items() if bits >= longest.high] if self.is_float else []

    @property
    def is_float(self) -> bool:
        """Whether numbers are rounded to floating point."""
        return ROUNDINGS[self.rounding].number == FLOAT


def bits_panels(rows: Sequence[BitsRow], labels: Labels) -> dict[tuple[str, str, str], list[BitsRow]]:
    """The rows that stand in one picture, by memory, machine, and what is rounded: ``weights`` or ``states``."""
    panels = dict[tuple[str, str, str], list[BitsRow]]()
    for row in rows:
        what = "weights" if ROUNDINGS[row.rounding].parts else "states"
        panels.setdefault((labels.memory(row.condition), labels.machine(row.condition), what), []).append(row)
    return dict(sorted(panels.items(), key=lambda panel: panel[0][0]))


def bits_of(radii: pd.DataFrame) -> Spread:
    """The least whole number of bits over the valid seeds of some rows of ``BitsRow.radii``."""
    # a radius is known up to rounding; the error at the bits that it stands for is at the limit or below it
    with np.errstate(divide="ignore"):
        return Spread.of(np.ceil(-np.log2(radii.loc[radii["valid"].astype(bool), "radius_low"].to_numpy(float)) - 1e-9))


def bits_rows(study: Study, grouping: Grouping) -> list[BitsRow]:
    """A row per condition and rounding that was measured, roundings in the order of ROUNDINGS."""
    rows = []
    for condition, identities in grouping.members():
        curves, trained = (study.of(name, identities) for name in ("curves", "replicas"))
        for rounding, curve in curves[curves["ball"].isin([*ROUNDINGS])].dropna(subset=_SIZE).groupby("ball"):
            bits = -np.log2(curve.loc[curve["radius"] > 0, "radius"])
            judgement = judge(curve, trained)
            along = judgement.by_threshold[THRESHOLD].horizon
            rows.append(
                BitsRow(
                    condition=condition,
                    rounding=str(rounding),
                    radii=of_trials(stability_radii(curve, [THRESHOLD]), curve, _AT),
                    fewest=round(bits.min()),
                    most=round(bits.max()),
                    width=judgement.width or int(curve["width"].max()),
                    slope=_turned(along.limit if along.limit.available else along.over_range),
                )
            )
    order = [*ROUNDINGS]
    return sorted(rows, key=lambda row: order.index(row.rounding))


def _turned(slope: Slope) -> Slope:
    """The slope of -log radius: bits are the negative logarithm of a radius to base 2."""
    return Slope(-slope.estimate, -slope.high, -slope.low) if slope.available else Slope(math.nan, math.nan, math.nan)
