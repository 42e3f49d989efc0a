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
