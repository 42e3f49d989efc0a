"""The study's answer in words, put together from its verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from memsweep.report.analysis.findings import BALLS, Finding
from memsweep.report.naming.labels import Labels
from memsweep.report.naming.numbers import joined, limit, percent
from memsweep.stability.verdict.judgement import DEFAULT, Criteria, Verdict

MOVES = {
    "recurrent": "the recurrent weights move",
    "weights": "all weights but the biases move",
    "all": "all weights move",
}
NOT_FINISHED = "No verdict yet: no trial of this study has finished."
NOT_ASKED = "No verdict: this study asks no question of stability; its losses are below."
CHOSEN_LATER = "chosen after the results were seen, so that the error rates of the rule do not hold for these verdicts"
_MOST_NAMED = 12
_ORDER = (Verdict.UNSTABLE, Verdict.STABLE, Verdict.INCONCLUSIVE)


def judged(criteria: Criteria) -> str:
    """The sentence that goes with verdicts of another rule than the usual one; empty for the usual one."""
    if criteria == DEFAULT:
        return ""
    return (
        f"Judged again from the stored results, at thresholds of {_listed(criteria.thresholds)} and a slope "
        f"limit of {limit(criteria.slope_limit)} (the rule: "
        f"{_listed(DEFAULT.thresholds)} and {limit(DEFAULT.slope_limit)}): {CHOSEN_LATER}. Worst pushes were "
        f"searched most thoroughly near {_listed((min(DEFAULT.thresholds), max(DEFAULT.thresholds)))}."
    )


def _listed(thresholds: Sequence[float]) -> str:
    return joined([percent(threshold) for threshold in thresholds])


def answers(findings: Sequence[Finding], labels: Labels, *, finished: bool) -> list[str]:
    """One sentence per ball that was measured, the recurrent ball first; one that says so when there is none.

    Args:
        findings: those that need a verdict.
        labels: of the study.
        finished: whether any trial has a result.
    """
    sentences = []
    for ball in BALLS:
        part = [finding for finding in findings if finding.ball == ball]
        if part:
            sentences.append(_sentence(part, labels, MOVES[ball]))
    return sentences or [NOT_ASKED if finished else NOT_FINISHED]


def _sentence(findings: Sequence[Finding], labels: Labels, when: str) -> str:
    by_memory: dict[str, list[Finding]] = {}
    for finding in findings:
        by_memory.setdefault(labels.memory(finding.condition), []).append(finding)
    many = len(findings) > _MOST_NAMED
    clauses = [
        f"{memory} memory is {_counts(part) if many else _clause(part, labels)}" for memory, part in by_memory.items()
    ]
    return f"When {when}: {'; '.join(clauses)}."


def _clause(findings: Sequence[Finding], labels: Labels) -> str:
    parts = []
    for verdict in _ORDER:
        names = [labels.machine(f.condition) for f in findings if f.judgement.verdict == verdict]
        if names:
            parts.append(f"{verdict.value} under {joined(names)}")
    return ", ".join(parts)


def _counts(findings: Sequence[Finding]) -> str:
    """``unstable under 3 and stable under 27 of 30 models``."""
    counted = [(verdict.value, sum(f.judgement.verdict == verdict for f in findings)) for verdict in _ORDER]
    parts = [f"{word} under {count}" for word, count in counted if count]
    if len(parts) == 1:
        return f"{parts[0].partition(' ')[0]} under all {len(findings)} models"
    return f"{joined(parts)} of {len(findings)} models"
