"""The HTML page: one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2

from memsweep.report import provenance, view
from memsweep.report.answer import answers, joined
from memsweep.report.draw_radius import SHOWN_THRESHOLD
from memsweep.report.findings import Finding
from memsweep.report.grouping import Grouping
from memsweep.report.labels import Labels
from memsweep.report.panels import Gallery, legend_mark, svg
from memsweep.report.study import Study
from memsweep.report.style import number
from memsweep.stability.radius import THRESHOLDS, VALID_ERROR
from memsweep.stability.verdict import GROWTH_LIMIT, HORIZON_LIMITED, SLOPE_LIMIT, SMALLEST_GRID

_MOST_PANELS = 24  # per gallery: beyond that a page is scrolled, not read


@dataclass(frozen=True)
class Section:
    """The galleries of one ball: the error, and the radius."""

    ball: str
    moves: str
    error: Gallery
    radius: Gallery


def render(
    study: Study,
    findings: Sequence[Finding],
    grouping: Grouping,
    sections: Sequence[Section],
    memory: Gallery,
) -> str:
    """The page as text."""
    labels = Labels(findings)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,  # names, reasons and tracebacks are data, whatever they contain
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        study=study,
        answers=answers(findings, labels),
        replicas=len(study.tables["replicas"]),
        fixed=labels.fixed(),
        decays=labels.decays(),
        coupled=grouping.coupled,
        tables=view.verdict_tables(findings, labels),
        slopes=view.slope_rows(findings, labels),
        fit=view.fit_table(findings, labels),
        sections=[
            {
                "ball": part.ball,
                "moves": part.moves,
                "error": _gallery(part.error),
                "radius": _gallery(part.radius),
                "folded": i > 0,
            }
            for i, part in enumerate(sections)
        ],
        memory=_gallery(memory),
        missing=provenance.missing(study),
        unusual=provenance.unusual(study),
        facts=provenance.facts(study),
        trials=provenance.trials(study),
        rule={
            "slope": number(SLOPE_LIMIT, 1),
            "growth": number(GROWTH_LIMIT, 1),
            "least": SMALLEST_GRID,
            "limited": f"{HORIZON_LIMITED:g}",
            "validity": view.percent(VALID_ERROR),
            "thresholds": joined([view.percent(threshold) for threshold in THRESHOLDS]),
            "shown": view.percent(SHOWN_THRESHOLD),
        },
    )


def _gallery(gallery: Gallery) -> dict[str, Any]:
    shown = gallery.panels[:_MOST_PANELS]
    groups = [
        {"title": title, "panels": [{"panel": panel, "source": svg(panel)} for panel in part]}
        for title, part in groupby(shown, key=lambda panel: panel.group)
    ]
    return {
        "name": gallery.name,
        "groups": groups,
        "legend": [(label, legend_mark(style)) for label, style in gallery.legend] if shown else [],
        "left_out": len(gallery.panels) - len(shown),
    }
