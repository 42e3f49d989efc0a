"""A published table beside our verdicts: what was claimed, what was found, and whether the two agree."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from memsweep.config.claims.types import Claim, Claims
from memsweep.report.analysis.findings import Finding
from memsweep.report.export.csv import VERDICT_COLUMNS, verdict_row
from memsweep.stability.verdict.rule import Verdict

PUBLISHED_COLUMNS = ("published", "claimed_kernel", "claimed", "agreement", *VERDICT_COLUMNS)


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
            spoken_of: list[Finding | None] = [
                f for f in findings if f.condition["kernel"] == kernel and claim.covers(f.condition)
            ]
            comparisons += [ClaimedVerdict(claim, kernel, finding) for finding in spoken_of or [None]]
    return comparisons


def counted(kinds: Sequence[Agreement]) -> str:
    """``12 agree, 3 disagree, 5 undecided``."""
    counts = {kind: sum(found is kind for found in kinds) for kind in Agreement}
    return ", ".join(f"{count} {_words(kind, count)}" for kind, count in counts.items() if count)


def _words(kind: Agreement, count: int) -> str:
    verb = kind in (Agreement.AGREES, Agreement.DISAGREES)
    return kind.value.removesuffix("s") if verb and count != 1 else kind.value


def published_frame(comparisons: Sequence[ClaimedVerdict], extra: Sequence[str]) -> pd.DataFrame:
    """One row per comparison: PUBLISHED_COLUMNS, then the study's extra columns."""
    rows = [_row(comparison) for comparison in comparisons]
    return pd.DataFrame(rows, columns=[*PUBLISHED_COLUMNS, *extra])


def _row(comparison: ClaimedVerdict) -> dict[str, Any]:
    row: dict[str, Any] = {"published": comparison.claim.name, "claimed_kernel": comparison.kernel}
    row |= {"claimed": comparison.claimed, "agreement": comparison.agreement.value}
    return row | (verdict_row(comparison.finding) if comparison.finding is not None else {})
