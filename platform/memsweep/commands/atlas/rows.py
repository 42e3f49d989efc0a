"""The rows of the atlas: those that come with memsweep, and that of a study of a user's layer."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep import builtin

if TYPE_CHECKING:
    from memsweep.documents.keys.runs import AtlasItem
    from memsweep.report.analysis.losses import LossRow, Spread

STORED_SEEDS = 8
"""Seeds behind each number of the stored rows."""
_FILE = "tasks.csv"
TIMES = ", 4T"
"""Ends the name of a column of sequences of four times the trained length."""
LONGER = "accuracy_4T"
_GUESS = "25 (recall, copying), 50 (parity, flip_flop), 17 (S3)"


@dataclass(frozen=True)
class Cell:
    """Accuracy of a layer on a task: median, least and most over seeds, and their number; nan and 0: there is none."""

    middle: float
    low: float
    high: float
    seeds: int = 0

    @property
    def known(self) -> bool:
        return not math.isnan(self.middle)

    @property
    def text(self) -> str:
        """In per cent: ``66 [49, 80]``."""
        if not self.known:
            return "–"
        middle, low, high = (f"{100 * value:.3g}" for value in (self.middle, self.low, self.high))
        return middle if low == middle == high else f"{middle} [{low}, {high}]"


@dataclass(frozen=True)
class Standing:
    """The place that a row comes from.

    Attributes:
        told: in words.
        is_checked: its numbers were computed here, or the identities of its trials follow from configuration and code.
        own: it is that of the layer that was given.
        file: that holds it; empty where none does.
    """

    told: str
    is_checked: bool = False
    own: bool = False
    file: str = ""

    @property
    def mark(self) -> str:
        """In front of the row."""
        return "→ " if self.own else "  " if not self.file else "+ " if self.is_checked else "? "


STORED, OWN = Standing("stored (docs/atlas)", is_checked=True), Standing("computed here", is_checked=True, own=True)


@dataclass(frozen=True)
class AtlasRow:
    """A layer in the atlas.

    Attributes:
        unit: its name, or the import path of a user's.
        cells: by task, and ``task, 4T`` for sequences of four times the trained length.
        standing: where it comes from.
        changed: settings that are not the protocol's.
    """

    unit: str
    cells: Mapping[str, Cell]
    standing: Standing = STORED
    changed: tuple[str, ...] = ()

    @property
    def seeds(self) -> int:
        """The fewest behind a number that is there; 0: none is."""
        return min((cell.seeds for cell in self.cells.values() if cell.known), default=0)

    def mean(self, columns: Collection[str]) -> float:
        """Mean of the medians in these columns, which orders the rows; below all others where none is known."""
        known = [cell.middle for name, cell in self.cells.items() if name in columns and cell.known]
        return sum(known) / len(known) if known else -1.0

    def items(self) -> Iterator[AtlasItem]:
        """The cells for a document."""
        for task, cell in self.cells.items():
            yield {
                "unit": self.unit,
                "own": self.standing.own,
                "task": task,
                "accuracy": cell.middle,
                "low": cell.low,
                "high": cell.high,
                "seeds": cell.seeds,
                "checked": self.standing.is_checked,
                "standing": self.standing.told,
                "file": self.standing.file or None,
                "changed": list(self.changed),
            }


def stored_rows() -> list[AtlasRow]:
    """The twelve rows of docs/atlas, which come with memsweep."""
    with (builtin.folder(builtin.ATLAS) / _FILE).open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    names = [name for name in lines[0] if name != "under" and not name.endswith(("_low", "_high"))]
    return [
        AtlasRow(
            line["under"],
            {name: _stored_cell(line, name) for name in names},
        )
        for line in lines
    ]


def _stored_cell(line: Mapping[str, str], name: str) -> Cell:
    middle, low, high = (float(line[f"{name}{end}"]) for end in ("", "_low", "_high"))
    return Cell(middle, low, high, STORED_SEEDS)


def own_row(unit: str, found: Iterable[LossRow], columns: Sequence[str], changed: Sequence[str] = ()) -> AtlasRow:
    """The row of a layer, from the losses of its study; tasks that are not there are nan."""
    rows = {str(row.condition["task"]): row for row in found}
    cells = {name: _cell(rows.get(name.removesuffix(TIMES)), longer=name.endswith(TIMES)) for name in columns}
    return AtlasRow(unit, cells, OWN, tuple(changed))


def _cell(row: LossRow | None, *, longer: bool) -> Cell:
    spread: Spread | None = None if row is None else row.longer.get(LONGER) if longer else row.value
    return known_cell(spread, 0 if row is None else row.seeds)


def known_cell(spread: Spread | None, seeds: int) -> Cell:
    """A cell of numbers over seeds; one without a number where they are nan."""
    if spread is None or math.isnan(spread.middle):
        return Cell(math.nan, math.nan, math.nan)
    return Cell(spread.middle, spread.low, spread.high, seeds)


def atlas_text(own: Sequence[AtlasRow], stored: Sequence[AtlasRow], columns: int = 110) -> str:
    """The rows as a table, best mean over the first own row's columns first, marked; then what they are.

    Args:
        own: that of the user's layer, then those that were added.
        stored: those that come with memsweep.
        columns: of the terminal; a wider table is told in parts.
    """
    first = own[0]
    columns_of_own = [name for name, cell in first.cells.items() if cell.known]
    rows = sorted([*own, *stored], key=lambda row: row.mean(columns_of_own or first.cells), reverse=True)
    names = ["", *(f"{row.standing.mark}{row.unit}" for row in rows)]
    series = [[task, *(row.cells[task].text for row in rows)] for task in first.cells]
    return "\n".join(
        [
            "Accuracy in per cent, median over seeds [least, most]; 4T: in sequences of four times the trained length.",
            "",
            *_lines(names, series, columns),
            *(line for row in own for line in _about(row)),
            f"The other rows: {STORED_SEEDS} seeds each, stored (docs/atlas).",
            f"A guess is right in {_GUESS} %. The order is that of the means of the medians{_over(first)}.",
        ]
    )


def _about(row: AtlasRow) -> Iterator[str]:
    """The sentences about a row that does not come with memsweep."""
    standing = row.standing
    where = f" ({standing.file}), {standing.told}" if standing.file else ""
    yield f"{standing.mark}{row.unit}{where}: {_seeds(row.seeds)}."
    if row.changed:
        yield f"  Settings of {row.unit} that are not the protocol's: {', '.join(row.changed)}."


def _lines(names: Sequence[str], series: Sequence[Sequence[str]], columns: int) -> Iterator[str]:
    """The lines of a table in parts that fit the terminal, an empty line after each part."""
    first, waiting = max(map(len, names)), list(series)
    while waiting:
        part = [waiting.pop(0)]
        while waiting and first + sum(max(map(len, each)) + 2 for each in (*part, waiting[0])) <= columns:
            part.append(waiting.pop(0))
        widths = [first, *(max(map(len, each)) for each in part)]
        for line in zip(names, *part, strict=True):
            yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        yield ""


def _over(own: AtlasRow) -> str:
    """The columns that the means are of, where they are not all."""
    known = sum(cell.known for cell in own.cells.values())
    return f" in the {known} of {len(own.cells)} columns that {own.unit} has" if 0 < known < len(own.cells) else ""


def _seeds(count: int) -> str:
    if not count:
        return "no task has a result yet"
    fewer = "" if count >= STORED_SEEDS else f", fewer than the {STORED_SEEDS} of the stored rows"
    return f"{count} fresh seed{'s' if count > 1 else ''}{fewer}"
