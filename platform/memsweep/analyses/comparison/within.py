"""The conditions of one study side by side: how their slopes and radii differ, seed by seed.

Two intervals that overlap do not say that two conditions are alike, nor how far they may be apart. The interval of the
difference does. Replicas of the same seed have the same data and initial draws, so pairs leave out what they share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memsweep.analyses.comparison.compare import slopes_alike
from memsweep.report.analysis.contents import Contents, Finding
from memsweep.report.analysis.losses import Ratio
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.rows.verdicts import moving, share_of
from memsweep.report.values.section import Place, Section
from memsweep.report.values.table import CSV, EXPORTED, PAGE, TERMINAL, Column, Table, condition_columns
from memsweep.stability.comparison.differences import Bounds, Difference, difference
from memsweep.stability.verdict.trend import Slope

WORDS = (
    "Slopes and radii of one memory under several models or settings, against the first that is judged by the same "
    "reference. Difference: of the limit slopes of the log radius, with its 95 % interval over seeds. Ratio: of the "
    "radii at the longest horizon of both, with that of the mean logarithm. Seeds that both have are pairs. An "
    "interval that holds 0, or a ratio of 1, says how far apart the two may be, and not that they are alike. "
    "Where both ends are 0, or 1, the seeds of both are equal, but for rounding. "
    "Intervals are 95 % each, and not corrected for their number."
)


@dataclass(frozen=True)
class WithinRow:
    """One condition beside the first one that has the same memory, ball and reference of its errors.

    Attributes:
        finding: of the condition.
        reference: of the first one.
        axis: ``horizon`` or ``width``, along which both slopes are read.
        threshold: share of the zero predictor's loss, or of another reference, at which slopes and radii are read.
        slope: of the condition.
        slopes: of both, this one's minus the reference's.
        radii: of the log radii at the largest common size, likewise.
    """

    finding: Finding
    reference: Finding
    axis: str
    threshold: float
    slope: Slope
    slopes: Difference
    radii: Difference

    @property
    def telling(self) -> Difference:
        """Of slopes, or of radii where there is none."""
        return self.slopes if self.slopes.available else self.radii

    @property
    def ratio(self) -> Ratio:
        """Of the geometric means of the radii, with the ends of its interval."""
        return Ratio(*(math.exp(end) for end in (self.radii.estimate, self.radii.low, self.radii.high)))


def section(contents: Contents) -> Section:
    """A table of the differences, on the page and as a file."""
    rows = [*within_rows(contents.findings, contents.labels)]
    table = _table(rows, contents.grouping.columns, contents.labels)
    places = {PAGE: Place.BEHIND, TERMINAL: Place.NOWHERE, CSV: Place.LAST}
    return Section(table.title, WORDS, table, anchor="differences", places=places)


def within_rows(findings: Sequence[Finding], labels: Labels) -> Iterator[WithinRow]:
    """A row for each condition but the first of each memory, ball and reference, where both have slopes or radii.

    A radius of wrong answers and one of the drift of outputs are of different things.
    """
    together: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        key = finding.ball, finding.reference, labels.memory(finding.condition)
        together.setdefault(key, []).append(finding)
    for reference, *others in together.values():
        axis, _ = reference.deciding
        threshold = reference.judgement.threshold
        for finding in others:
            slopes = slopes_alike({"reference": reference, "own": finding}, axis, threshold)
            apart = difference(slopes["reference"].by_seed, slopes["own"].by_seed)
            radii = difference(*_log_radii(reference, finding, threshold))
            if apart.available or radii.available:
                yield WithinRow(finding, reference, axis, threshold, slopes["own"], apart, radii)


def _log_radii(left: Finding, right: Finding, threshold: float) -> tuple[Bounds, Bounds]:
    """Seed -> bounds of the log radius of each side, at the longest horizon and there the largest width of both."""
    both = (left.radii, right.radii)
    if any(radii.empty for radii in both):  # it has no columns
        return {}, {}
    valid = [radii[radii["valid"].astype(bool) & (radii["threshold"] == threshold)] for radii in both]
    sizes = [{*zip(rows["horizon"], rows["width"], strict=True)} for rows in valid]
    if not (common := sizes[0] & sizes[1]):
        return {}, {}
    horizon, width = max(common)
    found: list[Mapping[int, tuple[float, float]]] = []
    for rows in valid:
        at = rows[(rows["horizon"] == horizon) & (rows["width"] == width)]
        with np.errstate(divide="ignore"):
            ends = np.log(at[["radius_low", "radius_high"]].to_numpy(float))
        found.append({int(seed): (float(low), float(high)) for seed, (low, high) in zip(at["seed"], ends, strict=True)})
    return found[0], found[1]


def _table(rows: Sequence[WithinRow], names: Sequence[str], labels: Labels) -> Table[WithinRow]:
    def against(row: WithinRow) -> str:
        return labels.machine(row.reference.condition)

    share = share_of(row.finding for row in rows)
    columns: list[Column[WithinRow]] = [
        *condition_columns(names, labels, lambda row: row.finding.condition),
        Column("ball", lambda row: row.finding.ball, views=EXPORTED),
        Column("against", against),
        Column("slope", lambda row: row.slope, ends=True),
        Column("along", lambda row: row.axis, views=EXPORTED),
        Column("difference", lambda row: Slope(row.slopes.estimate, row.slopes.low, row.slopes.high), ends=True),
        Column("ratio of radii", lambda row: row.ratio, key="ratio", ends=True),
        Column("at error", lambda row: row.threshold, percent, key="threshold", unit=share),
        Column("paired", lambda row: row.telling.paired, views=EXPORTED),
        Column("seeds", lambda row: min(row.telling.seeds)),
    ]
    title = "Differences between conditions"
    return Table("differences", title, rows, columns, group=lambda row: moving(row.finding.ball))
