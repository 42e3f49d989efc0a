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
from memsweep.report.values.table import Table
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
    """

    name: str
    key: str
    words: str
    value: Callable[[LossRow], Spread]
    unit: str = ""


@dataclass(frozen=True)
class Section:
    """What a report says of one measure.

    Attributes:
        title: heading of the section.
        words: what the numbers are, with their scope: the text below the heading.
        table: its name is that of the CSV file; None: charts alone.
        charts: curves of the numbers.
        metrics: identity of a trial -> name -> number, for a tracking server.
        glance: numbers of each condition.
        anchor: of the section on the page, made of the measure's name.
    """

    title: str
    words: str
    table: Table[Any] | None = None
    charts: Sequence[Chart] = ()
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    glance: Sequence[Glance] = ()
    anchor: str = ""


def slope_metrics(slope: Slope, about: str) -> dict[str, float]:
    """Metrics of a slope, ``<about>/slope``, ``slope_low`` and ``slope_high``, as far as they are finite."""
    values = {"slope": slope.estimate, "slope_low": slope.low, "slope_high": slope.high} if slope.available else {}
    return {f"{about}/{name}": float(value) for name, value in values.items() if math.isfinite(value)}


def sections_of(contents: Contents) -> list[Section]:
    """The sections of all measures of which a study has rows, by name."""
    found = []
    for name in registry.names(registry.MEASURE):
        measure = registry.get(registry.MEASURE, name)
        if len(contents.measured.tables[measure.table]):
            module, _, function = measure.section.partition(":")
            section: Section = getattr(importlib.import_module(module), function)(contents)
            found.append(replace(section, anchor=name.replace("_", "-")))
    return [section for section in found if section.charts or (section.table is not None and section.table.rows)]
