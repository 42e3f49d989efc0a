"""One finding per condition and ball: its radii, its verdict, and the trials that they come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.grouping import CONDITION, Grouping, group
from memsweep.report.study import Study
from memsweep.stability.evidence import analytic_modulus, distance_bound
from memsweep.stability.radius import stability_radii
from memsweep.stability.verdict import Judgement, judge

BALLS = ("recurrent", "all")
_SIZE = ("width", "horizon", "seed")


@dataclass(frozen=True)
class Finding:
    """What the study says about one condition when the weights of one ball move.

    Attributes:
        condition: column -> value: task, CONDITION, and the study's extra columns (None: the part has no such field).
        ball: ``recurrent`` or ``all``.
        radii: the table of ``memsweep.stability.radius.stability_radii``, with the identity of each row's trial.
        curves, replicas, memory: the rows of this condition.
        parameterization: canonical form of the model's parameterization, None where it has none.
    """

    condition: Mapping[str, Any]
    ball: str
    judgement: Judgement
    radii: pd.DataFrame
    curves: pd.DataFrame
    replicas: pd.DataFrame
    memory: pd.DataFrame
    parameterization: Mapping[str, Any] | None

    @property
    def analytic_modulus(self) -> float:
        """The parameterization's modulus at the judgement's small radius; nan where there is none."""
        if self.parameterization is None:
            return math.nan
        return analytic_modulus(self.parameterization, self.judgement.small_radius)

    @property
    def distance_bound(self) -> float:
        """What the target holds beyond the reach of these weights, relative to all it holds; median over replicas.

        At the longest horizon and the slope's width; nan for a task without a target kernel.
        """
        rows = self.replicas[(self.replicas["horizon"] == self.horizon) & (self.replicas["width"] == self.width)]
        values = []
        for row in rows.to_dict("records"):
            mine = self.memory[(self.memory["identity"] == row["identity"]) & (self.memory["seed"] == row["seed"])]
            target = mine.sort_values("lag")["target"].to_numpy(float)
            if target.size and np.isfinite(target).all():
                weights = (float(row[name]) for name in ("encoder_norm", "readout_norm", "slowest_rate"))
                bound = distance_bound(target, *weights)
                values.append(bound / np.abs(target).sum())
        return float(np.median(values)) if values else math.nan

    @property
    def key(self) -> tuple[Any, ...]:
        """The condition as a hashable value, without the ball."""
        return tuple(self.condition.values())

    @cached_property
    def horizon(self) -> float:
        """The longest horizon."""
        return float(self.curves["horizon"].max())

    @property
    def width(self) -> float:
        """The width of the horizon slope, or the largest where there is none."""
        return float(self.judgement.width or self.radii["width"].max())


def find(study: Study, grouping: Grouping) -> list[Finding]:
    """Judge every condition and ball of a study.

    Returns:
        The recurrent ball's findings first, conditions in the order of the plan.
    """
    curves, replicas, memory = (grouping.attach(study.tables[name]) for name in ("curves", "replicas", "memory"))
    by_condition = ["task", *CONDITION, *grouping.columns]
    of_condition = {tuple(condition.values()): part for condition, part in group(replicas, by_condition)}
    findings = []
    for condition, part in group(curves, by_condition):
        trained = of_condition[tuple(condition.values())]
        remembered = memory[memory["identity"].isin(trained["identity"])] if not memory.empty else memory
        for ball, curve in ((ball, part[part["ball"] == ball]) for ball in BALLS):
            if not curve.empty:
                findings.append(
                    Finding(
                        condition=condition,
                        ball=ball,
                        judgement=judge(curve, trained),
                        radii=_radii(curve),
                        curves=curve,
                        replicas=trained,
                        memory=remembered,
                        parameterization=study.records[trained["identity"].iloc[0]]["config"]["model"].get(
                            "parameterization"
                        ),
                    )
                )
    return sorted(findings, key=lambda finding: BALLS.index(finding.ball))


def _radii(curve: pd.DataFrame) -> pd.DataFrame:
    identities = curve[["identity", *_SIZE]].drop_duplicates()
    return stability_radii(curve).merge(identities, on=list(_SIZE), how="left")
