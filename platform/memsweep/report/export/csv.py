"""The report's tables as files: ``verdicts.csv``, ``radii.csv``, ``curves.parquet``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from memsweep.report.analysis.bounds import EXPLANATIONS, PREFIX
from memsweep.report.analysis.findings import Finding
from memsweep.report.naming.conditions import CONDITION

VERDICT_COLUMNS = (
    *CONDITION,
    "ball",
    "threshold",
    "verdict",
    *("slope_width", "slope_width_low", "slope_width_high"),
    *("slope_horizon", "slope_horizon_low", "slope_horizon_high"),
    *("deciding", "reasons"),
)
RADII_COLUMNS = (
    *("identity", "task", *CONDITION, "width", "horizon", "seed", "ball"),
    *("threshold", "radius", "radius_low", "radius_high", "censored", "valid", "error_at_zero", "zero_loss"),
)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def verdict_frame(findings: Sequence[Finding], extra: Sequence[str]) -> pd.DataFrame:
    """One row per finding: VERDICT_COLUMNS, then the study's extra columns."""
    rows = [verdict_row(finding) for finding in findings]
    return pd.DataFrame(rows, columns=[*VERDICT_COLUMNS, *extra])


def radii_frame(findings: Sequence[Finding], extra: Sequence[str]) -> pd.DataFrame:
    """One row per trial, seed, ball and threshold: RADII_COLUMNS, then the study's extra columns."""
    columns = [*RADII_COLUMNS, *extra]
    parts = [finding.radii.assign(ball=finding.ball, **finding.condition) for finding in findings]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table so that a spreadsheet reads its text as text.

    Text that begins with ``= + - @``, a tab or a carriage return would be run as a formula: it gets a leading
    apostrophe. Numbers stay numbers: infinities are ``inf`` and ``-inf``, and an empty cell is a null.
    """
    safe = table.astype(object).map(_as_text).rename(columns=_as_text)
    safe.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    text = "'" + cell if cell.startswith(_FORMULA_STARTS) else cell
    return text.replace("\r\n", "\n").replace("\r", "\n")  # a bare carriage return would end the row for many readers


def verdict_row(finding: Finding) -> dict[str, Any]:
    """VERDICT_COLUMNS of one finding, and its extra columns."""
    judgement = finding.judgement
    row: dict[str, Any] = {**finding.condition, "ball": finding.ball, "threshold": judgement.threshold}
    row["verdict"] = judgement.verdict.value
    for name, slope in (("slope_width", judgement.slope_width), ("slope_horizon", judgement.slope_horizon)):
        row |= {name: slope.estimate, f"{name}_low": slope.low, f"{name}_high": slope.high}
    row["deciding"], _ = finding.deciding
    row["reasons"] = "; ".join(reasons(finding))
    return row


def reasons(finding: Finding) -> tuple[str, ...]:
    """Why the verdict is what it is, and that it rests on lower bounds of the error where it does."""
    if not finding.bound:
        return finding.judgement.reasons
    return (*finding.judgement.reasons, f"{PREFIX}{EXPLANATIONS[finding.bound]}")
