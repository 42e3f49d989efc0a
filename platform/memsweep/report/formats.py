"""The formats and names of a report's files; the command line names them, so nothing heavy is imported here."""

from __future__ import annotations

FIGURES = ("png", "pdf", "svg")
"""Of the files of a picture; the same data gives the same bytes in each of them."""
TRIALS = "trials"
"""Named among the formats: the charts of every trial are drawn, too."""
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
Shown = tuple[str, str]
"""A picture on a page: its address and its words.

The address is a ``data:`` address: an image of its own, whose text can run nothing there.
"""
