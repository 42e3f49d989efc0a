"""A section: what a report says of one measure or analysis, made once.

Page and terminal, CSV, JSON and figure files, Python and MLflow show it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from memsweep import registry
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, Spread, largest
from memsweep.report.values.analysis import left_out_where_it_fails, loaded
from memsweep.report.values.chart import Chart, says_something
from memsweep.report.values.table import PAGE, Cell, Table, spread_cell
from memsweep.stability.verdict.trend import Slope


@dataclass(frozen=True)
class Glance:
    """One number of a condition, for the table of all that was measured in one line.

    Attributes:
        name: heading of its column.
        key: its name in the CSV file.
        words: what the number is, a sentence.
        value: of a condition at its largest size, over the seeds; nan where it was not measured.
        unit: behind the heading, in brackets.
        cell: writes it where the median and its ends alone do not do.
        is_measured: of a condition; None: where the value is a number.
        kind: what it is a number of, where several are of one measurement; empty: of one of its own.
        optional: it is left out where no condition has it.
    """

    name: str
    key: str
    words: str
    value: Callable[[LossRow], Spread]
    unit: str = ""
    cell: Callable[[LossRow], Cell] | None = None
    is_measured: Callable[[LossRow], bool] | None = None
    kind: str = ""
    optional: bool = True


class Place(enum.StrEnum):
    """Where in a view a section stands, beside what every report has."""

    FIRST = "first"
    """Before the verdicts; among the files the last."""
    MEASURED = "measured"
    """Behind the verdicts."""
    BEHIND = "behind"
    """On the page: behind all that was measured."""
    CLAIMED = "claimed"
    """Behind both."""
    COMPARED = "compared"
    """Before the losses of trained models."""
    TRAINED = "trained"
    """Behind the losses of trained models."""
    TRAINING = "training"
    """On the page: behind the curves of the training."""
    GRADIENTS = "gradients"
    """On the page: behind these, before the gradients of the memory."""
    LAST = "last"
    NOWHERE = "nowhere"
    LOSSES = "losses"
    """On the page: before the losses of trained models, behind what stands COMPARED."""
    BELOW = "below"
    """On the page: below the charts of another section, without a heading of its own."""


FILES = "files"
"""The view of figure files, in the order in which they are drawn; LAST is behind those of the training."""


class Rank(enum.StrEnum):
    """Where the sentences of a section stand in the answer of a study without verdicts."""

    TESTED = "tested"
    """First where there are verdicts, else behind every other answer: what was claimed and tested. Its charts are the
    figure of such an answer."""
    ALONE = "alone"
    """The answer, where there are no verdicts: the kind of such a study is called as the anchor of the section."""
    INSTEAD = "in place of the ranking"
    """The answer, where there are no verdicts: it tells more of the losses than their ranking, and its charts do."""
    BEFORE = "before the ranking"
    AFTER = "after the ranking"


@dataclass(frozen=True)
class Section:
    """What a report says of one measure or analysis, or of a part of it.

    Attributes:
        title: heading of the section.
        words: what the numbers are, with their scope: the text below the heading.
        table: its name is that of the CSV file; None: charts alone.
        charts: curves of the numbers.
        metrics, tags: identity of a trial -> name -> number or words, for a tracking server.
        folded: tables that page and terminal show in its place; the page folds all but the first.
        glance: numbers of each condition, for a table beside those of the sections: of a section without rows and
            charts they are not shown.
        answer: sentences of the study's answer.
        decide: the command that would decide what is undecided of it; empty where nothing is, or none is known to.
        rank: where they stand in it.
        heading: a line above the table on a terminal.
        key: lines below the table on a terminal; None: the words.
        brief: columns of the table that stand beside the answer of a study whose claims were tested.
        meaning: words of an answer of claims, or of one that is this section alone, and what they mean.
        pending: what is said in place of the answer while the study runs; empty where something is known.
        places: view -> where in it the section stands; a view that is not named: MEASURED.
        anchor: of the section on the page; empty: made of the name of the measure or analysis.
        drawn: name of the charts, and of their files; empty: the anchor.
        kind: of a study that is answered by it; empty: the anchor.
        small, note: smaller text below the words, on the page.
        charted: text above the charts, on the page.
        below: anchor of the section below which it stands, where its place on the page is BELOW.
        columns: of charts side by side in a file.
        chosen: the page's figure shows those of its charts that a reader chooses, where it is the answer.
        sectioned: the page draws its charts in its section.
    """

    title: str
    words: str
    table: Table[Any] | None = None
    charts: Sequence[Chart] = ()
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    folded: Sequence[Table[Any]] = ()
    glance: Sequence[Glance] = ()
    answer: Sequence[str] = ()
    decide: str = ""
    rank: Rank = Rank.AFTER
    heading: str = ""
    key: str | None = None
    brief: Sequence[str] = ()
    meaning: tuple[str, str] = ("", "")
    pending: str = ""
    places: Mapping[str, Place] = field(default_factory=dict)
    anchor: str = ""
    drawn: str = ""
    kind: str = ""
    small: str = ""
    note: str = ""
    charted: str = ""
    below: str = ""
    columns: int = 2
    chosen: bool = False
    sectioned: bool = True

    def named(self, anchor: str) -> Section:
        """It with an anchor, a kind, and a name of its charts, where it has none."""
        anchor = self.anchor or anchor
        return replace(self, anchor=anchor, drawn=self.drawn or anchor, kind=self.kind or anchor)

    def varying(self) -> Section:
        """It without what all rows of a table have in common."""
        table = self.table and self.table.varying()
        return replace(self, table=table, folded=tuple(each.varying() for each in self.folded))

    @property
    def is_shown(self) -> bool:
        """Whether it has rows or charts."""
        return bool(self.charts) or (self.table is not None and bool(self.table.rows))


def slope_metrics(slope: Slope, about: str) -> dict[str, float]:
    """Metrics of a slope, ``<about>/slope``, ``slope_low`` and ``slope_high``, as far as they are finite."""
    values = {"slope": slope.estimate, "slope_low": slope.low, "slope_high": slope.high} if slope.available else {}
    return {f"{about}/{name}": float(value) for name, value in values.items() if math.isfinite(value)}


def sections_of(contents: Contents) -> list[Section]:
    """The sections of all measures of which a study has rows, then those of all analyses, by name.

    They are made once for each contents.
    """
    if contents not in _made:
        registry.find_in(registry.ANALYSES)  # of the engine: whoever makes a report need not know of them
        parts = [(kind, name) for kind in (registry.MEASURE, registry.ANALYSIS) for name in registry.names(kind)]
        found = [one for kind, name in parts for one in _sections(kind, name, contents)]
        _made[contents] = [section for section in found if section.is_shown]
    return _made[contents]


def placed(sections: Sequence[Section], view: str, place: Place) -> list[Section]:
    """The sections that stand at a place of a view. A terminal and a list of tables have the last analyses first."""
    found = [section for section in sections if section.places.get(view, Place.MEASURED) is place]
    return found if view in (PAGE, FILES) or place is Place.MEASURED else found[::-1]


def figured(sections: Sequence[Section], rank: Rank) -> list[str]:
    """The names of the charts that the page's figure shows where sections of a rank are the answer."""
    return [section.drawn for section in sections if section.rank is rank and section.chosen]


def made_by(part: Any, name: str, contents: Contents) -> Iterator[Section]:
    """The sections of a measure or an analysis of this name, those without rows and charts among them."""
    made: Section | Sequence[Section] = loaded(part.section)(contents)
    for section in (made,) if isinstance(made, Section) else made:
        yield section.named(name.replace("_", "-"))


_made: WeakKeyDictionary[Contents, list[Section]] = WeakKeyDictionary()


def _sections(kind: str, name: str, contents: Contents) -> list[Section]:
    part, made = registry.get(kind, name), list[Section]()
    with left_out_where_it_fails(part, f"the section of the {kind} {name}"):
        if part.section if kind == registry.ANALYSIS else len(part.own(contents.measured.tables[part.table])):
            found = [*made_by(part, name, contents)]
            for section in () if registry.is_own(part) else found:
                _compute(section, contents)
            made = found
    return made


def _compute(section: Section, contents: Contents) -> None:
    """Compute once what a report asks a section for later: cells, numbers of conditions, and which charts are empty."""
    for table in (section.table, *section.folded):
        if table is not None:
            table.frame()
    for glance in section.glance:
        for row in largest(contents.trained):
            spread_cell(glance.value(row))
            for late in (glance.cell, glance.is_measured):
                if late is not None:
                    late(row)
    for chart in section.charts:
        says_something(chart)
