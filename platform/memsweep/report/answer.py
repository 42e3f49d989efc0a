"""The study's answer in words, put together from its verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from memsweep.report.findings import BALLS, Finding
from memsweep.report.labels import Labels
from memsweep.stability.verdict import Verdict

MOVES = {"recurrent": "the recurrent weights move", "all": "all weights move"}
_MOST_NAMED = 12


def answers(findings: Sequence[Finding], labels: Labels) -> list[str]:
    """One sentence per ball that was measured, the recurrent ball first; one that says so when there is none."""
    sentences = []
    for ball in BALLS:
        part = [finding for finding in findings if finding.ball == ball]
        if part:
            sentences.append(_sentence(part, labels, MOVES[ball]))
    return sentences or ["No verdict yet: no trial of this study has finished."]


def _sentence(findings: Sequence[Finding], labels: Labels, when: str) -> str:
    if len(findings) > _MOST_NAMED:
        return f"When {when}, {_counts(findings)}."
    by_memory: dict[str, list[Finding]] = {}
    for finding in findings:
        by_memory.setdefault(labels.memory(finding.condition), []).append(finding)
    clauses = [f"{memory} memory is {_clause(part, labels)}" for memory, part in by_memory.items()]
    return f"When {when}: {'; '.join(clauses)}."


def _clause(findings: Sequence[Finding], labels: Labels) -> str:
    order = [Verdict.UNSTABLE, Verdict.STABLE, Verdict.INCONCLUSIVE]
    parts = []
    for verdict in order:
        names = [labels.machine(f.condition) for f in findings if f.judgement.verdict == verdict]
        if names:
            parts.append(f"{verdict.value} under {joined(names)}")
    return ", ".join(parts)


def _counts(findings: Sequence[Finding]) -> str:
    counted = [(v.value, sum(f.judgement.verdict == v for f in findings)) for v in Verdict]
    return f"of {len(findings)} conditions " + joined([f"{count} are {word}" for word, count in counted if count])


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
