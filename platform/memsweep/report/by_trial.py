"""What a report says about each trial, as named values: for a tracking server, which knows runs and no conditions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from memsweep.report.analysis.contents import Finding
from memsweep.report.charts.radius import medians
from memsweep.report.values.section import sections_of, slope_metrics
from memsweep.sweep.tracking.run_content import Verdicts, milliseconds

if TYPE_CHECKING:
    from memsweep.report.analysis.contents import Contents


def verdicts_of(contents: Contents) -> dict[str, Verdicts]:
    """The verdicts behind which a trial stands, its radii at their thresholds, and what its measures say.

    Returns:
        identity -> by ball, as far as they exist, ``ball_recurrent/radius`` (the median over the seeds with a valid
        fit) and ``slope``, ``slope_low`` and ``slope_high`` as metrics; ``ball_recurrent/verdict``, ``deciding`` (the
        axis of the slope), ``threshold`` and ``rule_version`` as tags. A radius beyond the measured ones is a bound,
        which a tag ``ball_recurrent/radius`` says. What the sections of each measure and analysis say of its trials.
    """
    finished = [record["provenance"]["finished"] for record in contents.study.records.values()]
    time = max(map(milliseconds, finished), default=0)
    metrics, tags = defaultdict[str, dict[str, float]](dict), defaultdict[str, dict[str, str]](dict)
    for finding in contents.verdicts:
        of_all, words = _of_all(finding)
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


def _of_all(finding: Finding) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics and tags that all trials of a condition share."""
    axis, slope = finding.deciding
    judgement, ball = finding.judgement, finding.ball
    words = {
        "verdict": judgement.verdict.value,
        "threshold": f"{judgement.threshold:g}",
        "deciding": axis,
        "rule_version": f"{judgement.rule_version}",
    }
    return slope_metrics(slope, f"ball_{ball}"), {f"ball_{ball}/{name}": word for name, word in words.items()}
