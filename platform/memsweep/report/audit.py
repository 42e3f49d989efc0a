"""An audit of a module as a page, as a table for a terminal, and as JSON."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from memsweep import __version__
from memsweep.checks.finding import Curve, Finding, Status, show
from memsweep.checks.numerics.precision import worst_error
from memsweep.checks.run import Audit
from memsweep.documents import plain
from memsweep.documents.keys.audits import AuditDocument
from memsweep.errors import columns_of
from memsweep.report.audit_figure import Panel, address
from memsweep.report.naming.numbers import clean, joined, percent

_WIDEST = 120
_PLAIN = 80
_STYLES = {
    Status.FAULT: "bold red",
    Status.NOT_ENOUGH: "bold magenta",
    Status.NOTE: "bold yellow",
    Status.PASS: "bold green",
    Status.SKIP: "dim",
}
_PANELS = {
    "memory": ("Memory function", "response to a step, differenced", "lag (steps)", "|dy / dt|"),
    "gradient": ("Gradient by lag", "of the last output", "lag (steps)", "|dy(T) / dx(T - lag)|"),
    "derivative": ("Derivative by lag", "beside differences", "lag (steps)", "|change of the last output|"),
    "capacity": ("Numbers of the past", "that later outputs show", "number", "singular value / largest"),
    "hold": ("What is left of an input", "while another is held", "steps of a held input", "share left"),
    "precision": ("Error against float64", "by length", "length (steps)", "relative error"),
    "seconds": ("Time", "of one sequence", "length (steps)", "seconds"),
    "bytes": ("Memory", "of one sequence, for training", "length (steps)", "bytes"),
}
"""Title, second line and axes of each panel of curves."""
_FIRST = ("memory", "precision")
"""Panels beside the headline: what it says."""
HOLDS = 0.01
"""Relative error of the outputs against float64 up to which a precision holds."""
_LEAST_SHOWN = 0.001
"""Percentage below which an error is only said to be smaller."""
_PRECISIONS = ("float32", "bfloat16", "float16")
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
    from memsweep.report.page.environment import templates  # jinja2 is for a page alone

    curves = [curve for finding in audit.findings for curve in finding.curves]
    parts = (("first", _FIRST, 2), ("rest", [panel for panel in _PANELS if panel not in _FIRST], 3))
    drawn = {name: (list(_panels(curves, panels)), wide) for name, panels, wide in parts}
    pictures = {
        name: (address(panels, wide), " ".join(panel.words for panel in panels))
        for name, (panels, wide) in drawn.items()
        if panels
    }
    return (
        templates()
        .get_template("audit.html.j2")
        .render(
            name=about.name,
            settings=about.settings,
            findings=audit.findings,
            numbers={finding.check: json.dumps(plain(finding.numbers), indent=1) for finding in audit.findings},
            headline=headline(audit, about),
            answer=answer(audit),
            faulty=audit.status is Status.FAULT,
            pictures=pictures,
            seconds=audit.seconds,
            version=__version__,
        )
    )


def audit_text(audit: Audit, about: About, *, width: int | None = None, colour: bool | None = None) -> str:
    """The findings as a table.

    Args:
        audit, about: what was found, and of what.
        width: columns to fill (None: the terminal's, at most 120; in a pipe or file those of COLUMNS, or 80).
        colour: write ANSI colours (None: only when standard output is a terminal).
    """
    colour = sys.stdout.isatty() if colour is None else colour
    if width is None:
        width = min(_WIDEST, columns_of(sys.stdout, _PLAIN))
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
    console.print(Text(clean(headline(audit, about))))
    console.print(Text(clean(f"{about.name}: {settings}")))
    console.print()
    console.print(grid)
    console.print()
    console.print(Text(answer(audit)))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def audit_document(audit: Audit, about: About) -> AuditDocument:
    """The audit for programs; docs/json_keys.md says what the numbers of each check are."""
    return {
        "module": about.name,
        "settings": dict(about.settings),
        "status": audit.status.value,
        "findings": [
            {
                "check": finding.check,
                "status": finding.status.value,
                "sentence": finding.sentence,
                "left_out": list(finding.left_out),
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


def headline(audit: Audit, about: About) -> str:
    """How long the module remembers, with which weights, and in which precisions its outputs hold."""
    found = {finding.check: finding for finding in audit.findings}
    said = (
        _remembers(found, trained="weights" in about.settings),
        _while_held(found.get("decay")),
        _holds(found.get("precision")),
    )
    return " ".join(filter(None, said))


def _remembers(found: Mapping[str, Finding], *, trained: bool) -> str:
    """By its memory function; where there is none, by its gradients. Without weights given, a module is untrained."""
    for check, key in (("memory", "time_scale"), ("gradient", "time_scale_typical")):
        numbers = found[check].numbers if check in found else {}
        if key in numbers and numbers["length"] == 1:
            return "How long it remembers cannot be told from one step."
        if key in numbers:
            more = " or more" if numbers["horizon_limited"] else ""
            what = "memory" if check == "memory" else "gradient by lag"
            within = f"63 % of its {what} lies within {show(numbers[key])} steps{more}"
            return f"{'' if trained else 'Untrained, '}{within} (of {numbers['length']} looked at)."
    return "How long it remembers was not measured."


def _while_held(found: Finding | None) -> str:
    """What an input adds that holds gates open or closed; empty where it adds nothing, or was not measured."""
    numbers = found.numbers if found is not None else {}
    shortest, longest = numbers.get("shortest", math.nan), numbers.get("longest", math.nan)
    if not shortest < longest:
        return ""
    more = " or more" if longest >= numbers["held_steps"] else ""
    return (
        f"While another input is held, an earlier one falls to 1/e in {show(shortest)} to {show(longest)} steps{more}."
    )


def _holds(found: Finding | None) -> str:
    """The precisions in which the outputs at the greatest length are off by ``HOLDS`` of their size at most."""
    errors = {
        name: worst_error(found.numbers[name]) for name in _PRECISIONS if found is not None and found.numbers.get(name)
    }
    if found is None or not errors:
        return "At which precision it holds was not measured."
    said = {name: f"{name} ({error_text(error)})" for name, error in errors.items()}
    holds = [words for name, words in said.items() if errors[name] <= HOLDS]
    not_held = [words for name, words in said.items() if not errors[name] <= HOLDS]
    steps = found.numbers["lengths"][-1]
    text = f"After {steps} steps its outputs hold to {percent(HOLDS)} in {joined(holds or ['no lower precision'])}"
    return f"{text}, not in {joined(not_held)}." if not_held else f"{text}."


def error_text(error: float) -> str:
    """A relative error as a percentage, as its limit is written; nan is ``unknown``."""
    if math.isnan(error):
        return show(error)
    return f"under {_LEAST_SHOWN:g} %" if 100 * error < _LEAST_SHOWN else percent(error)


def answer(audit: Audit) -> str:
    """The audit in one sentence."""
    by_status = {status: [each.check for each in audit.findings if each.status is status] for status in Status}
    parts = [
        f"{len(checks)} fault{'s' * (len(checks) > 1)} ({', '.join(checks)})"
        if status is Status.FAULT
        else f"{len(checks)} {words} ({', '.join(checks)})"
        for status, words in ((Status.FAULT, ""), (Status.NOT_ENOUGH, "not looked at enough"), (Status.NOTE, "to note"))
        if (checks := by_status[status])
    ]
    checked = len(by_status[Status.PASS])
    return f"{'; '.join(parts) or 'No fault'}; {checked} of {len(audit.findings)} checks passed."


def _panels(curves: Sequence[Curve], panels: Sequence[str]) -> Iterator[Panel]:
    """One for each of these kinds of curves that was measured."""
    for panel in panels:
        title, second, across, up = _PANELS[panel]
        by_lag = panel in ("memory", "gradient", "derivative", "hold")
        # a lag of 0 has no place on a logarithmic axis: lags are drawn one step to the right
        lines = _lines([curve for curve in curves if curve.panel == panel], int(by_lag))
        if any(lines.values()):
            yield Panel(title, second, f"{across}, plus 1" if by_lag else across, up, lines)


def _lines(curves: Sequence[Curve], shift: int) -> dict[str, list[tuple[float, float]]]:
    """The points of curves that a logarithmic chart can show; none of a curve that is nowhere above 0."""
    shown = [curve for curve in curves if any(value > 0 for value in curve.y)]
    top = max((value for curve in shown for value in curve.y if math.isfinite(value)), default=0.0)
    return {
        curve.name: [(x + shift, y) for x, y in zip(curve.x, curve.y, strict=True) if top * _DEEPEST < y < math.inf]
        for curve in shown
    }


__all__ = ["About", "Finding", "answer", "audit_document", "audit_page", "audit_text"]
