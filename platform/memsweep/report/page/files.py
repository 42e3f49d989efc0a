"""The files beside a page, section by section, and the list of its contents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memsweep.report.rows.report import Tables

_MOST = 6  # figure files that a section names
_HEADING = re.compile(r'<section id="([\w-]+)"[^>]*>\s*<h2>(.*?)</h2>', re.DOTALL)
_OTHERS = {"radii": "radii.csv", "curves": "curves.parquet"}
"""Files of measured values, which every report has."""

Link = tuple[str, str]
"""Address and text."""


@dataclass(frozen=True)
class Files:
    """What lies beside a page; nothing beside one of a study that runs.

    Attributes:
        figures: name of a set of charts -> its files.
        records: the way from the page to the records of the trials, with a slash at its end; empty: there is none.
    """

    figures: Mapping[str, Sequence[str]] = field(default_factory=dict)
    records: str = ""

    def links(self, tables: Tables, names: Sequence[str], sets: Sequence[str]) -> list[Link]:
        """The files of a section.

        Args:
            tables: of the report.
            names: of its tables; one without a file is passed over.
            sets: of its charts; one that ends in a hyphen stands for all that begin so.
        """
        if not self.figures and not self.records:
            return []
        stored = {table.name: f"{table.name}.csv" for table in tables.exported} | _OTHERS
        found = [(stored[name], stored[name]) for name in names if name in stored]
        drawn = [
            file for name, files in self.figures.items() if any(_is_of(name, one) for one in sets) for file in files
        ]
        found += [(f"figures/{file}", file) for file in drawn[:_MOST]]
        found += [("figures/", f"{len(drawn) - _MOST} more figures")] if len(drawn) > _MOST else []
        return [*found, *([(self.records, "records of the trials")] if self.records else [])]


def _is_of(name: str, one: str) -> bool:
    return name.startswith(one) if one.endswith("-") else name == one


def headings(markup: str) -> list[Link]:
    """Anchor and title of each section of a page that has a title, as markup."""
    return [(anchor, re.sub("<[^>]*>", "", title)) for anchor, title in _HEADING.findall(markup)]
