"""A section: what a report says of one measure, made once, and shown on page and terminal, in files and in MLflow."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memsweep import registry
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.values.chart import Chart
from memsweep.report.values.table import Cell, Table
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


MEASURED, BESIDE, TRAINING = "measured", "beside", "training"
"""Places on the page: where measurements stand, behind all of them, and behind the curves of the training."""


@dataclass(frozen=True)
class Section:
    """What a report says of one measure, or of a part of it.

    Attributes:
        title: heading of the section.
        words: what the numbers are, with their scope: the text below the heading.
        table: its name is that of the CSV file; None: charts alone.
        charts: curves of the numbers.
        metrics, tags: identity of a trial -> name -> number or words, for a tracking server.
        glance: numbers of each condition.
        anchor: of the section on the page; empty: made of the measure's name.
        answer: of a study that asks for this and for no verdict, a sentence; empty: it is none.
        drawn: name of the charts, and of their files; empty: the anchor.
        place: on the page.
        is_headed: whether a terminal shows the title, too.
    """

    title: str
    words: str
    table: Table[Any] | None = None
    charts: Sequence[Chart] = ()
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    glance: Sequence[Glance] = ()
    anchor: str = ""
    answer: str = ""
    drawn: str = ""
    place: str = MEASURED
    is_headed: bool = False

    def named(self, anchor: str) -> Section:
        """It with an anchor, and a name of its charts, where it has none."""
        anchor = self.anchor or anchor
        return replace(self, anchor=anchor, drawn=self.drawn or anchor)


def slope_metrics(slope: Slope, about: str) -> dict[str, float]:
    """Metrics of a slope, ``<about>/slope``, ``slope_low`` and ``slope_high``, as far as they are finite."""
    values = {"slope": slope.estimate, "slope_low": slope.low, "slope_high": slope.high} if slope.available else {}
    return {f"{about}/{name}": float(value) for name, value in values.items() if math.isfinite(value)}


def sections_of(contents: Contents) -> list[Section]:
    """The sections of all measures of which a study has rows, by name."""
    found: list[Section] = []
    for name in registry.names(registry.MEASURE):
        measure = registry.get(registry.MEASURE, name)
        if len(measure.own(contents.measured.tables[measure.table])):
            module, _, function = measure.section.partition(":")
            made = getattr(importlib.import_module(module), function)(contents)
            sections: Sequence[Section] = [made] if isinstance(made, Section) else made
            found += [section.named(name.replace("_", "-")) for section in sections]
    return [section for section in found if section.charts or (section.table is not None and section.table.rows)]
