"""Everything that a report says of a study, computed from its stored results: conditions, their verdicts and losses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memsweep import registry
from memsweep.config.grid.time_scale import time_scale
from memsweep.config.schema.trial import METRIC, SELF, TARGET
from memsweep.report.analysis.bounds import GOOD, MARKED, bound_of, corrected, found_share, of_valid
from memsweep.report.analysis.losses import LossRow, loss_rows, once_each
from memsweep.report.naming.advice import in_words_of, of_weights, without_horizons
from memsweep.report.naming.conditions import (
    ALWAYS,
    KERNEL,
    OF_A_SEARCH,
    Grouping,
    Labels,
    find_grouping,
    planned_replicas,
)
from memsweep.report.read.fields import fields_of
from memsweep.report.read.study import Study, load_study, trial_table
from memsweep.stability.verdict import rule
from memsweep.stability.verdict.evidence import analytic_modulus, distance_bound
from memsweep.stability.verdict.judgement import DEFAULT, Criteria, Judgement, Verdict
from memsweep.stability.verdict.radius import stability_radii
from memsweep.stability.verdict.trend import Slope
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.report.analysis.search.searched import Searched

BALLS = ("recurrent", "weights", "all")
_SIZE = ("width", "horizon", "seed")
_SAME = 1e-6
"""Share of its largest value up to which a memory function is the same in two trials."""
_SLOWEST, _FASTEST = -700.0, 700.0  # rates beyond which e^(-rate) is 0 or infinite anyway


@dataclass(frozen=True)
class Finding:
    """What the study says about one condition when the weights of one ball move.

    Attributes:
        condition: column -> value (None: the trial has no such field).
        ball: one of BALLS.
        radii: the table of ``memsweep.stability.verdict.radius.stability_radii``, with the identity of each row's
            trial, and what it was read from (``reading``).
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
        """The least share of the largest known change that the search found in a model that fits.

        It is nan where no stronger search ran on one.
        """
        return found_share(of_valid(self.curves, self.radii))

    @property
    def reference(self) -> str:
        """What the changes are held against: TARGET, METRIC or SELF."""
        reading = str(self.radii["reading"].iloc[0])
        return reading if reading in (METRIC, SELF) else TARGET

    @property
    def marked(self) -> bool:
        """Whether a stronger search has shown that the radii are smaller than they are said to be."""
        return self.found_share < MARKED

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
        target = target_of(read_memory())
        scale = None if target is None else time_scale(target)
        for ball, curve in curves.groupby("ball"):
            known: dict[str, Any] = {"time_scale": scale, "nonlinear": nonlinear, "criteria": criteria}
            known["sequences"] = configs[0].get("perturbation", {}).get("test_size")
            radii = stability_radii(curve, rule.thresholds_of(criteria))
            judgement, radii = rule.judge(curve, trained, **known, radii=radii), of_trials(radii, curve, criteria)
            asked, why = of_weights(configs[0]["training"], in_words_of(configs[0]["task"], judgement.extend))
            judgement = replace(judgement, extend=asked, reasons=(*why, *judgement.reasons))
            if target is None:  # at another horizon, the memory would not be the one that the study asks for
                lacks = tuple(replace(lack, overrides=without_horizons(lack.overrides)) for lack in judgement.lacks)
                judgement = replace(judgement, extend=without_horizons(judgement.extend), lacks=lacks)
            otherwise = None
            checked = of_valid(curve, radii)
            if found_share(checked) < GOOD:
                worse = rule.judge(corrected(checked), trained, **known).verdict
                otherwise = worse if worse is not judgement.verdict else None
            about = (judgement, radii, curve, trained, read_memory, configs[0], otherwise)
            findings.append(Finding(condition, str(ball), *about))
    return sorted(findings, key=lambda finding: BALLS.index(finding.ball))


def target_of(memory: pd.DataFrame) -> np.ndarray | None:
    """The memory function that trials share, by lag: each has it up to its horizon. Empty where none has one.

    None where they have several, as where a study lets a rate change with the horizon.
    """
    each = memory.drop_duplicates(["identity", "lag"])
    by_lag = each.groupby("lag")["target"]
    spread, size = by_lag.max() - by_lag.min(), each["target"].abs().max()
    return None if (spread > _SAME * size).any() else by_lag.first().to_numpy(float)


def of_trials(radii: pd.DataFrame, curve: pd.DataFrame, criteria: Criteria) -> pd.DataFrame:
    """The radii at the thresholds of the criteria, with the identity of each one's trial."""
    identities = curve.loc[curve["radius"] == 0, ["identity", *_SIZE]].drop_duplicates()
    judged = radii[radii["threshold"].isin(criteria.thresholds)]
    return judged.merge(identities, on=list(_SIZE), how="left")


Key = tuple[Any, ...]
"""The values of a condition's fields."""


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that a report says.

    Attributes:
        study: as its folder holds it.
        measured: its part that verdicts and losses are made from: the winners of a search, else all of it.
        searched: the search with its results; None for a study that searches nothing.
        grouping: the conditions of ``measured``.
        findings: all conditions and balls that were measured.
        trained: the losses of all conditions.
        losses: those among them that answer something, each trained model once.
        scan: the losses of all suggestions of a search over the learning rate alone, on the seeds of the search.
        criteria: by which the findings were judged.
    """

    study: Study
    measured: Study
    searched: Searched | None
    grouping: Grouping
    labels: Labels
    findings: Sequence[Finding]
    trained: Sequence[LossRow]
    losses: Sequence[LossRow]
    scan: Sequence[LossRow]
    criteria: Criteria = DEFAULT

    @property
    def verdicts(self) -> list[Finding]:
        """The findings that need a verdict."""
        return [finding for finding in self.findings if finding.needs_verdict]

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The settings of all trials of the plan that have a result; see ``memsweep.report.read.study``."""
        return trial_table(self.study.records, self.study.tables["replicas"], ALWAYS)


def judge(where: Location | Path | str, criteria: Criteria = DEFAULT) -> Contents:
    """Judge a study from its stored results; trains and writes nothing.

    Args:
        where: ``results/<study>`` or ``s3://bucket/<study>``.
        criteria: ``memsweep.stability.verdict.judgement.Criteria(thresholds, slope_limit)``, if not the rule's own.

    Returns:
        ``.findings`` holds the verdicts with their evidence, ``.criteria`` the thresholds and the slope limit.

    Raises:
        StoreError: the folder or its plan does not exist or cannot be read.
    """
    return analyse(load_study(Location.at(where)), criteria)


def analyse(study: Study, criteria: Criteria = DEFAULT, *, planned: bool = False) -> Contents:
    """Compute a report's contents.

    Args:
        study: with its results.
        criteria: of the verdicts: other thresholds or another slope limit than the rule's own judge the stored results
            again; nothing is trained. Claims and searches compare radii at the rule's own smallest threshold.
        planned: conditions are told apart, and named, by the whole plan, not by what has finished of it; of a search,
            whose trials are not planned, by what has finished.
    """
    searched, measured, scan = _of_search(study)
    ignored = searched.ignored if searched is not None else ()
    planned = planned and searched is None
    known = {name: {"config": config} for name, config in study.rows.items()} if planned else measured.records
    replicas = planned_replicas(study.rows) if planned else measured.tables["replicas"]
    grouping = find_grouping(known, replicas, ignored)
    findings = judge_conditions(measured, grouping, criteria)
    trained = loss_rows(measured, grouping)
    labels = Labels([*grouping.conditions.values()] if planned else [row.condition for row in trained])
    return Contents(
        study=study,
        measured=measured,
        searched=searched,
        grouping=grouping,
        labels=labels,
        findings=findings,
        trained=trained,
        losses=once_each(_answering(trained, findings, _measured(measured, grouping), labels)),
        scan=scan,
        criteria=criteria,
    )


def _answering(
    rows: Sequence[LossRow], findings: Sequence[Finding], measured: Set[Key], labels: Labels
) -> list[LossRow]:
    """The losses of tasks without a kernel or with a metric, and of conditions without a verdict or another answer.

    All of them where an analysis says that the study asks for them.
    """
    registry.find_in(registry.ANALYSES)  # of the engine: whoever reads a study need not know of them
    analyses = (registry.get(registry.ANALYSIS, name) for name in registry.names(registry.ANALYSIS))
    if any(analysis.asks_for_losses(rows, labels) for analysis in analyses):
        return [*rows]
    judged = {finding.key for finding in findings if finding.needs_verdict} | measured
    return [
        row
        for row in rows
        if row.condition.get(KERNEL) is None or row.metric or tuple(row.condition.values()) not in judged
    ]


def _measured(study: Study, grouping: Grouping) -> set[Key]:
    """The conditions that a measure answers by curves of errors."""
    measures = (registry.get(registry.MEASURE, name) for name in registry.names(registry.MEASURE))
    names = {curve for measure in measures for curve in measure.answering}
    found = set()
    for condition, identities in grouping.members():
        curves = study.of("curves", identities)
        if len(curves[curves["ball"].isin(names)].dropna(subset=["width", "horizon"])):
            found.add(tuple(condition.values()))
    return found


def _of_search(study: Study) -> tuple[Searched | None, Study, Sequence[LossRow]]:
    """The search, the part of the study that its winners are, and all suggestions of one over the learning rate alone.

    The losses of suggestions are those on the seeds of the search. A study that searches nothing is measured whole.
    """
    if study.search is None:
        return None, study, ()
    from memsweep.report.analysis.search.searched import read_searched, scan_of, winners_part

    searched = read_searched(study, study.search)
    scan = scan_of(study, searched)
    losses = (
        loss_rows(scan, find_grouping(scan.records, scan.tables["replicas"], OF_A_SEARCH)) if scan is not None else ()
    )
    return searched, winners_part(study, searched), losses
