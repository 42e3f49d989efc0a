"""One finding per condition and ball: its radii, its verdict, and the trials that they come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from memsweep.report.analysis.bounds import GOOD, bound_of, corrected, found_share
from memsweep.report.naming.conditions import KERNEL, Grouping
from memsweep.report.read.settings import fields_of
from memsweep.report.read.study import Study
from memsweep.stability.verdict.evidence import analytic_modulus, distance_bound
from memsweep.stability.verdict.judgement import DEFAULT, Criteria, Judgement, Verdict
from memsweep.stability.verdict.radius import stability_radii
from memsweep.stability.verdict.rule import judge, thresholds_of, time_scale
from memsweep.stability.verdict.trend import Slope

BALLS = ("recurrent", "weights", "all")
_SIZE = ("width", "horizon", "seed")
_SLOWEST, _FASTEST = -700.0, 700.0  # rates beyond which e^(-rate) is 0 or infinite anyway


@dataclass(frozen=True)
class Finding:
    """What the study says about one condition when the weights of one ball move.

    Attributes:
        condition: column -> value (None: the trial has no such field).
        ball: one of BALLS.
        radii: the table of ``memsweep.stability.verdict.radius.stability_radii``, with the identity of each row's
            trial.
        curves, replicas: the rows of this condition.
        read_memory: gives its rows of the table memory, the largest one, which are read anew each time.
        config: canonical config of the condition's first trial.
        otherwise: the verdict if all errors were as short of the worst as those of the sampled models; None where that
            is the same one, or not known.
    """

    condition: Mapping[str, Any]
    ball: str
    judgement: Judgement
    radii: pd.DataFrame
    curves: pd.DataFrame
    replicas: pd.DataFrame
    read_memory: Callable[[], pd.DataFrame]
    config: Mapping[str, Any]
    otherwise: Verdict | None = None

    @property
    def memory(self) -> pd.DataFrame:
        """The rows of the table memory of the condition's trials."""
        return self.read_memory()

    @cached_property
    def found_share(self) -> float:
        """The least share of the worst known error that the search found; nan where no stronger search ran."""
        return found_share(self.curves)

    @property
    def analytic_modulus(self) -> float:
        """The parameterization's modulus at the judgement's small radius; nan where there is none."""
        model = self.config["model"]
        part = model.get("parameterization")
        if part is None:
            return math.nan
        kind = {"discretization": d} if isinstance(d := model.get("discretization"), str) else {}
        canonical = {"name": part} if isinstance(part, str) else part
        return analytic_modulus(canonical, self.judgement.small_radius, **kind)

    @cached_property
    def bound(self) -> str:
        """Why the measured errors are lower bounds of the worst case (see ``memsweep.report.analysis.bounds``)."""
        return bound_of(self.curves)

    @property
    def fields(self) -> dict[str, Any]:
        """Dotted path -> value of the config."""
        return fields_of(self.config)

    @property
    def needs_verdict(self) -> bool:
        """Whether a verdict answers something: the task has a kernel, or there are several widths or horizons."""
        return self.condition.get(KERNEL) is not None or len(self.radii[["width", "horizon"]].drop_duplicates()) > 1

    @property
    def deciding(self) -> tuple[str, Slope]:
        """The axis (``horizon`` or ``width``) and the slope that the verdict was reached by.

        The slope is the one at the judgement's threshold; without a verdict, the steeper of the two.
        """
        horizon, width = self.judgement.slope_horizon, self.judgement.slope_width
        if self.judgement.verdict is Verdict.UNSTABLE:
            by_horizon = self.judgement.unstable_by_horizon
        else:
            by_horizon = horizon.available and not (width.available and width.low < horizon.low)
        return ("horizon", horizon) if by_horizon else ("width", width)

    @cached_property
    def distance_bound(self) -> float:
        """What the target holds beyond the reach of these weights, relative to all it holds; median over replicas.

        At the longest horizon and the slope's width; nan for a task without a target kernel, and for a model that is
        not linear, to which the bound does not apply.
        """
        memory = self.memory
        if memory.empty or not self.curves["exact"].all():
            return math.nan
        rows = self.replicas[(self.replicas["horizon"] == self.horizon) & (self.replicas["width"] == self.width)]
        values, memory = [], memory[memory["identity"].isin(rows["identity"])]
        for row in rows.to_dict("records"):
            mine = memory[(memory["identity"] == row["identity"]) & (memory["seed"] == row["seed"])]
            target = mine.sort_values("lag")["target"].to_numpy(float)
            if target.size and np.isfinite(target).all():
                rate = float(np.clip(row["slowest_rate"], _SLOWEST, _FASTEST))
                bound = distance_bound(target, float(row["encoder_norm"]), float(row["readout_norm"]), rate)
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


def judge_conditions(study: Study, grouping: Grouping, criteria: Criteria = DEFAULT) -> list[Finding]:
    """Judge every condition and ball of a study.

    Trials without a width or a horizon are left out: they are not on the axes of a slope.

    Args:
        study: with its results.
        grouping: its conditions.
        criteria: thresholds and slope limit, where they are not the rule's own.

    Returns:
        The recurrent ball's findings first, conditions in the order of the plan.
    """
    findings = []
    for condition, identities in grouping.members():
        curves, trained = (study.of(name, identities) for name in ("curves", "replicas"))
        read_memory = partial(study.of, "memory", identities)
        curves = curves[curves["ball"].isin(BALLS)].dropna(subset=["width", "horizon"])
        configs = [study.records[identity]["config"] for identity in trained["identity"].unique()]
        nonlinear = any(config["model"].get("activation") not in (None, "linear") for config in configs)
        # one target, cut at each trial's horizon
        target = read_memory().drop_duplicates("lag").sort_values("lag")["target"]
        scale = time_scale(target.to_numpy(float))
        for ball, curve in curves.groupby("ball"):
            known: dict[str, Any] = {"time_scale": scale, "nonlinear": nonlinear, "criteria": criteria}
            radii = stability_radii(curve, thresholds_of(criteria))
            judgement, radii = judge(curve, trained, **known, radii=radii), of_trials(radii, curve, criteria)
            otherwise = None
            if found_share(curve) < GOOD:
                worse = judge(corrected(curve), trained, **known).verdict
                otherwise = worse if worse is not judgement.verdict else None
            about = (judgement, radii, curve, trained, read_memory, configs[0], otherwise)
            findings.append(Finding(condition, str(ball), *about))
    return sorted(findings, key=lambda finding: BALLS.index(finding.ball))


def of_trials(radii: pd.DataFrame, curve: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """The radii at the thresholds of the criteria, with the identity of each one's trial."""
    identities = curve[curve["radius"] == 0][["identity", *_SIZE]].drop_duplicates()
    judged = radii[radii["threshold"].isin(criteria.thresholds)]
    return judged.merge(identities, on=list(_SIZE), how="left")
