"""The words and numbers of a finished study for MLflow: those of each trial's run, and those of the study's own."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from memsweep.report.analysis.contents import Contents, Finding
from memsweep.report.analysis.losses import LossRow, largest
from memsweep.report.charts.radius import medians
from memsweep.report.headline.answer import answer_of
from memsweep.report.values.section import sections_of, slope_metrics
from memsweep.stability.verdict.judgement import Verdict
from memsweep.sweep.tracking.run_content import ANSWERS, DECIDE, HEADLINE, Verdicts, milliseconds

_LONGEST = 200  # letters of a condition: MLflow allows 250 of a whole name
_MOST = 200
"""Conditions of which the study's own run has numbers: MLflow's page of a run shows no more in one view."""
_REFUSED = re.compile(r"[^\w\-. /]", re.ASCII)  # in a name of MLflow's


def verdicts_of(contents: Contents) -> dict[str, Verdicts]:
    """The verdicts behind which a trial stands, its radii at their thresholds, and what its measures say.

    Returns:
        identity -> by ball, as far as they exist, ``ball_recurrent/radius`` (the median over the seeds with a valid
        fit) and ``slope``, ``slope_low`` and ``slope_high`` as metrics; ``ball_recurrent/verdict``, ``reference``,
        ``deciding`` (the axis of the slope), ``threshold`` and ``rule_version`` as tags. A radius beyond the measured
        ones is a bound, which a tag ``ball_recurrent/radius`` says. What the sections of each measure and analysis say
        of its trials.
    """
    finished = [record["provenance"]["finished"] for record in contents.study.records.values()]
    time = max(map(milliseconds, finished), default=0)
    metrics, tags = defaultdict[str, dict[str, float]](dict), defaultdict[str, dict[str, str]](dict)
    for finding in contents.verdicts:
        of_all, words = _of_all(finding, f"ball_{finding.ball}")
        at = finding.radii[finding.radii["threshold"] == finding.judgement.threshold]
        for identity, rows in at.groupby("identity"):
            name = str(identity)
            metrics[name].update(of_all)
            tags[name].update(words)
            valid = rows[rows["valid"].astype(bool)]
            if valid.empty:
                continue
            middle = medians(valid, "horizon").iloc[0]
            metrics[name][f"ball_{finding.ball}/radius"] = float(middle["edge"])
            if middle["censored"]:
                tags[name][f"ball_{finding.ball}/radius"] = f"{middle['censored']} {middle['edge']:g}"
    for section in sections_of(contents):
        for identity, measured in section.metrics.items():
            metrics[identity].update(measured)
        for identity, said in section.tags.items():
            tags[identity].update(said)
    return {name: Verdicts(metrics[name], tags[name], time) for name in metrics}


def study_run_of(contents: Contents) -> Verdicts:
    """What the study's own run says: the headline, the verdicts, and the numbers behind them.

    Returns:
        Tags ``memsweep.headline``, ``memsweep.answers`` (what else the study answers, and lacks) and
        ``memsweep.decide`` (the command that decides what is open). Metrics ``trials``, ``without_result`` and, of a
        study with verdicts, ``verdicts/stable``, ``verdicts/unstable`` and ``verdicts/inconclusive``. For each
        condition, by its name, ``<condition>/ball_recurrent/verdict`` as a tag, and slope and smallest radius as
        metrics; of a condition without a verdict the median loss at its largest size.
    """
    study, answer = contents.study, answer_of(contents)
    said = {HEADLINE: answer.headline, ANSWERS: " ".join(answer.following), DECIDE: answer.decide}
    tags = {name: text.replace("`", "") or "none" for name, text in said.items()}  # an earlier text goes
    metrics = {"trials": float(study.planned), "without_result": float(len(study.missing))}
    if contents.verdicts:
        counts = Counter(finding.judgement.verdict for finding in contents.verdicts)
        metrics |= {f"verdicts/{verdict.value}": float(counts[verdict]) for verdict in Verdict}
    for finding in contents.verdicts[:_MOST]:
        about = f"{_name(contents, finding)}/ball_{finding.ball}"
        of_all, words = _of_all(finding, about)
        metrics |= of_all | {f"{about}/radius": radius for radius in _smallest_radius(finding)}
        tags |= words
    for name, loss in [*_losses(contents)][:_MOST]:
        metrics[f"{name}/loss"] = loss
    finished = [record["provenance"]["finished"] for record in study.records.values()]
    return Verdicts(metrics, tags, max(map(milliseconds, finished), default=0))


def _name(contents: Contents, of: Finding | LossRow) -> str:
    """The name of a condition, in letters and of a length that MLflow allows; a cut one ends in a hash of the whole."""
    whole = " ".join(word for word in contents.labels.names(of.condition) if word)
    name = _REFUSED.sub("_", whole).strip() or "all"
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 9]} {hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _smallest_radius(finding: Finding) -> Iterator[float]:
    """The smallest median radius over the sizes, at the threshold of the verdict, where it was found."""
    rows = finding.radii
    at = rows[
        (rows["threshold"] == finding.judgement.threshold) & rows["valid"].astype(bool) & (rows["censored"] == "")
    ]
    if len(at):
        yield float(at.groupby(["width", "horizon"], dropna=False)["radius"].median().min())


def _losses(contents: Contents) -> Iterator[tuple[str, float]]:
    """Of each condition without a verdict, the median loss over seeds at its largest size, where it is finite."""
    for row in largest(contents.losses):
        if math.isfinite(row.loss.middle):
            yield _name(contents, row), row.loss.middle


def _of_all(finding: Finding, about: str) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics and tags that all trials of a condition share, under names that begin with ``about``."""
    axis, slope = finding.deciding
    judgement = finding.judgement
    words = {
        "verdict": judgement.verdict.value,
        "threshold": f"{judgement.threshold:g}",
        "reference": finding.reference,
        "deciding": axis,
        "rule_version": f"{judgement.rule_version}",
    }
    return slope_metrics(slope, about), {f"{about}/{name}": word for name, word in words.items()}
