"""The formats and names of a report's files; the command line names them, so nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Collection

FIGURES = ("png", "pdf", "svg")
"""Of the files of a picture; the same data gives the same bytes in each of them."""
PDF = "pdf"
"""Of them the one that a paper takes."""
TRIALS = "trials"
"""Named among the formats: the charts of every trial are drawn, too."""
PAPER = {"single": 3.25, "double": 6.75}
"""Widths of a paper's pictures, inches: one column of a page of two, and both. Named among the formats, too."""
TABLES = ("markdown", "latex", "csv")
"""Of a table that is printed."""
REPORT = "report"
"""The report's folder within its study's."""
PAGE = "index.html"
"""The page in it."""
RADIUS = "radius"
"""The figure of a comparison."""
PER_PICTURE = 12
"""Panels in one picture: what a page of a paper can hold."""


def width_of(formats: Collection[str]) -> float | None:
    """The width of the paper that is named among formats, in inches; None: each picture has its own."""
    return next((PAPER[name] for name in formats if name in PAPER), None)


Shown = tuple[str, str]
"""A picture on a page: its address and its words.

The address is a ``data:`` address: an image of its own, whose text can run nothing there.
"""
