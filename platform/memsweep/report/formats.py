"""The formats of figure files and of printed tables; the command line names them, so nothing heavy is imported here."""

from __future__ import annotations

FIGURES = ("png", "pdf", "svg")
"""Of the files of a picture; the same data gives the same bytes in each of them."""
TABLES = ("markdown", "latex", "csv")
"""Of a table that is printed."""
