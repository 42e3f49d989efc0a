"""Tables as CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table so that a spreadsheet reads its text as text.

    Text that begins with ``= + - @``, a tab or a carriage return would be run as a formula: it gets a leading
    apostrophe. Numbers stay numbers: infinities are ``inf`` and ``-inf``, and an empty cell is a null.
    """
    safe = table.astype(object).map(_as_text).rename(columns=_as_text)
    safe.to_csv(path, index=False, encoding="utf-8", lineterminator="\n")


def _as_text(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    text = "'" + cell if cell.startswith(_FORMULA_STARTS) else cell
    return text.replace("\r\n", "\n").replace("\r", "\n")  # a bare carriage return would end the row for many readers
