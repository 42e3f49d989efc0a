"""The HTML page: one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2

from memsweep.report.analysis.contents import Contents
from memsweep.report.figures.galleries import Galleries
from memsweep.report.figures.panels import Gallery, Panel, legend_mark, svg
from memsweep.report.figures.radius import SHOWN_THRESHOLD
from memsweep.report.naming.labels import field_name
from memsweep.report.naming.numbers import joined, number, percent, show
from memsweep.report.rows.claims import counted
from memsweep.report.rows.losses import BASELINE, has_baseline
from memsweep.report.rows.provenance import facts
from memsweep.report.rows.report import Tables, answer_sentences
from memsweep.report.rows.search import sentences, space_text
from memsweep.report.rows.table import PAGE, Table
from memsweep.report.rows.verdicts import moving
from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR
from memsweep.stability.verdict.rule import GROWTH_LIMIT, HORIZON_LIMITED, SLOPE_LIMIT, SMALLEST_GRID

_MOST_PANELS = 24  # per gallery: beyond that a page is scrolled, not read


def render(contents: Contents, tables: Tables, galleries: Galleries) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,  # names, reasons and tracebacks are data, whatever they contain
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["view"] = _view
    environment.globals["drawn"] = _gallery
    study, searched, labels = contents.study, contents.searched, contents.labels
    return environment.get_template("page.html.j2").render(
        study=study,
        tables=tables,
        galleries=galleries,
        answers=answer_sentences(contents),
        replicas=len(study.tables["replicas"]),
        fixed={field_name(name): show(value) for name, value in contents.grouping.fixed.items()},
        settings=labels.settings(),
        coupled=contents.grouping.coupled,
        following=labels.following,
        facts=facts(study),
        lower=any(finding.bound for finding in contents.verdicts),
        baseline=BASELINE if has_baseline(contents.losses) else "",
        scanned=bool(contents.scanned),
        sizes=len({(row.row.width, row.row.horizon) for row in contents.alignment}) > 1,
        counted=counted(contents.compared) if not contents.compared.empty else "",
        searched=searched,
        sentences=sentences(searched) if searched is not None else [],
        space=space_text(searched) if searched is not None else "",
        moving=moving,
        rule=_rule(),
    )


def _rule() -> dict[str, Any]:
    return {
        "slope": number(SLOPE_LIMIT, 1),
        "growth": number(GROWTH_LIMIT, 1),
        "least": SMALLEST_GRID,
        "limited": f"{HORIZON_LIMITED:g}",
        "validity": percent(VALID_ERROR),
        "thresholds": joined([percent(threshold) for threshold in THRESHOLDS]),
        "shown": percent(SHOWN_THRESHOLD),
    }


def chosen(panels: Sequence[Panel]) -> list[Panel]:
    """The panels that a page can hold: of too many, the first of each group, equally many."""
    if len(panels) <= _MOST_PANELS:
        return list(panels)
    each = max(1, _MOST_PANELS // len({panel.group for panel in panels}))
    seen: Counter[str] = Counter()
    chosen = []
    for panel in panels:
        seen[panel.group] += 1
        if seen[panel.group] <= each:
            chosen.append(panel)
    return chosen[:_MOST_PANELS]


def _view(table: Table[Any]) -> Any:
    return table.view(PAGE)


def _gallery(gallery: Gallery) -> dict[str, Any]:
    shown = chosen(gallery.panels)
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
