"""Renders the page from its templates, with its scripts and data inside and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from memsweep.config.schema.objective import objectives
from memsweep.gate import gated
from memsweep.report.analysis.comparison import StudyComparison
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.findings import BALLS
from memsweep.report.analysis.summary import NOT_ASKED, judged
from memsweep.report.figures.galleries import CLAIMS, RADIUS, TASKS
from memsweep.report.figures.panels import Shown
from memsweep.report.naming.labels import field_name
from memsweep.report.naming.numbers import joined, limit, number, percent, show
from memsweep.report.page.answer import STABLE_MEANS, SUPPORTED_MEANS, Kind, answer_of, first_ball
from memsweep.report.page.charts import charts_of
from memsweep.report.page.data import page_data
from memsweep.report.page.grid import grids
from memsweep.report.page.live import Live
from memsweep.report.page.trials import Trials
from memsweep.report.read.study import Study, not_measured
from memsweep.report.rows.cells import cells_mean
from memsweep.report.rows.claims import counted
from memsweep.report.rows.comparison import ComparisonTables
from memsweep.report.rows.comparison import sentences as sentences_of
from memsweep.report.rows.growth import GROWTH_MEAN
from memsweep.report.rows.losses import BASELINE, RULES_MEAN, across_means, ceilings_mean, has_baseline
from memsweep.report.rows.provenance import facts
from memsweep.report.rows.report import Tables
from memsweep.report.rows.search import sentences
from memsweep.report.rows.verdicts import moving
from memsweep.report.values.section import Section
from memsweep.report.values.table import PAGE, Table
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

HERE = Path(__file__).parent
SCRIPTS = ("vendor/d3.min.js", "vendor/plot.umd.min.js", "page.js")
"""In the order in which they run; the first two are others' (``vendor/versions.json``)."""
_COUNTS = re.compile(r"^(memsweep sweep|\d+ (trials|models|cells))\b")


def render(
    contents: Contents,
    tables: Tables,
    pictures: Mapping[str, Shown],
    formats: Sequence[str] = ("png",),
    undrawn: int = 0,
    live: Live | None = None,
) -> str:
    """The page as text.

    Args:
        contents, tables: of the report.
        pictures: by the names of their galleries; none of a study that runs.
        formats: of the figure files.
        undrawn: figures that were left out.
        live: the state of a study that runs; None for a report.
    """
    environment = templates()
    environment.globals["view"] = _view
    study, searched, labels = contents.study, contents.searched, contents.labels
    shown = live.grids if live is not None else grids(contents.verdicts, labels)
    answer = live.answer if live is not None else answer_of(contents, tables.sections)
    charts = charts_of(contents, tables.sections)
    scripts = {name: _text(HERE / name) for name in SCRIPTS}
    return environment.get_template("page.html.j2").render(
        study=study,
        tables=tables,
        answer=answer,
        kind=str(answer.kind),
        meaning=_meaning(answer.kind, contents, tables.sections, asked=any(grid.ball for grid in shown)),
        live=live,
        grids=shown,
        picture=_static(answer.kind, contents, pictures),
        about=about(study.description),
        data=page_data(contents, answer, Trials(contents), charts, across=bool(tables.across.rows)),
        charted=charts.sections,
        scripts=scripts,
        policy=_policy(scripts.values(), connects=live is not None and not live.every),
        balls={ball: moving(ball) for ball in BALLS},
        replicas=len(study.tables["replicas"]),
        fixed={field_name(name): show(value) for name, value in contents.grouping.fixed.items()},
        settings=labels.settings(),
        not_measured=not_measured(study),
        trained=objectives(record["config"] for record in study.records.values()),
        coupled=contents.grouping.coupled,
        following=labels.following,
        facts=facts(study),
        finished=_finished(study),
        slopes=any(
            trends.horizon.limit.available or trends.along_width.available
            for finding in contents.verdicts
            for trends in finding.judgement.by_threshold.values()
        ),
        not_asked=NOT_ASKED,
        lower=any(finding.bound for finding in contents.verdicts),
        across_means=across_means(tables.across),
        cells_mean=cells_mean(tables.sections),
        growth_mean=GROWTH_MEAN,
        rules_mean=RULES_MEAN,
        ceilings_mean=ceilings_mean(contents.ceilings),
        baseline=BASELINE if has_baseline(contents.losses) else "",
        rates=bool(contents.rates),
        scanned=bool(contents.scanned),
        counted=counted(contents.compared) if not contents.compared.empty else "",
        searched=searched,
        sentences=sentences(searched) if searched is not None else [],
        rule=_rule(contents.criteria),
        judged=judged(contents.criteria),
        formats=joined([form.upper() for form in formats]),
        undrawn=undrawn,
        redraw=f"memsweep report {shlex.quote(study.name)} --figures png",
    )


def render_comparison(comparison: StudyComparison, tables: ComparisonTables, picture: Shown | None) -> str:
    """The page of a comparison as text.

    Args:
        comparison, tables: what it shows.
        picture: of the radii of all studies.
    """
    environment = templates()
    environment.globals["view"] = _view
    return environment.get_template("comparison.html.j2").render(
        comparison=comparison, tables=tables, sentences=sentences_of(comparison), picture=picture
    )


def on_page(contents: Contents, sections: Sequence[Section]) -> Callable[[str], bool]:
    """Whether the page holds a gallery as a picture: the answer's alone, for browsers without scripts."""
    return _pictured(answer_of(contents, sections).kind, contents).__contains__


def about(description: str) -> list[str]:
    """The paragraphs of a study's description, without those that count its trials: the page counts those that ran."""
    return [text for text in description.splitlines() if text.strip() and not _COUNTS.match(text.strip())]


def _meaning(kind: Kind | str, contents: Contents, sections: Sequence[Section], *, asked: bool) -> tuple[str, str]:
    """What the words of the answer mean: the words, and a sentence; ``asked``: whether there are verdicts."""
    if kind is Kind.SEARCH and contents.searched is not None:
        return "What was searched:", sentences(contents.searched)[0].removeprefix("Searched ")
    if kind is Kind.LOSSES:
        return "What is compared:", "trained models without perturbation, each by the median over its seeds."
    if not isinstance(kind, Kind):
        of_kind = next(section.words for section in sections if section.anchor == kind)
        head, _, rest = of_kind.partition(": ")
        return f"{head}:", rest
    if kind is Kind.CLAIMS and not contents.compared.empty:
        return "What “supported” means:", SUPPORTED_MEANS
    if asked:
        return "What “stable” means:", STABLE_MEANS
    return "", ""


def _pictured(kind: Kind | str, contents: Contents) -> Sequence[str]:
    """The galleries that may show the answer, the best first."""
    names: dict[str, Sequence[str]] = {
        Kind.SEARCH: ("search-transfer", "search-fields"),
        Kind.LOSSES: (TASKS, "learning-rates", "training"),
    }
    if not isinstance(kind, Kind):
        return (kind,)
    return names.get(kind, (f"{RADIUS}-{first_ball(contents.verdicts)}", CLAIMS))


def _static(kind: Kind | str, contents: Contents, pictures: Mapping[str, Shown]) -> Shown | None:
    """The picture of the answer that stands in the page where scripts are off."""
    return next((pictures[name] for name in _pictured(kind, contents) if name in pictures), None)


def _finished(study: Study) -> str:
    """The day on which the last trial finished."""
    return max((str(r["provenance"].get("finished") or "") for r in study.records.values()), default="")[:10]


def _policy(scripts: Any, *, connects: bool) -> str:
    """The page's Content-Security-Policy: these scripts, styles and pictures of its own, and no network.

    Args:
        scripts: their texts.
        connects: the page may ask the address that it came from, and no other, for news.
    """
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts]
    own = "; connect-src 'self'" if connects else ""
    return f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data:{own}"


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if "</script" in text or "\r" in text:
        raise ValueError(f"{path.name} cannot stand in a page: it holds </script, or ends lines with a carriage return")
    return text


def templates() -> jinja2.Environment:
    """The templates of all pages."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE.parent / "templates"),
        autoescape=True,  # names, reasons and tracebacks are data, whatever they contain
        finalize=lambda value: gated(value) if type(value) is str else value,  # what is no markup is foreign text
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
    }


def _view(table: Table[Any]) -> Any:
    return table.view(PAGE)
