"""An audit of a module as a page, as a table for a terminal, and as JSON."""

from __future__ import annotations

import io
import json
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from memsweep import __version__
from memsweep.checks.finding import Curve, Finding, Status
from memsweep.checks.run import Audit
from memsweep.documents import plain
from memsweep.documents.keys.audits import AuditDocument
from memsweep.report.figures.charts import gallery_of
from memsweep.report.figures.panels import embedded
from memsweep.report.naming.numbers import clean
from memsweep.report.page.render import templates
from memsweep.report.values.chart import Chart, ChartSet, chart

_WIDEST = 120
_PLAIN = 80
_STYLES = {Status.FAULT: "bold red", Status.NOTE: "bold yellow", Status.PASS: "bold green", Status.SKIP: "dim"}
_PANELS = {
    "memory": ("Memory function", "response to a step, differenced", "lag (steps)", "|dy / dt|"),
    "gradient": ("Gradient by lag", "of the last output", "lag (steps)", "|dy(T) / dx(T - lag)|"),
    "capacity": ("Numbers of the past", "that later outputs show", "number", "singular value / largest"),
    "hold": ("What is left of an input", "while another is held", "steps of a held input", "share left"),
    "precision": ("Error against float64", "by length", "length (steps)", "relative error"),
    "seconds": ("Time", "of one sequence", "length (steps)", "seconds"),
    "bytes": ("Memory", "of one sequence, for training", "length (steps)", "bytes"),
}
"""Title, second line and axes of each panel of curves."""
_DEEPEST = 1e-12
"""Share of the largest value of a panel below which nothing is drawn."""


@dataclass(frozen=True)
class About:
    """What was audited.

    Attributes:
        name: as it was given, ``my_nets:MinGRU``.
        settings: how it was built and looked at, in the order in which they are shown.
    """

    name: str
    settings: Mapping[str, Any]


def audit_page(audit: Audit, about: About) -> str:
    """The page: one file that needs nothing else."""
    curves = [curve for finding in audit.findings for curve in finding.curves]
    shown = gallery_of(ChartSet("audit", _charts(curves), columns=3))
    pictures = [embedded(shown)] if shown.panels else []
    return (
        templates()
        .get_template("audit.html.j2")
        .render(
            name=about.name,
            settings=about.settings,
            findings=audit.findings,
            numbers={finding.check: json.dumps(plain(finding.numbers), indent=1) for finding in audit.findings},
            answer=answer(audit),
            pictures=pictures,
            seconds=audit.seconds,
            version=__version__,
        )
    )


def audit_text(audit: Audit, about: About, *, width: int | None = None, colour: bool | None = None) -> str:
    """The findings as a table.

    Args:
        audit, about: what was found, and of what.
        width: columns to fill (None: the terminal's, at most 120; 80 when the output is no terminal).
        colour: write ANSI colours (None: only when standard output is a terminal).
    """
    colour = sys.stdout.isatty() if colour is None else colour
    if width is None:
        width = min(_WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _PLAIN
    grid = Grid(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in audit.findings:
        grid.add_row(finding.check, Text(str(finding.status), _STYLES[finding.status]), Text(clean(finding.sentence)))
    buffer = io.StringIO()
    shown: dict[str, Any] = {"force_terminal": colour, "no_color": not colour, "force_jupyter": False}
    console = Console(file=buffer, width=width, highlight=False, **shown)
    settings = ", ".join(f"{name} {value}" for name, value in about.settings.items())
    console.print(Text(clean(f"{about.name}: {settings}")))
    console.print()
    console.print(grid)
    console.print()
    console.print(Text(answer(audit)))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def audit_document(audit: Audit, about: About) -> AuditDocument:
    """The audit for programs; docs/audit.md says what the numbers of each check are."""
    return {
        "module": about.name,
        "settings": dict(about.settings),
        "status": audit.status.value,
        "findings": [
            {
                "check": finding.check,
                "status": finding.status.value,
                "sentence": finding.sentence,
                "seconds": audit.seconds[finding.check],
                "numbers": dict(finding.numbers),
                "curves": [
                    {"panel": curve.panel, "name": curve.name, "x": list(curve.x), "y": list(curve.y)}
                    for curve in finding.curves
                ],
            }
            for finding in audit.findings
        ],
    }


def answer(audit: Audit) -> str:
    """The audit in one sentence."""
    by_status = {status: [each.check for each in audit.findings if each.status is status] for status in Status}
    parts = [
        f"{len(checks)} fault{'s' * (len(checks) > 1)} ({', '.join(checks)})"
        if status is Status.FAULT
        else f"{len(checks)} to note ({', '.join(checks)})"
        for status in (Status.FAULT, Status.NOTE)
        if (checks := by_status[status])
    ]
    checked = len(by_status[Status.PASS])
    return f"{'; '.join(parts) or 'No fault'}; {checked} of {len(audit.findings)} checks passed."


def _charts(curves: Sequence[Curve]) -> Iterator[Chart]:
    """One for each kind of curve that was measured."""
    for panel, (title, second, across, up) in _PANELS.items():
        by_lag = panel in ("memory", "gradient", "hold")
        # a lag of 0 has no place on a logarithmic axis: lags are drawn one step to the right
        lines = _lines([curve for curve in curves if curve.panel == panel], int(by_lag))
        heights = [y for line in lines.values() for _, y in line if math.isfinite(y)]
        if heights:
            limits = {"y": [min(heights) / 1.6, max(heights) * 1.6]}
            yield chart(f"{title}: {second}", f"{across}, plus 1" if by_lag else across, up, "xy", lines, limits=limits)


def _lines(curves: Sequence[Curve], shift: int) -> dict[str, list[list[float]]]:
    """The points of curves that a logarithmic chart can show; none of a curve that is nowhere above 0."""
    shown = [curve for curve in curves if any(value > 0 for value in curve.y)]
    top = max((value for curve in shown for value in curve.y if math.isfinite(value)), default=0.0)
    return {
        curve.name: [[x + shift, y] for x, y in zip(curve.x, curve.y, strict=True) if y > top * _DEEPEST]
        for curve in shown
    }


__all__ = ["About", "Finding", "answer", "audit_document", "audit_page", "audit_text"]
