"""What came of every round: one line of JSON each in a file that several campaigns may write to, and its table."""

from __future__ import annotations

import fcntl
import json
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path


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
    """What came of a round, or of a handful of hostile inputs.

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


def table(entries: Iterable[Entry]) -> str:
    """The Markdown table of docs/durability.md: one row for each kind, one for all, and the hostile inputs."""
    entries = list(entries)
    found: dict[str, list[tuple[Injection, bool]]] = {}
    for entry in entries:
        for one in entry.injections:
            found.setdefault(one.kind, []).append((one, not entry.problems))
    lines = [
        "| fault | injected | trials lost | trials re-run | tables equal | seconds to recover: median, longest |",
        "|---|---|---|---|---|---|",
        *(_row(kind, found[kind]) for kind in sorted(found)),
        _row("all", [pair for pairs in found.values() for pair in pairs]),
    ]
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


def counts(entries: Iterable[Entry]) -> Counter[str]:
    """How often each kind was injected."""
    return Counter(one.kind for entry in entries for one in entry.injections)


def _row(kind: str, pairs: list[tuple[Injection, bool]]) -> str:
    lost, rerun = (sum(getattr(one, name) for one, _ in pairs) for name in ("lost", "rerun"))
    times = [one.recovered for one, _ in pairs if one.recovered is not None]
    spent = f"{statistics.median(times):.1f}, {max(times):.1f}" if times else ""
    unequal = sum(not equal for _, equal in pairs)
    return f"| {kind} | {len(pairs)} | {lost} | {rerun} | {'yes' if not unequal else f'NO ({unequal})'} | {spent} |"
