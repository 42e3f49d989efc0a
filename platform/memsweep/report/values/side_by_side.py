"""Several studies side by side: what a report says of them, made once by the analyses that compare studies.

Page and terminal, CSV, JSON and figure files, and Python show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from memsweep import registry
from memsweep.errors import MemsweepError
from memsweep.report.analysis.contents import Contents, Finding, judge
from memsweep.report.values.analysis import left_out_where_it_fails, loaded
from memsweep.report.values.section import Section
from memsweep.report.values.table import Table
from memsweep.stability.verdict.judgement import DEFAULT, Criteria
from memsweep.sweep.store.filesystem import Location


@dataclass(frozen=True)
class Compared:
    """What one analysis says of several studies.

    Attributes:
        answers: what it finds, and what is uncertain about it, in sentences.
        sections: its tables, those without rows among them.
        drawn: findings whose radii the picture shows, a line for each value of ``study`` in their conditions.
    """

    answers: Sequence[str]
    sections: Sequence[Section]
    drawn: Sequence[Finding] = ()


@dataclass(frozen=True)
class SideBySide:
    """What a report says of several studies.

    Attributes:
        letters: study -> the letter by which tables name it, in the order given.
        parts: of each analysis that compares studies, by name.
    """

    letters: Mapping[str, str]
    parts: Sequence[Compared]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the studies; the first is the reference."""
        return tuple(self.letters)

    @property
    def answers(self) -> list[str]:
        """What was found, in sentences."""
        return [sentence for part in self.parts for sentence in part.answers]

    @property
    def sections(self) -> list[Section]:
        """Those that have rows."""
        return [section for part in self.parts for section in part.sections if section.is_shown]

    @property
    def tables(self) -> dict[str, Table[Any]]:
        """All tables by name, those without rows among them."""
        tables = (section.table for part in self.parts for section in part.sections)
        return {table.name: table for table in tables if table is not None}

    @property
    def named(self) -> dict[str, Table[Any]]:
        """The tables that can be asked for one by one, those without rows left out."""
        return {name: table for name, table in self.tables.items() if table.rows}

    @property
    def drawn(self) -> list[Finding]:
        """What the picture shows."""
        return [finding for part in self.parts for finding in part.drawn]


def side_by_side(contents: Mapping[str, Contents]) -> SideBySide:
    """Compare studies that were analysed by the same criteria.

    Args:
        contents: name -> study; the first is the reference of differences.

    Raises:
        MemsweepError: there are fewer than two studies, or they were judged by different criteria.
    """
    if len(contents) < 2:
        raise MemsweepError(f"a comparison needs two studies or more, got {len(contents)}: {', '.join(contents)}.")
    if len({each.criteria for each in contents.values()}) > 1:
        raise MemsweepError("studies are compared by one rule: analyse all of them with the same criteria.")
    letters = dict(zip(contents, _letters(len(contents)), strict=True))
    registry.find_in(registry.ANALYSES)
    compared = []
    for name in registry.names(registry.ANALYSIS):
        part = registry.get(registry.ANALYSIS, name)
        with left_out_where_it_fails(part, f"the comparison of studies by the analysis {name}"):
            compared += [loaded(part.studies)(contents, letters)] if part.studies else []
    return SideBySide(letters, compared)


def compare(studies: Mapping[str, Location | Path | str | Contents], criteria: Criteria = DEFAULT) -> SideBySide:
    """Compare stored studies, by all analyses that compare studies; trains and writes nothing.

    Args:
        studies: name -> the study's folder, or the study as ``judge`` gave it; the first is the reference.
        criteria: of all verdicts, as of ``judge``; they do not change what was judged before.

    Raises:
        MemsweepError: there are fewer than two studies, or they were judged by different criteria.
        StoreError: as of ``judge``.
    """
    return side_by_side(
        {name: each if isinstance(each, Contents) else judge(each, criteria) for name, each in studies.items()}
    )


def _letters(count: int) -> list[str]:
    return [*ascii_uppercase[:count]] if count <= len(ascii_uppercase) else [str(place + 1) for place in range(count)]
