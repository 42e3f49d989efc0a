"""Slopes of the log of a measured number against the log of a size, with an interval over seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from memsweep.stability.verdict.trend import NO_SLOPE, Slope, trend


def slope_of(values: pd.DataFrame) -> Slope:
    """Of log values against the log of their columns, with an interval over the rows, which are seeds.

    By least squares over all columns for each seed: a limit slope would amplify the steps of whole numbers.
    """
    numbers = values.to_numpy(float)
    if not numbers.size or not (np.isfinite(numbers) & (numbers > 0)).all():
        return NO_SLOPE
    return trend(values.columns.to_numpy(float), numbers, numbers, [*map(int, values.index)]).over_range
