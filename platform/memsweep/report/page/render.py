"""Renders the page from its templates, with its scripts and data inside and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.grid.time_scale import USABLE_SCALES
from memsweep.data.levels import SOLVED
from memsweep.report.analysis.bounds import MARKED
from memsweep.report.analysis.contents import BALLS, Contents
from memsweep.report.analysis.losses import Quantity
from memsweep.report.formats import PER_PICTURE, Shown
from memsweep.report.headline.answer import Kind, StudyAnswer, answer_of
from memsweep.report.headline.ranking import ranking_sentence
from memsweep.report.headline.stability import stable_means
from memsweep.report.naming.guesses import guessed_roles
from memsweep.report.naming.numbers import joined, limit, number, percent
from memsweep.report.naming.objective import objectives
from memsweep.report.page.data import Trials, charts_of, page_data, pictured
from memsweep.report.page.environment import templates
from memsweep.report.page.files import Files, headings
from memsweep.report.page.grid import grids
from memsweep.report.read.study import Study, measured_again, not_measured
from memsweep.report.rows.losses import ACROSS, BASELINE, has_baseline
from memsweep.report.rows.report import Tables, cells_mean, facts
from memsweep.report.rows.verdicts import NOT_ASKED, SHORT, judged, moving, referred
from memsweep.report.values.chart import ChartSet
from memsweep.report.values.section import Place, Rank, Section, figured, placed
from memsweep.report.values.table import PAGE, Table
from memsweep.stability.verdict.judgement import (
    HORIZON_LIMITED,
    SMALLEST_GRID,
    SMALLEST_SEEDS,
    STEP_LIMIT,
    Criteria,
)
from memsweep.stability.verdict.radius import VALID_ERROR
from memsweep.stability.verdict.trend import DECISION, LONG_RANGE

if TYPE_CHECKING:
    from memsweep.report.page.live import Live
    from memsweep.report.values.side_by_side import SideBySide

NO_FILES = Files()
HERE = Path(__file__).parent
SCRIPTS = ("vendor/d3.min.js", "vendor/plot.umd.min.js", "page.js")
"""In the order in which they run; the first two are others' (``vendor/versions.json``)."""
_COUNTS = re.compile(r"^(memsweep sweep|\d+ (trials|models|cells))\b")


def render(
    contents: Contents,
    tables: Tables,
    sets: Sequence[ChartSet],
    pictures: Mapping[str, Shown],
    formats: Sequence[str] = ("png",),
    live: Live | None = None,
    *,
    whole: bool = True,
    files: Files = NO_FILES,
) -> str:
    """The page as text.

    Args:
        contents, tables, sets: of the report.
        pictures: by the names of their galleries; none of a study that runs.
        formats: of the figure files.
        live: the state of a study that runs; None for a report.
        whole: every figure was drawn.
        files: beside the page.
    """
    environment = templates()
    environment.globals["view"] = _view
    study, searched, labels = contents.study, contents.searched, contents.labels
    shown = live.grids if live is not None else grids(contents.verdicts, labels)
    answer = live.answer if live is not None else answer_of(contents)
    trials = Trials(contents)
    charts = charts_of(contents, answer, sets, trials)
    said = _said_by(answer, contents, tables)
    scripts = {name: _text(HERE / name) for name in SCRIPTS}
    return environment.get_template("page.html.j2").render(
        study=study,
        failed=sum(group.count for group in study.failures),
        tables=tables,
        answer=answer,
        kind=str(answer.kind),
        rank=str(answer.rank or ""),
        said=said,
        said_first=next(iter(said.values()), None),
        meaning=_meaning(answer, tables, contents.criteria if any(grid.ball for grid in shown) else None),
        live=live,
        grids=shown,
        picture=_static(answer, contents, pictures),
        about=about(study.description),
        data=page_data(contents, answer, trials, charts, files.records),
        charted=charts.sets,
        links=partial(files.links, tables),
        headings=headings,
        placed=partial(_in_place, tables.sections, str(answer.kind), charts.sets),
        scripts=scripts,
        policy=_policy(scripts.values(), connects=live is not None and not live.every),
        balls={ball: moving(ball) for ball in BALLS},
        replicas=len(study.tables["replicas"]),
        fixed=contents.grouping.throughout(),
        settings=labels.settings(),
        not_measured=[*(f"Not measured: {text}." for text in not_measured(study)), *measured_again(study)],
        trained=objectives(record["config"] for record in study.records.values()),
        guessed=guessed_roles(study.records.values()),
        coupled=contents.grouping.coupled,
        facts=facts(study) | _rules(contents),
        finished=_finished(study),
        slopes=any(
            trends.horizon.limit.available or trends.along_width.available
            for finding in contents.verdicts
            for trends in finding.judgement.by_threshold.values()
        ),
        not_asked=NOT_ASKED,
        marked=SHORT if any(finding.marked for finding in contents.verdicts) else "",
        across_means=ACROSS,
        cells_mean=cells_mean(tables.cells, tables.sections),
        baseline=BASELINE if has_baseline(contents.losses) else "",
        instead=bool(figured(tables.sections, Rank.INSTEAD)),
        searched=searched,
        rule=_rule(contents.criteria),
        judged=judged(contents.criteria),
        referred=referred(contents.verdicts),
        formats=joined([form.upper() for form in formats]),
        whole=whole,
        per_picture=PER_PICTURE,
        redraw=study.typed("report", study.name, "--figures", "png"),
    )


def render_comparison(found: SideBySide, picture: Shown | None) -> str:
    """The page of a comparison as text.

    Args:
        found: what it shows.
        picture: of the radii of all studies, in its first section.
    """
    environment = templates()
    environment.globals["view"] = _view
    return environment.get_template("comparison.html.j2").render(found=found, picture=picture)


def on_page(contents: Contents, sets: Sequence[ChartSet]) -> Callable[[str], bool]:
    """Whether the page holds a gallery as a picture: the answer's alone, for browsers without scripts."""
    named = {each.name: each for each in sets if each.first(1)}
    return pictured(answer_of(contents), contents, named).__contains__


def about(description: str) -> list[str]:
    """The paragraphs of a study's description, without those that count its trials: the page counts those that ran."""
    return [text for text in description.splitlines() if text.strip() and not _COUNTS.match(text.strip())]


def _meaning(answer: StudyAnswer, tables: Tables, criteria: Criteria | None) -> tuple[str, str]:
    """What the words of the answer mean: the words, and a sentence; criteria of verdicts, where there are any."""
    if answer.kind is Kind.SEARCH:
        return "What was searched:", tables.searched[0].removeprefix("Searched ")
    if answer.kind is Kind.LOSSES:
        return "What is compared:", "trained models without perturbation, each by the median over its seeds."
    if answer.rank is Rank.ALONE:
        return next(section.meaning for section in tables.sections if section.kind == answer.kind)
    said = [section.meaning for section in tables.sections if section.meaning[0]]
    if answer.rank is Rank.TESTED and said:
        return said[0]
    if criteria is not None:
        return "What “stable” means:", stable_means(criteria)
    return "", ""


def _said_by(answer: StudyAnswer, contents: Contents, tables: Tables) -> dict[Quantity, str]:
    """The sentence of each quantity by which a reader may compare the models; none where that is not asked."""
    if answer.kind is not Kind.LOSSES or figured(tables.sections, Rank.INSTEAD):
        return {}
    return {by: ranking_sentence(contents, by) for by in tables.compared}


def _in_place(sections: Sequence[Section], kind: str, charted: Container[str], place: str) -> list[Section]:
    """The sections at a place of the page that have something to show there; the table of the answer stands above."""
    found = []
    for section in placed(sections, PAGE, Place(place)):
        is_answer = section.rank is Rank.ALONE and section.kind == kind
        if (section.charts and section.drawn in charted) or (section.table is not None and not is_answer):
            found.append(replace(section, table=None) if is_answer else section)
    return found


def _static(answer: StudyAnswer, contents: Contents, pictures: Mapping[str, Shown]) -> Shown | None:
    """The picture of the answer that stands in the page where scripts are off."""
    return next((pictures[name] for name in pictured(answer, contents, pictures) if name in pictures), None)


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


def _rules(contents: Contents) -> dict[str, str]:
    """The version of the rule by which the verdicts were reached, where there are any."""
    versions = sorted({finding.judgement.rule_version for finding in contents.verdicts})
    return {"rule of the verdicts": f"version {joined([*map(str, versions)])}"} if versions else {}


def _rule(criteria: Criteria) -> dict[str, Any]:
    return {
        "slope": limit(criteria.slope_limit),
        "growth": f"{criteria.growth_limit:g}",
        "step": number(STEP_LIMIT, 1),
        "marked": percent(MARKED),
        "decision": f"{100 * DECISION:g} %",
        "least": SMALLEST_GRID,
        "seeds": SMALLEST_SEEDS,
        "scales": USABLE_SCALES,
        "range": f"{LONG_RANGE:g}",
        "limited": f"{HORIZON_LIMITED:g}",
        "validity": percent(VALID_ERROR),
        "solved": percent(SOLVED),
        "thresholds": joined([percent(threshold) for threshold in criteria.thresholds]),
    }


def _view(table: Table[Any]) -> Any:
    return table.view(PAGE)
