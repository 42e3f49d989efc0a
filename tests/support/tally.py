"""The drills' faults and their cost: counted while they run, shown as one table at the end."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Count:
    """The outcome of all faults of one kind.

    Attributes:
        injected: faults.
        lost: trials whose stored result was lost.
        rerun: trials with a whole result that were computed again nevertheless.
        equal: whether the final table was the undisturbed one, every time.
        detected: seconds until somebody knew, at most; None where there was nothing to know, or it was not measured.
        recovered: seconds until the work that was hit went on, at most.
    """

    injected: int = 0
    lost: int = 0
    rerun: int = 0
    equal: bool = True
    detected: float | None = None
    recovered: float | None = None

    def add(self, other: Count) -> None:
        """Count other faults of the kind, too."""
        self.injected += other.injected
        self.lost += other.lost
        self.rerun += other.rerun
        self.equal = self.equal and other.equal
        self.detected = _later(self.detected, other.detected)
        self.recovered = _later(self.recovered, other.recovered)


@dataclass
class Tally:
    """The counts of a test session, by what was broken."""

    counts: dict[str, Count] = field(default_factory=dict)

    def record(
        self,
        kind: str,
        injected: int,
        lost: int,
        rerun: int,
        equal: bool,
        *,
        detected: float | None = None,
        recovered: float | None = None,
    ) -> None:
        """Add the faults of one drill.

        Args:
            kind: what was broken, in words ("worker killed").
            injected: how many faults.
            lost: trials whose stored result was lost.
            rerun: rows with a whole result that were computed again.
            equal: whether the final table is that of the undisturbed sweep.
            detected, recovered: seconds from the fault, where they were measured.
        """
        self.counts.setdefault(kind, Count()).add(Count(injected, lost, rerun, equal, detected, recovered))

    def data(self) -> dict[str, dict[str, Any]]:
        """The counts by kind, as plain values."""
        return {kind: asdict(count) for kind, count in sorted(self.counts.items())}

    def add(self, data: dict[str, dict[str, Any]]) -> None:
        """Add what another process counted, its ``data``."""
        for kind, counted in data.items():
            self.counts.setdefault(kind, Count()).add(Count(**counted))

    @property
    def total(self) -> Count:
        """All kinds together."""
        total = Count()
        for count in self.counts.values():
            total.add(Count(count.injected, count.lost, count.rerun, count.equal))
        return total

    def lines(self) -> list[str]:
        """The table, one line per kind and one for all."""
        rows = [
            ("fault", "injected", "detected", "recovered", "trials lost", "trials re-run needlessly", "table equal")
        ]
        for kind, count in [*sorted(self.counts.items()), ("total", self.total)]:
            equal = "yes" if count.equal else "NO"
            times = (_seconds(count.detected), _seconds(count.recovered))
            rows.append((kind, str(count.injected), *times, str(count.lost), str(count.rerun), equal))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [_line(row, widths) for row in rows]
        rule = "-" * len(lines[0])
        return [lines[0], rule, *lines[1:-1], rule, lines[-1]]

    def write(self, path: Path) -> None:
        """The counts as JSON."""
        path.write_text(json.dumps({"kinds": self.data(), "total": asdict(self.total)}, indent=1) + "\n")


def _later(one: float | None, two: float | None) -> float | None:
    return max(one, two) if one is not None and two is not None else two if one is None else one


def _seconds(time: float | None) -> str:
    return "" if time is None else f"{time:.1f} s"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    kind, *numbers = row
    return "  ".join([kind.ljust(widths[0]), *(n.rjust(width) for n, width in zip(numbers, widths[1:], strict=True))])
