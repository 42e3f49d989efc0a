"""docs/evidence/layers.md, from stored audits: a table of the layers of each package, and what was found in them."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.layers.known import HORIZON
from memsweep.report.audit import HOLDS

AUDITS = Path(__file__).parent / "audits.jsonl"
PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "layers.md"
START, END = "<!-- layers: python -m benchmarks.layers -->", "<!-- end of layers -->"
CONTRACT = (
    "shapes", "determinism", "batch", "causality", "tables", "parameters", "derivatives", "finite", "decay", "forms",
    "pieces", "padding", "precision",
)  # fmt: skip
"""Checks that say whether a layer does what it must."""
_COUNT = re.compile(r"(\d+) layers")


def stored(file: Path = AUDITS) -> list[dict[str, Any]]:
    """The lines of a file; of several about one layer, the last. A line that is no audit ends with a sentence."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [*{row["layer"]: row for row in (_read(file, *each) for each in enumerate(lines, 1))}.values()]


def _read(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or not {"layer", "version"} <= {*row}:
        sys.exit(f"{file}, line {number} is no audit of a layer: {line[:60]!r}. Take the line away; it is made again.")
    return row


def write(store: Path = AUDITS, page: Path = PAGE) -> None:
    """Puts the tables of a store on the page."""
    put(page, START, END, tables(stored(store)), store)


def put(page: Path, start: str, end: str, lines: Sequence[str], store: Path) -> None:
    """Puts tables between two marks of a page, in the place of those of at most as many layers.

    A store of fewer layers than the page shows, such as one that is not there, ends with a sentence.
    """
    before, rest = page.read_text(encoding="utf-8").split(start)
    shown, after = rest.split(end)
    has, had = (int(found[1]) if (found := _COUNT.search(text)) else 0 for text in ("\n".join(lines), shown))
    if has < had:
        sys.exit(f"{store} has {has} layers, and {page.name} shows {had}: the page stays as it is. Name their store.")
    page.write_text(f"{before}{start}\n{chr(10).join(lines)}\n{end}{after}", encoding="utf-8")


def tables(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of all tables: packages and layers in alphabetical order, so that it is one page for one store."""
    rows = sorted(rows, key=lambda row: row["layer"].lower())
    faulty = [row for row in rows if "fault" in row["checks"].values()]
    short = [row for row in rows if "not enough" in row["checks"].values()]
    lines = [
        f"{len(rows)} layers; {len(rows) - len(faulty)} of them without a fault"
        f"{f', {len(short)} not looked at in full' if short else ''}. {_by_code(rows)}",
        "",
        "| layer | contract | to note | state handed on by | memory | reach | holds in | parameters | seconds | code |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
    lines += ["", "| layer | check | what it says |", "|---|---|---|"]
    lines += [
        f"| {_name(row)} | {check} | {' '.join(row['said'][check].split()).replace('|', '¦')} |"
        for row in faulty
        for check, status in row["checks"].items()
        if status == "fault"
    ]
    return lines


def _name(row: Mapping[str, Any]) -> str:
    package, name = row["layer"].split(":")
    return f"{package} {row['version']}: {name}"


def _cells(row: Mapping[str, Any]) -> list[str]:
    numbers = row["numbers"]
    faults = [name for name, status in row["checks"].items() if status == "fault"]
    notes = [name for name in CONTRACT if row["checks"].get(name) == "note"]
    contract = f"**{', '.join(faults)}**" if faults else "kept"
    memory, decay = numbers["memory"], numbers["decay"]
    return [
        _name(row),
        contract,
        ", ".join(notes) or "–",
        f"`{numbers['forms']['step_form']}`" if numbers["forms"]["step_form"] else "–",
        _steps(memory["time_scale"], memory["horizon_limited"]),
        _steps(decay["longest"], (decay["longest"] or 0) >= (decay["held_steps"] or HORIZON)),
        ", ".join(name for name, error in row["errors"].items() if error <= HOLDS) or "none",
        f"{numbers['shapes']['parameters'] or 0:,}",
        f"{row['seconds']:.0f}",
        _code(row),
    ]


def _code(row: Mapping[str, Any]) -> str:
    return row["made_by"]["audit"][:6] if "made_by" in row else "–"


def _by_code(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many rows each code of the audit made."""
    made = Counter(map(_code, rows))
    said = [
        f"{count} {'made before codes were stored' if code == '–' else f'by {code}'}"
        for code, count in sorted(made.items())
    ]
    return f"Code of the audit: {', '.join(said)}."


def _steps(number: float | None, more: bool) -> str:
    if number is None or not math.isfinite(number):
        return "–"
    return f"{number:.3g}{' or more' if more else ''}"
