"""One table of a report as text for other programs: CSV for a spreadsheet, LaTeX and Markdown for a paper."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from memsweep.gate import gated
from memsweep.report.analysis.bounds import MARK
from memsweep.report.analysis.losses import Ratio, Spread
from memsweep.report.naming.numbers import clean
from memsweep.report.rows.verdicts import SHORT
from memsweep.report.values.table import PAGE, Table
from memsweep.stability.verdict.trend import Slope

_ENDS = {
    Slope: "Slopes with 95 % intervals over seeds.",
    Spread: "Medians over seeds [smallest, largest].",
    Ratio: "Ratios of geometric means over seeds [95 % interval].",
}
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN = re.compile(r"([\\`*_<>|~\[\]])")
_LATEX = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    **{"<": "$<$", ">": "$>$", "|": "$|$", '"': r"\textquotedbl{}"},
    **{
        "−": "$-$",
        "∞": r"$\infty$",
        "†": r"$^\dagger$",
        "·": r"$\cdot$",
        "–": "--",
        "…": r"\ldots{}",
        "×": r"$\times$",
    },
    **{"●": r"$\bullet$", "▲": r"$\blacktriangle$", "◇": r"$\Diamond$", "✓": r"\checkmark{}", "✗": r"$\times$"},
    **{"₀": "$_0$", "₁": "$_1$", "β": r"$\beta$", "√": r"$\surd$", "‖": r"$\|$", "±": r"$\pm$"},
}


def table_as(table: Table[Any], form: str) -> str:
    """A table as text.

    Args:
        table: of a report.
        form: one of ``memsweep.report.formats.TABLES``. Markdown and LaTeX hold what a reader sees, without the
            sentences of reasons and with notes on marks and intervals; LaTeX needs the packages booktabs and amssymb.
            CSV holds the numbers as they are, as in the report's folder.
    """
    if form == "csv":
        buffer = io.StringIO()
        write_csv(table.frame(), buffer)
        return buffer.getvalue()
    shown = replace(table, columns=[column for column in table.columns if column.style != "reasons"])
    view = shown.view(PAGE)
    groups = {
        heading: [[clean(cell.text) for cell in line] for line in lines] for heading, lines in view.groups.items()
    }
    headings = [column.heading for column in view.columns]
    return (_latex if form == "latex" else _markdown)(headings, groups, _notes(shown, str(groups)))


def _notes(table: Table[Any], texts: str) -> list[str]:
    kinds = {type(column.value(row)) for column in table.columns if column.ends for row in table.rows[:1]}
    return [*(_ENDS[kind] for kind in _ENDS if kind in kinds), *([f"{MARK} {SHORT}."] if MARK in texts else [])]


def _markdown(headings: Sequence[str], groups: dict[str, list[list[str]]], notes: Sequence[str]) -> str:
    parts = []
    for heading, lines in groups.items() or [("", [])]:
        rows = [headings, ["---"] * len(headings), *lines]
        escaped = [rows[1] if row is rows[1] else [_in_markdown(text) for text in row] for row in rows]
        parts += [f"**{_in_markdown(heading)}**\n"] if heading else []
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in escaped) + "\n")
    return "\n".join([*parts, *(f"{_in_markdown(note)}\n" for note in notes)])


def _latex(headings: Sequence[str], groups: dict[str, list[list[str]]], notes: Sequence[str]) -> str:
    wide = len(headings)
    lines = [
        "% \\usepackage{booktabs,amssymb}",
        f"\\begin{{tabular}}{{{'l' * wide}}}",
        r"\toprule",
        _row(headings, _in_latex),
    ]
    for heading, rows in groups.items():
        lines.append(r"\midrule")
        lines += [rf"\multicolumn{{{wide}}}{{l}}{{{_in_latex(heading)}}} \\"] if heading else []
        lines += [_row(row, _in_latex) for row in rows]
    lines.append(r"\bottomrule")
    lines += [rf"\multicolumn{{{wide}}}{{l}}{{\footnotesize {_in_latex(note)}}} \\" for note in notes]
    return "\n".join([*lines, r"\end{tabular}", ""])


def _row(texts: Sequence[str], escape: Callable[[str], str]) -> str:
    return rf"{' & '.join(map(escape, texts))} \\"


def _in_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def write_csv(table: pd.DataFrame, path: Path | TextIO, *, headings: bool = True) -> None:
    """Write a table so that a spreadsheet reads its text as text.

    Text that begins with ``= + - @``, a tab or a carriage return would be run as a formula: it gets a leading
    apostrophe. Numbers stay numbers: infinities are ``inf`` and ``-inf``, and an empty cell is a null.
    """
    as_text = functools.cache(_as_text)  # most cells of a column hold one of a few texts
    safe = table.astype(object).map(lambda cell: as_text(cell) if isinstance(cell, str) else cell)
    safe = safe.rename(columns=lambda name: as_text(str(name)))
    safe.to_csv(path, index=False, header=headings, encoding="utf-8", lineterminator="\n")


def _as_text(cell: str) -> str:
    text = "'" + cell if cell.startswith(_FORMULA_STARTS) else cell
    return gated(
        text.replace("\r\n", "\n").replace("\r", "\n")
    )  # a bare carriage return would end the row for many readers
