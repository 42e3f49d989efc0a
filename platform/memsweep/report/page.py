"""The HTML page: one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from memsweep.config.schema.objective import objectives
from memsweep.report.analysis.comparison import StudyComparison
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import BALLS
from memsweep.report.analysis.summary import answers, judged
from memsweep.report.figures.galleries import ALONG, RADIUS
from memsweep.report.figures.panels import Pictures
from memsweep.report.naming.labels import field_name
from memsweep.report.naming.numbers import joined, limit, number, percent, show
from memsweep.report.read.study import not_measured
from memsweep.report.rows.claims import counted
from memsweep.report.rows.comparison import ComparisonTables
from memsweep.report.rows.comparison import sentences as sentences_of
from memsweep.report.rows.losses import BASELINE, has_baseline
from memsweep.report.rows.provenance import facts
from memsweep.report.rows.report import Tables
from memsweep.report.rows.search import sentences
from memsweep.report.rows.table import PAGE, Table
from memsweep.report.rows.verdicts import moving
from memsweep.stability.verdict.judgement import (
    GROWTH_LIMIT,
    HORIZON_LIMITED,
    SMALLEST_GRID,
    SMALLEST_RANGE,
    SMALLEST_SEEDS,
    Criteria,
)
from memsweep.stability.verdict.radius import VALID_ERROR
from memsweep.stability.verdict.trend import LONG_RANGE


def render(
    contents: Contents, tables: Tables, pictures: Mapping[str, Pictures], formats: Sequence[str] = ("png",)
) -> str:
    """The page as text.

    Args:
        contents, tables: of the report.
        pictures: by the names of their galleries.
        formats: of the figure files.
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
        rule=_rule(contents.criteria),
        judged=judged(contents.criteria),
        formats=joined([form.upper() for form in formats]),
    )


def render_comparison(comparison: StudyComparison, tables: ComparisonTables, pictures: Pictures) -> str:
    """The page of a comparison as text.

    Args:
        comparison, tables: what it shows.
        pictures: of the radii of all studies.
    """
    environment = templates()
    environment.globals["view"] = _view
    environment.globals["pictures"] = {RADIUS: pictures}
    return environment.get_template("comparison.html.j2").render(
        comparison=comparison, tables=tables, sentences=sentences_of(comparison)
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


def _rule(criteria: Criteria) -> dict[str, Any]:
    return {
        "slope": limit(criteria.slope_limit),
        "growth": number(GROWTH_LIMIT, 1),
        "least": SMALLEST_GRID,
        "seeds": SMALLEST_SEEDS,
        "scales": SMALLEST_RANGE,
        "range": f"{LONG_RANGE:g}",
        "limited": f"{HORIZON_LIMITED:g}",
        "validity": percent(VALID_ERROR),
        "thresholds": joined([percent(threshold) for threshold in criteria.thresholds]),
        "shown": percent(criteria.thresholds[0]),
    }


def _view(table: Table[Any]) -> Any:
    return table.view(PAGE)
