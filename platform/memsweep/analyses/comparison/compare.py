"""Studies side by side: the conditions that they share, those that one of them has alone, and the settings that differ.

A task is the question, and everything else is how it is answered. So conditions of two studies are the same where their
tasks agree in every field but the horizon, and where they agree in each field that one of the studies varies. A field
that has one value throughout each study tells no conditions apart: it is a setting in which the studies differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memsweep.report.analysis.contents import BALLS, Contents, Finding
from memsweep.report.analysis.losses import LossRow
from memsweep.report.naming.conditions import ALWAYS, KERNEL, SIZES, Labels
from memsweep.report.read.fields import fields_of
from memsweep.stability.comparison.differences import Difference, difference
from memsweep.stability.verdict.trend import Slope
from memsweep.sweep.planning.identity import training_of

SEVERAL = "several"
"""The value of a field that a study varies together with width or horizon within a condition, or searches."""
EACH = "the model of each study"
_TASK, _MODEL = "task", "model"
_SEEDS = "training.seeds"
_NOT_SETTINGS = ("training.first_seed", "training.checkpoint_every")

Condition = dict[str, Any]


@dataclass(frozen=True)
class ComparedVerdict:
    """One study's verdict on a condition and ball, and its slope beside that of the reference.

    The reference is the first of the studies that has the condition. All slopes of one condition and ball are read
    along one axis and at one threshold, by which the reference's verdict was reached.

    Attributes:
        condition: column -> value, of ``StudyComparison.columns``.
        studies: the names of all studies that have the condition with this ball.
        axis: ``horizon`` or ``width``.
        threshold: fraction of the zero predictor's loss.
        slope: of log radius in the log of the axis.
        difference: of the slopes, this study's minus the reference's; None for the reference itself.
        same: whether the study has the reference's very trials.
    """

    condition: Mapping[str, Any]
    studies: tuple[str, ...]
    study: str
    finding: Finding
    axis: str
    threshold: float
    slope: Slope
    difference: Difference | None
    same: bool


@dataclass(frozen=True)
class ComparedLoss:
    """One study's final loss in a condition, at the longest horizon and there the largest width that all studies have.

    Attributes:
        condition, studies, study, same: as of a ``ComparedVerdict``.
        row: with the loss of each seed; None where the studies have no size in common.
        log_difference: of the mean log losses over seeds, this study's minus the reference's; None for the reference
            itself, without a common size, and of the same weights.
        same_weights: whether the losses are those of the reference's very weights, which were trained once.
    """

    condition: Mapping[str, Any]
    studies: tuple[str, ...]
    study: str
    row: LossRow | None
    log_difference: Difference | None
    same: bool
    same_weights: bool

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Of the geometric means of the losses, this study's over the reference's, with the ends of its interval."""
        logs = self.log_difference
        return (math.nan,) * 3 if logs is None else (_exp(logs.estimate), _exp(logs.low), _exp(logs.high))


@dataclass(frozen=True)
class DifferingSetting:
    """A field whose values differ between the studies.

    Attributes:
        path: dotted path of a trial's config.
        values: study -> the values that its trials have, in the order of the plan; empty where they lack the field.
    """

    path: str
    values: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class StudyComparison:
    """Two or more studies side by side.

    Attributes:
        contents: name -> analysed study, in the order given; the first is the reference.
        columns: fields that tell conditions apart.
        labels: name the conditions.
        verdicts: by condition and ball, studies in the order given; shared conditions first.
        losses: by condition, in the same order.
        settings: those that differ.
    """

    contents: Mapping[str, Contents]
    columns: tuple[str, ...]
    labels: Labels
    verdicts: Sequence[ComparedVerdict]
    losses: Sequence[ComparedLoss]
    settings: Sequence[DifferingSetting]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the studies."""
        return tuple(self.contents)

    def conditions(self, study: str | None = None) -> list[Mapping[str, Any]]:
        """The conditions that several studies have, or those that one study alone has."""
        wanted = [row for row in self.losses if (len(row.studies) > 1 if study is None else row.studies == (study,))]
        return list({tuple(row.condition.values()): row.condition for row in wanted}.values())


def compare_studies(contents: Mapping[str, Contents]) -> StudyComparison:
    """Compare two studies or more that were analysed by the same criteria.

    Args:
        contents: name -> study; the first is the reference of differences.
    """
    columns, conditions = _shared_columns(contents)
    known = {key: condition for of_study in conditions.values() for key, condition in of_study.items()}
    findings: dict[tuple[Any, ...], dict[str, Finding]] = {}
    rows: dict[tuple[Any, ...], dict[str, list[LossRow]]] = {}
    for name, each in contents.items():
        places = {own: tuple(condition.values()) for own, condition in conditions[name].items()}
        for finding in each.verdicts:
            findings.setdefault((places[finding.key], finding.ball), {})[name] = finding
        for row in each.trained:
            place = places[tuple(row.condition.values())]
            rows.setdefault(place, {}).setdefault(name, []).append(row)
    by_place = {tuple(condition.values()): condition for condition in known.values()}
    verdicts = [
        row
        for ball in BALLS
        for place, condition in by_place.items()
        for row in _verdicts(condition, findings.get((place, ball), {}))
    ]
    losses = [row for place, condition in by_place.items() for row in _losses(condition, rows.get(place, {}))]
    return StudyComparison(
        contents=contents,
        columns=columns,
        labels=Labels(list(by_place.values())),
        verdicts=sorted(verdicts, key=lambda row: len(row.studies) == 1),
        losses=sorted(losses, key=lambda row: len(row.studies) == 1),
        settings=_differing(contents),
    )


def _shared_columns(
    contents: Mapping[str, Contents],
) -> tuple[tuple[str, ...], dict[str, dict[tuple[Any, ...], Condition]]]:
    """The fields that tell conditions apart, and by study: its own condition's key -> the values of these fields."""
    trials = {name: _trials(each) for name, each in contents.items()}
    names = dict.fromkeys(column for each in contents.values() for column in (*ALWAYS, *each.grouping.columns))
    task_fields = {path for of_study in trials.values() for parts in of_study.values() for one in parts for path in one}
    names |= dict.fromkeys(sorted(path for path in task_fields if path.startswith("task.")))
    values = {
        study: {
            key: {name: _value(name, key, parts, contents[study]) for name in names if name not in SIZES.values()}
            for key, parts in of_study.items()
        }
        for study, of_study in trials.items()
    }
    by_study = {
        name: [{condition[name] for condition in of_study.values()} for of_study in values.values() if of_study]
        for name in names
        if name not in SIZES.values()
    }
    kept = [
        name
        for name, found in by_study.items()
        if any(len(distinct) > 1 for distinct in found)
        or (name.partition(".")[0] == _TASK and (name in (_TASK, KERNEL) or len(set().union(*found)) > 1))
    ]
    said = [name for name in names if name in (*ALWAYS, *kept)]
    for name in ALWAYS:
        if name not in kept:  # names the condition, where the studies agree on it
            agreed = set().union(*by_study[name])
            value = agreed.pop() if len(agreed) == 1 else EACH if name == _MODEL else None
            for of_study in values.values():
                for condition in of_study.values():
                    condition[name] = value
    return tuple(said), {
        study: {key: {name: condition[name] for name in said} for key, condition in of_study.items()}
        for study, of_study in values.items()
    }


def _trials(contents: Contents) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Key of each condition of a study -> the fields of its trials."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in contents.trained:
        configs = [fields_of(contents.measured.records[identity]["config"]) for identity in row.identities]
        found.setdefault(tuple(row.condition.values()), []).extend(configs)
    return found


def _value(name: str, key: tuple[Any, ...], parts: Sequence[Mapping[str, Any]], contents: Contents) -> Any:
    own = dict(zip(contents.grouping.columns, key, strict=True))
    if name in own:
        return own[name]
    different = {part.get(name) for part in parts}
    return different.pop() if len(different) == 1 else SEVERAL


def _verdicts(condition: Condition, findings: Mapping[str, Finding]) -> list[ComparedVerdict]:
    if not findings:
        return []
    telling = next((each for each in findings.values() if each.deciding[1].available), next(iter(findings.values())))
    axis, threshold = telling.deciding[0], telling.judgement.threshold
    slopes = slopes_alike(findings, axis, threshold)
    reference, *_ = findings
    rows = []
    for name, finding in findings.items():
        apart = None if name == reference else difference(slopes[reference].by_seed, slopes[name].by_seed)
        same = name != reference and _identities(finding) == _identities(findings[reference])
        rows.append(
            ComparedVerdict(condition, tuple(findings), name, finding, axis, threshold, slopes[name], apart, same)
        )
    return rows


def slopes_alike(findings: Mapping[str, Finding], axis: str, threshold: float) -> dict[str, Slope]:
    """One kind of slope for all findings: the limit slope, or along widths that span too little, the one over all."""
    trends = {name: finding.judgement.by_threshold[threshold] for name, finding in findings.items()}
    if axis == "horizon":
        return {name: each.horizon.limit for name, each in trends.items()}
    known = [each.width for each in trends.values() if each.along_width.available]
    limits = all(each.limit.available for each in known)
    return {name: each.width.limit if limits else each.width.over_range for name, each in trends.items()}


def _identities(finding: Finding) -> frozenset[str]:
    return frozenset(finding.replicas["identity"])


def _losses(condition: Condition, rows: Mapping[str, Sequence[LossRow]]) -> list[ComparedLoss]:
    if not rows:
        return []
    by_size = {name: {(row.horizon or 0.0, row.width or 0.0): row for row in part} for name, part in rows.items()}
    common = set.intersection(*(set(part) for part in by_size.values()))
    chosen = {name: part[max(common)] if common else None for name, part in by_size.items()}
    reference, *_ = rows
    first = chosen[reference]
    compared = []
    for name, row in chosen.items():
        logs, same, same_weights = None, False, False
        if name != reference and row is not None and first is not None:
            same = {*row.identities} == {*first.identities}
            same_weights = {*map(training_of, row.identities)} == {*map(training_of, first.identities)}
            if not (same_weights or any((each.losses < 0.0).any() for each in (first, row))):  # which have no ratio
                logs = difference(_log_losses(first), _log_losses(row))
        compared.append(ComparedLoss(condition, tuple(rows), name, row, logs, same, same_weights))
    return compared


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _log_losses(row: LossRow) -> dict[int, tuple[float, float]]:
    """Seed -> log loss, twice; a seed that diverged has an infinite one, and one without a loss is left out."""
    with np.errstate(divide="ignore"):
        logs = np.log(row.losses)
    known = zip(row.column("seed"), map(float, logs), strict=True)
    return {int(seed): (value, value) for seed, value in known if not math.isnan(value)}


def _differing(contents: Mapping[str, Contents]) -> list[DifferingSetting]:
    """The settings whose sets of values differ, sizes first; seeds by their number in each cell, whichever they are."""
    tables: dict[str, dict[str, tuple[Any, ...]]] = {}
    for study, each in contents.items():
        for axis, path in SIZES.items():
            sizes = each.measured.tables["replicas"][axis].dropna()
            tables.setdefault(path, {})[study] = tuple(sorted({*map(float, sizes)}))
        tables.setdefault(_SEEDS, {})[study] = tuple(sorted({row.seeds for row in each.trained}))
        for record in each.measured.records.values():
            for path, value in fields_of(record["config"]).items():
                if path not in (*_NOT_SETTINGS, _SEEDS, *SIZES.values()):
                    values = tables.setdefault(path, {}).setdefault(study, ())
                    tables[path][study] = values if value in values else (*values, value)
    return [
        DifferingSetting(path, {study: values.get(study, ()) for study in contents})
        for path, values in tables.items()
        if len({frozenset(values.get(study, ())) for study in contents}) > 1
    ]
