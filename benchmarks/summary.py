"""One Markdown table of all that was measured, from the JSON files: what people meet first stands first.

``python -m benchmarks`` ends with it and writes it to ``<out>/summary.md``, for docs/evidence/speed.md. A ratio is the
other side's time by ours, and bold below 1, where ours takes longer. A file that is not there is left out, and so are
the rows of a file that no source below names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Row, text_of

FILE = "summary.md"


@dataclass(frozen=True)
class Source:
    """The rows of one file.

    Attributes:
        file: its name without ``.json``.
        what: of a row, a template of its fields.
        ours: the field of our figure, and its unit.
        against: what the ratio compares with, a template; empty where nothing is compared.
        where: fields that a row must have with these values.
        inverse: the file has our time by the other's.
    """

    file: str
    what: str
    ours: tuple[str, str]
    against: str = ""
    where: tuple[tuple[str, Any], ...] = ()
    inverse: bool = False

    def lines(self, folder: Path) -> Iterator[tuple[str, str, str, str]]:
        """The rows of the summary: what is measured, our number, the other number, the ratio."""
        path = folder / f"{self.file}.json"
        if not path.is_file():
            return
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            if all(row.get(name) == value for name, value in self.where):
                shown = {name: text_of(value) for name, value in row.items()}
                figure = f"{shown[self.ours[0]]} {self.ours[1]}"
                yield self.what.format_map(shown), figure, self.against.format_map(shown), self._ratio(row)

    def _ratio(self, row: Row) -> str:
        if not self.against:
            return ""
        ratio = 1 / row["ratio"] if self.inverse else row["ratio"]
        return f"×{text_of(float(ratio))}" if ratio >= 1 else f"**×{text_of(float(ratio))}**"


_MODEL = ("milliseconds_per_model", "ms a model")
_STEP = ("ours_milliseconds", "ms")
_LAYER = "{width} wide, {horizon} steps, {sequences} sequences, {dtype}"
_LOOP = "the published loop"
SOURCES = (
    Source("waiting", "memsweep: {what}", ("cpu_seconds", "s of CPU"), where=(("trials", None),)),
    Source("waiting", "memsweep: {what} of {trials} trials", ("cpu_seconds", "s of CPU"), where=(("what", "report"),)),
    Source("study", "a trial of {study} ({trials} trials), plan to report and MLflow", ("cpu_ms_a_trial", "ms of CPU")),
    Source(
        "plain_module",
        "a step of a user's {module}, width {width}, {seeds} seeds",
        ("milliseconds", "ms"),
        "a plain loop in torch",
        (("table", "loop"),),
        inverse=True,
    ),
    Source("peers", f"a step of one model or layer, {_LAYER}", _STEP, "{peer}"),
    Source("peers_jax", f"a step of {{models}} {{model}}, {_LAYER}", _STEP, "JAX, {way}"),
    Source("step", "a step of {model}, {activation}, width {width}, {models} in a pack, {dtype}", _MODEL, _LOOP),
    Source("matrix_step", "a step of {model}, {map} {stair}, {models} in a pack, {dtype}", _MODEL, "plain torch"),
    Source("perturbation", "perturbations of {model}, {activation}, width {width}, {models} in a pack", _MODEL, _LOOP),
)


def table(folder: Path) -> str:
    """The table, as Markdown; empty where no file is there."""
    lines = [line for source in SOURCES for line in source.lines(folder)]
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    head = ["| what | ours | against | its time by ours |", "|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n" if rows else ""


def write(folder: Path) -> None:
    """Print the table, and write it beside the JSON files."""
    if text := table(folder):
        (folder / FILE).write_text(text, encoding="utf-8")
        print(f"\n{text}\nwritten: {folder / FILE}")
