"""How many bits a memory needs, by horizon, and how that grows; and what the usual number formats do to it."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memsweep.measures.bits.kinds import COUNTED, FORMATS, IN_FORMATS, ROUNDINGS, Rounding
from memsweep.report.analysis.contents import of_trials
from memsweep.report.analysis.losses import Spread
from memsweep.report.naming.conditions import Grouping, Labels, group
from memsweep.report.read.study import Study
from memsweep.stability.verdict.judgement import SLOPE_LIMIT, Criteria
from memsweep.stability.verdict.radius import THRESHOLD, VALID_ERROR, stability_radii
from memsweep.stability.verdict.rule import judge
from memsweep.stability.verdict.trend import Slope

_SIZE = ["width", "horizon"]
_AT = Criteria(thresholds=(THRESHOLD,))
_EXACT = 1e-9
"""Of bits, that a radius says up to rounding."""
_FORMATS_COLUMNS = ["identity", "seed", "format", "share"]


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
        older: the measured grids are not those of integers of whole bits: of 2^bits + 1 values, as bits were once
            defined. Their bits are those that store so many values.
        width: whose bits are shown: the largest that is valid at every horizon, or else the largest at the longest one.
        slope: bits for each doubling of the horizon, at ``width``, with its interval over seeds.
    """

    condition: Mapping[str, Any]
    rounding: str
    radii: pd.DataFrame
    fewest: int
    most: int
    width: int
    slope: Slope
    older: bool

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


@dataclass(frozen=True)
class FormatsRow:
    """What rounding to the usual formats does to the models of one condition and size.

    Attributes:
        condition: column -> value, as in a Finding.
        rounding: one of ROUNDINGS, to formats.
        errors: ``identity``, ``seed``, ``format``, and ``share``, the error over the zero predictor's loss; of the
            seeds that fit without rounding.
    """

    condition: Mapping[str, Any]
    rounding: str
    width: int
    horizon: int
    errors: pd.DataFrame

    @cached_property
    def by_format(self) -> dict[str, Spread]:
        """Format -> the share, over the seeds; nan without one."""
        return {name: Spread.of(self.errors.loc[self.errors["format"] == name, "share"]) for name in FORMATS}


def bits_panels(rows: Sequence[BitsRow], labels: Labels) -> dict[tuple[str, str, str], list[BitsRow]]:
    """The rows that stand in one picture, by memory, machine, and what is rounded: ``weights`` or ``states``."""
    panels = dict[tuple[str, str, str], list[BitsRow]]()
    for row in rows:
        what = "weights" if ROUNDINGS[row.rounding].parts else "states"
        panels.setdefault((labels.memory(row.condition), labels.machine(row.condition), what), []).append(row)
    return dict(sorted(panels.items(), key=lambda panel: panel[0][0]))


def bits_of(radii: pd.DataFrame) -> Spread:
    """The least whole number of bits over the valid seeds of some rows of ``BitsRow.radii``."""
    return Spread.of(whole_bits(radii.loc[radii["valid"].astype(bool), "radius_low"]))


def whole_bits(radii: pd.Series) -> np.ndarray:
    """The least whole number of bits for each radius 2^-bits, at which the error is at the limit or below it."""
    with np.errstate(divide="ignore"):
        return np.ceil(-np.log2(radii.to_numpy(float)) - _EXACT)  # a radius is known up to rounding


def bits_rows(study: Study, grouping: Grouping) -> list[BitsRow]:
    """A row per condition and rounding that was measured, roundings in the order of ROUNDINGS."""
    rows = []
    for condition, identities in grouping.members():
        curves, trained = (study.of(name, identities) for name in ("curves", "replicas"))
        for rounding, curve in curves[curves["ball"].isin(COUNTED)].dropna(subset=_SIZE).groupby("ball"):
            curve, older = _by_bits(curve, ROUNDINGS[str(rounding)])
            measured = whole_bits(curve.loc[curve["radius"] > 0, "radius"])
            judgement = judge(curve, trained)
            along = judgement.by_threshold[THRESHOLD].horizon
            rows.append(
                BitsRow(
                    condition=condition,
                    rounding=str(rounding),
                    radii=of_trials(stability_radii(curve, [THRESHOLD]), curve, _AT),
                    fewest=int(measured.min()),
                    most=int(measured.max()),
                    width=judgement.width or int(curve.loc[curve["horizon"] == curve["horizon"].max(), "width"].max()),
                    slope=_turned(along.limit if along.limit.available else along.over_range),
                    older=older,
                )
            )
    return sorted(rows, key=lambda row: COUNTED.index(row.rounding))


def formats_rows(study: Study, grouping: Grouping) -> list[FormatsRow]:
    """A row per condition, size and rounding to formats that was measured, roundings in the order of ROUNDINGS."""
    rows, names = [], {2.0**-each.significant: name for name, each in FORMATS.items()}
    for condition, identities in grouping.members():
        curves = study.of("curves", identities).dropna(subset=_SIZE)
        for of, curve in group(curves[curves["ball"].isin(IN_FORMATS)], ["ball", *_SIZE]):
            shares = curve.assign(format=curve["radius"].map(names), share=curve["error"] / curve["zero_loss"])
            fitting = shares.loc[(shares["radius"] == 0) & (shares["share"] <= VALID_ERROR), "seed"]
            errors = shares.loc[(shares["radius"] > 0) & shares["seed"].isin(fitting), _FORMATS_COLUMNS]
            rows.append(FormatsRow(condition, of["ball"], int(of["width"]), int(of["horizon"]), errors))
    return sorted(rows, key=lambda row: IN_FORMATS.index(row.rounding))


def _by_bits(curve: pd.DataFrame, rounding: Rounding) -> tuple[pd.DataFrame, bool]:
    """A curve with the radii 2^-bits, and whether some of its grids are those of no whole number of bits."""
    bits = np.array([rounding.bits_at(radius) for radius in curve["radius"]])
    known = bits[np.isfinite(bits)]
    return curve.assign(radius=2.0**-bits), bool((np.abs(known - known.round()) > _EXACT).any())


def _turned(slope: Slope) -> Slope:
    """The slope of -log radius: bits are the negative logarithm of a radius to base 2."""
    return Slope(-slope.estimate, -slope.high, -slope.low) if slope.available else Slope(math.nan, math.nan, math.nan)
