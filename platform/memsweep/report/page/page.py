"""The HTML page: one file that needs nothing else, neither network nor script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from memsweep.report.analysis.findings import Finding
from memsweep.report.analysis.gradient_alignment import AlignmentRow
from memsweep.report.analysis.learning_rates import RateStudy
from memsweep.report.analysis.losses import LossRow
from memsweep.report.analysis.published import ClaimedVerdict
from memsweep.report.analysis.search.searched import Searched
from memsweep.report.analysis.summary import answers, joined
from memsweep.report.figures.panels import Gallery, Panel, legend_mark, svg
from memsweep.report.figures.radius import SHOWN_THRESHOLD
from memsweep.report.figures.search.pictures import SearchPicture
from memsweep.report.naming.conditions import Grouping
from memsweep.report.naming.labels import Labels
from memsweep.report.read.study import Study
from memsweep.report.rows import alignment as alignment_rows
from memsweep.report.rows import claims as claims_rows
from memsweep.report.rows import losses as losses_rows
from memsweep.report.rows import provenance as provenance_rows
from memsweep.report.rows import search as search_rows
from memsweep.report.rows import verdicts as verdicts_rows
from memsweep.report.rows.overview import overview
from memsweep.report.rows.published import published_tables
from memsweep.report.style import number
from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR
from memsweep.stability.verdict.rule import GROWTH_LIMIT, HORIZON_LIMITED, SLOPE_LIMIT, SMALLEST_GRID

_MOST_PANELS = 24  # per gallery: beyond that a page is scrolled, not read


@dataclass(frozen=True)
class Section:
    """The galleries of one ball: the error, and the radius."""

    ball: str
    moves: str
    error: Gallery
    radius: Gallery


@dataclass(frozen=True)
class Galleries:
    """Every picture of a report; ``along``: the alignment against each field of the model that the study varies."""

    sections: tuple[Section, ...]
    memory: Gallery
    rates: Gallery
    training: Gallery
    gradients: Gallery
    alignment: Gallery
    along: tuple[tuple[str, Gallery], ...]
    search: tuple[SearchPicture, ...] = ()

    @property
    def all(self) -> tuple[Gallery, ...]:
        """In the order of the page."""
        stability = (gallery for section in self.sections for gallery in (section.error, section.radius))
        single = (self.memory, self.rates, self.training, self.gradients)
        aligned = (*(gallery for _, gallery in self.along), self.alignment)
        return (*stability, *single, *aligned, *(picture.gallery for picture in self.search))


@dataclass(frozen=True)
class Contents:
    """Everything that a report says.

    Attributes:
        study: as its folder holds it.
        measured: the part of it that speaks for it: of a search, the winners alone; else all of it.
        searched: the search beside its results; None for a study that searches nothing.
        findings: all conditions and balls that were measured.
        comparisons: with the published claims.
        compared: claims that compare cells, tested; without rows where the study has none.
        trained: the losses of all conditions.
        losses: those of them worth showing.
        rates: the curves of a study of learning rates.
        scanned: the same of a search over a grid of learning rates, on the seeds that chose its winners.
        alignment: gradients of learning rules beside those of backpropagation through time.
    """

    study: Study
    measured: Study
    searched: Searched | None
    grouping: Grouping
    labels: Labels
    findings: Sequence[Finding]
    comparisons: Sequence[ClaimedVerdict]
    compared: pd.DataFrame
    trained: Sequence[LossRow]
    losses: Sequence[LossRow]
    rates: Sequence[RateStudy]
    scanned: Sequence[RateStudy]
    alignment: Sequence[AlignmentRow]

    @property
    def asked(self) -> list[Finding]:
        """The findings that ask for a verdict."""
        return [finding for finding in self.findings if finding.asked]


def render(contents: Contents, galleries: Galleries) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,  # names, reasons and tracebacks are data, whatever they contain
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    compared = _compared(contents.compared)
    words = {**_head(contents), **_tables(contents), **_pictures(galleries), "rule": _rule()}
    words |= {"search": _search(contents.searched, galleries), "compared": compared}
    words |= {"alignment": _alignment(contents, galleries)}
    words["answers"] += losses_rows.baseline_sentences(contents.losses, contents.labels)
    words["answers"] += alignment_rows.order_sentences(contents.losses, contents.labels, contents.rates)
    words["answers"] += [compared["counted"]] if compared else []
    return environment.get_template("page.html.j2").render(words)


def _head(contents: Contents) -> dict[str, Any]:
    study, labels = contents.study, contents.labels
    return {
        "study": study,
        "answers": answers(contents.asked, labels, finished=bool(study.records)),
        "replicas": len(study.tables["replicas"]),
        "fixed": labels.fixed(),
        "decays": labels.decays(),
        "coupled": contents.grouping.coupled,
        "following": labels.following,
        "missing": provenance_rows.missing(study),
        "unusual": provenance_rows.unusual(contents.measured),
        "facts": provenance_rows.facts(study),
        "trials": provenance_rows.trials(study),
    }


def _tables(contents: Contents) -> dict[str, Any]:
    labels, asked = contents.labels, contents.asked
    return {
        "overview": overview(asked, labels),
        "tables": verdicts_rows.verdict_tables(asked, labels),
        "lower": any(finding.bound for finding in asked),
        "slopes": verdicts_rows.slope_rows(asked, labels),
        "fit": verdicts_rows.fit_table(asked, labels),
        "published": published_tables(contents.study, contents.comparisons, labels),
        "losses": losses_rows.loss_table(contents.losses, labels),
        "rates": losses_rows.rate_tables([*contents.rates, *contents.scanned]),
        "scanned": bool(contents.scanned),
    }


def _pictures(galleries: Galleries) -> dict[str, Any]:
    return {
        "sections": [
            {
                "ball": part.ball,
                "moves": part.moves,
                "error": _gallery(part.error),
                "radius": _gallery(part.radius),
                "folded": i > 0,
            }
            for i, part in enumerate(galleries.sections)
        ],
        "memory": _gallery(galleries.memory),
        "rate_pictures": _gallery(galleries.rates),
        "training": _gallery(galleries.training),
        "gradients": _gallery(galleries.gradients),
    }


def _search(searched: Searched | None, galleries: Galleries) -> dict[str, Any] | None:
    if searched is None:
        return None
    return {
        "sentences": search_rows.sentences(searched),
        "space": search_rows.space_text(searched),
        "winners": search_rows.winner_table(searched),
        "front": search_rows.front_table(searched),
        "fresh": searched.fresh,
        "ranks": any(winner.rank > 1 for winner in searched.winners),
        "objectives": [name.replace("_", " ") for name in searched.objectives],
        "pictures": [
            {"title": picture.title, "words": picture.words, "gallery": _gallery(picture.gallery)}
            for picture in galleries.search
        ],
    }


def _alignment(contents: Contents, galleries: Galleries) -> dict[str, Any] | None:
    rows, labels = contents.alignment, contents.labels
    if not rows:
        return None
    return {
        "table": alignment_rows.alignment_table(rows, labels),
        "along": [{"field": field, "gallery": _gallery(gallery)} for field, gallery in galleries.along],
        "steps": _gallery(galleries.alignment),
        "sizes": len({(row.row.width, row.row.horizon) for row in rows}) > 1,
    }


def _compared(compared: pd.DataFrame) -> dict[str, Any] | None:
    if compared.empty:
        return None
    claims = claims_rows.claim_rows(compared)
    return {"claims": claims, "counted": claims_rows.counted(claims), "tone": claims_rows.TONES}


def _rule() -> dict[str, Any]:
    return {
        "slope": number(SLOPE_LIMIT, 1),
        "growth": number(GROWTH_LIMIT, 1),
        "least": SMALLEST_GRID,
        "limited": f"{HORIZON_LIMITED:g}",
        "validity": verdicts_rows.percent(VALID_ERROR),
        "thresholds": joined([verdicts_rows.percent(threshold) for threshold in THRESHOLDS]),
        "shown": verdicts_rows.percent(SHOWN_THRESHOLD),
    }


def chosen(panels: Sequence[Panel]) -> list[Panel]:
    """What a page can hold: of too many panels the first of each group, equally many."""
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
