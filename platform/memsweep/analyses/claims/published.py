"""A published table beside our verdicts: the claim, the verdict, and whether the two agree."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.config.schema.claims import Claim, Claims
from memsweep.report.analysis.contents import Finding
from memsweep.report.naming.conditions import KERNEL
from memsweep.stability.verdict.judgement import Verdict


class Agreement(enum.StrEnum):
    """How a verdict stands to a published claim."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class ClaimedVerdict:
    """One claim about one kernel, beside one finding that it speaks of (None: the study has no such condition)."""

    claim: Claim
    kernel: str
    finding: Finding | None

    @property
    def claimed(self) -> str:
        """``stable`` or ``unstable``."""
        return self.claim.verdicts[self.kernel]

    @property
    def agreement(self) -> Agreement:
        """The verdict against the claim; an inconclusive one neither agrees nor disagrees."""
        if self.finding is None:
            return Agreement.NOT_MEASURED
        verdict = self.finding.judgement.verdict
        if verdict is Verdict.INCONCLUSIVE:
            return Agreement.UNDECIDED
        return Agreement.AGREES if verdict.value == self.claimed else Agreement.DISAGREES


def compare(claims: Claims | None, findings: Sequence[Finding]) -> list[ClaimedVerdict]:
    """Every claim with every finding that it speaks of, in the order of the published table."""
    comparisons = []
    for claim in claims.rows if claims is not None else ():
        for kernel in claim.verdicts:
            covered: list[Finding | None] = [
                f for f in findings if f.condition.get(KERNEL) == kernel and claim.covers(_columns(f))
            ]
            comparisons += [ClaimedVerdict(claim, kernel, finding) for finding in covered or [None]]
    return comparisons


def _columns(finding: Finding) -> dict[str, Any]:
    """The fields by the names that claims have for them: without ``task`` and ``model`` before the dot."""
    fields = {"task": finding.condition["task"], "model": finding.condition["model"]}
    return fields | {path.removeprefix("task.").removeprefix("model."): v for path, v in finding.fields.items()}


def counted(kinds: Sequence[Agreement]) -> str:
    """``12 agree, 3 disagree, 5 undecided``."""
    counts = {kind: sum(other is kind for other in kinds) for kind in Agreement}
    return ", ".join(f"{count} {_words(kind, count)}" for kind, count in counts.items() if count)


def _words(kind: Agreement, count: int) -> str:
    verb = kind in (Agreement.AGREES, Agreement.DISAGREES)
    return kind.value.removesuffix("s") if verb and count != 1 else kind.value
