"""The time scale of a function of the lag, and the inputs along which derivatives are taken."""

from __future__ import annotations

import numpy as np

SHARE = 1 - np.exp(-1)
SIZES = (0.1, 1.0, 1.0, 1.0, 3.0, 10.0)
"""Sizes of the noise along which derivatives are taken."""
CUT_OFF = 0.25
"""Of the length: beyond this share of it, a time scale says how long was looked and not how long the memory is."""


def finite_rows(rows: np.ndarray, what: str) -> tuple[np.ndarray, list[str]]:
    """The rows ``[R, T]`` in which all is finite, and a note that counts the others.

    Args:
        rows: measured, one for each input that was tried.
        what: the rows in words, and what of them is not finite: ``inputs, whose outputs``.
    """
    if not rows.size:
        return rows, []
    known = np.isfinite(rows).all(1)
    left = int((~known).sum())
    return rows[known], [f"Left out: {left} of {len(rows)} {what} are not finite."] if left else []


def time_scale(weight: np.ndarray) -> float:
    """Lags that hold 63 % of the weight: ``[T]`` -> lags, interpolated; nan where there is no weight."""
    total = weight.sum()
    if not np.isfinite(total) or total <= 0:
        return float("nan")
    share = np.concatenate([[0.0], np.cumsum(weight) / total])
    return float(np.interp(SHARE, share, np.arange(len(share))))
