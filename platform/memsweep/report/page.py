"""The HTML page: one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from memsweep.config.schema.objective import objectives
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import BALLS
from memsweep.report.analysis.summary import answers
from memsweep.report.figures.galleries import ALONG
from memsweep.report.figures.panels import Pictures
from memsweep.report.figures.radius import SHOWN_THRESHOLD
from memsweep.report.naming.labels import field_name
from memsweep.report.naming.numbers import joined, number, percent, show
from memsweep.report.read.study import not_measured
from memsweep.report.rows.claims import counted
from memsweep.report.rows.losses import BASELINE, has_baseline
from memsweep.report.rows.provenance import facts
from memsweep.report.rows.report import Tables
from memsweep.report.rows.search import sentences
from memsweep.report.rows.table import PAGE, Table
from memsweep.report.rows.verdicts import moving
from memsweep.stability.verdict.judgement import (
    GROWTH_LIMIT,
    HORIZON_LIMITED,
    SLOPE_LIMIT,
    SMALLEST_GRID,
    SMALLEST_RANGE,
    SMALLEST_SEEDS,
)
from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR
from memsweep.stability.verdict.trend import LONG_RANGE


def render(contents: Contents, tables: Tables, pictures: Mapping[str, Pictures]) -> str:
    """The page as text.

    Args:
        contents, tables: of the report.
        pictures: by the names of their galleries.
    """
    environment = templates()
    environment.globals["view"] = _view
    environment.globals["pictures"] = pictures
    study, searched, labels = contents.study, contents.searched, contents.labels
    return environment.get_template("page.html.j2").render(
        study=study,
        tables=tables,
        balls={ball: moving(ball) for ball in BALLS},
        along={name.removeprefix(ALONG): name for name in pictures if name.startswith(ALONG)},
        answers=answers(contents.verdicts, labels, finished=bool(study.records)),
        replicas=len(study.tables["replicas"]),
        fixed={field_name(name): show(value) for name, value in contents.grouping.fixed.items()},
        settings=labels.settings(),
        not_measured=not_measured(study),
        trained=objectives(record["config"] for record in study.records.values()),
        coupled=contents.grouping.coupled,
        following=labels.following,
        facts=facts(study),
        lower=any(finding.bound for finding in contents.verdicts),
        baseline=BASELINE if has_baseline(contents.losses) else "",
        scanned=bool(contents.scanned),
        counted=counted(contents.compared) if not contents.compared.empty else "",
        searched=searched,
        sentences=sentences(searched) if searched is not None else [],
        rule=_rule(),
    )


def templates() -> jinja2.Environment:
    """The templates of all pages."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,  # names, reasons and tracebacks are data, whatever they contain
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _rule() -> dict[str, Any]:
    return {
        "slope": number(SLOPE_LIMIT, 1),
        "growth": number(GROWTH_LIMIT, 1),
        "least": SMALLEST_GRID,
        "seeds": SMALLEST_SEEDS,
        "scales": SMALLEST_RANGE,
        "range": f"{LONG_RANGE:g}",
        "limited": f"{HORIZON_LIMITED:g}",
        "validity": percent(VALID_ERROR),
        "thresholds": joined([percent(threshold) for threshold in THRESHOLDS]),
        "shown": percent(SHOWN_THRESHOLD),
    }


def _view(table: Table[Any]) -> Any:
    return table.view(PAGE)
