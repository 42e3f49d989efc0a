"""The outcome of every round: one line of JSON each in a file that several campaigns may write to, and its table."""

from __future__ import annotations

import fcntl
import itertools
import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

_ALL = "all"


@dataclass
class Injection:
    """One fault that hit something.

    Attributes:
        kind: its name.
        how: what was drawn within the kind.
        lost: results that were whole when its command started, and are gone or changed.
        rerun: results that were whole then, and were computed again.
        recovered: seconds from the fault until a batch was trained again, or the study was done; None where the
            times of batches say nothing, because clocks had jumped.
    """

    kind: str
    how: str = ""
    lost: int = 0
    rerun: int = 0
    recovered: float | None = None


@dataclass
class Entry:
    """The outcome of a round, or of a handful of hostile inputs.

    Attributes:
        seed, number: of the round.
        what: the round in words.
        injections: what hit something.
        problems: everything that is not as it must be; none: tables are equal.
        seconds: that the round took.
        inputs: hostile inputs by their sort.
    """

    seed: int
    number: int
    what: str
    injections: list[Injection] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    inputs: dict[str, int] = field(default_factory=dict)


def append(path: Path, entry: Entry) -> None:
    """Add a line; several processes may do so at once."""
    with path.open("a", encoding="utf-8") as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        out.write(json.dumps(asdict(entry), ensure_ascii=False) + "\n")


def read(paths: Iterable[Path]) -> list[Entry]:
    """All lines of some files."""
    entries = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            data = json.loads(line)
            entries.append(Entry(**data | {"injections": [Injection(**one) for one in data["injections"]]}))
    return entries


@dataclass(frozen=True)
class Row:
    """The sum over all injections of a kind: a row of the table, which can be read again and added to others.

    Attributes:
        injected, lost, rerun: their sums.
        unequal: injections in rounds with a problem.
        median: seconds to recover, as the ends of a range that holds their median; None where none are known.
        longest: of these seconds.
    """

    injected: int = 0
    lost: int = 0
    rerun: int = 0
    unequal: int = 0
    median: tuple[float, float] | None = None
    longest: float = 0.0

    @classmethod
    def of(cls, found: list[tuple[Injection, bool]]) -> Row:
        """Of injections, each with whether its round had no problem."""
        times = [one.recovered for one, _ in found if one.recovered is not None]
        return cls(
            len(found),
            sum(one.lost for one, _ in found),
            sum(one.rerun for one, _ in found),
            sum(not equal for _, equal in found),
            (statistics.median(times),) * 2 if times else None,
            max(times, default=0.0),
        )

    @classmethod
    def read(cls, cells: list[str]) -> Row:
        """The row of a table, without its first cell."""
        injected, lost, rerun, equal, seconds = cells
        median, _, longest = seconds.rpartition(", ")
        ends = [float(end) for end in median.split(" to ")] if median else []
        unequal = 0 if equal == "yes" else int(equal.strip("NO ()"))
        span = (ends[0], ends[-1]) if ends else None
        return cls(int(injected), int(lost), int(rerun), unequal, span, float(longest or 0.0))

    def __add__(self, other: Row) -> Row:
        """The median of two samples together lies between their medians."""
        ends = [*(self.median or ()), *(other.median or ())]
        return Row(
            self.injected + other.injected,
            self.lost + other.lost,
            self.rerun + other.rerun,
            self.unequal + other.unequal,
            (min(ends), max(ends)) if ends else None,
            max(self.longest, other.longest),
        )

    def __str__(self) -> str:
        ends = [f"{end:.1f}" for end in self.median or ()]
        median = " to ".join(dict.fromkeys(ends))
        spent = f"{median}, {self.longest:.1f}" if median else ""
        equal = f"NO ({self.unequal})" if self.unequal else "yes"
        return f"{self.injected} | {self.lost} | {self.rerun} | {equal} | {spent}"


_HEAD = "| fault | injected | trials lost | trials re-run | tables equal | seconds to recover: median, longest |"


def rows(entries: Iterable[Entry], documents: Iterable[Path] = ()) -> dict[str, Row]:
    """A row for each kind that was injected, and one for all.

    Args:
        entries: of campaigns.
        documents: Markdown files with a table of other campaigns, which count, too.
    """
    found: dict[str, list[tuple[Injection, bool]]] = {}
    for entry in entries:
        for one in entry.injections:
            for kind in (one.kind, _ALL):
                found.setdefault(kind, []).append((one, not entry.problems))
    together = {kind: Row.of(pairs) for kind, pairs in found.items()}
    for document in documents:
        below = document.read_text(encoding="utf-8").partition(f"{_HEAD}\n")[2].splitlines()[1:]
        for line in itertools.takewhile(lambda line: line.startswith("|"), below):
            kind, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            together[kind] = together.get(kind, Row()) + Row.read(cells)
    return together


def table(entries: Iterable[Entry], documents: Iterable[Path] = ()) -> str:
    """The table of docs/evidence/durability.md: one row for each kind, one for all, and the entries' hostile inputs."""
    entries = list(entries)
    found = rows(entries, documents)
    kinds = [*sorted(found.keys() - {_ALL}), *found.keys() & {_ALL}]
    lines = [_HEAD, "|---|---|---|---|---|---|", *(f"| {kind} | {found[kind]} |" for kind in kinds)]
    inputs: dict[str, int] = {}
    for entry in entries:
        for sort, count in entry.inputs.items():
            inputs[sort] = inputs.get(sort, 0) + count
    if inputs:
        bad = sum(bool(entry.problems) for entry in entries if entry.inputs)
        lines += ["", "| hostile input | tried |", "|---|---|"]
        lines += [f"| {sort} | {count:,} |" for sort, count in sorted(inputs.items())]
        lines.append(f"| all, of which {bad} were answered wrongly | {sum(inputs.values()):,} |")
    return "\n".join(lines)


def counts(entries: Iterable[Entry], documents: Iterable[Path] = ()) -> dict[str, int]:
    """How often each kind was injected."""
    return {kind: row.injected for kind, row in rows(entries, documents).items()}
