"""Reach: how far back in time the last output of a trained model depends on its inputs."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from memsweep.report.analysis.losses import Spread
from memsweep.report.read.study import Study

SHARE = 0.01
"""A lag is within reach while the dependence is at least this share of the largest over all lags."""


def reach_of(study: Study, identities: Iterable[str]) -> Spread:
    """The longest lag k at which the typical ||dy_T / dx_{T-k}|| is at least ``SHARE`` of its largest.

    The longest that can be seen is ``last_lag``: of a value there the true one is that or longer.

    Args:
        study: whose table ``memory_over_inputs`` has the median over test sequences by lag.
        identities: the trials of one condition and size.

    Returns:
        Over the seeds; nan where it was not measured, or where no derivative is finite and above 0.
    """
    table = study.of("memory_over_inputs", identities)
    reaches = [_longest(one) for _, one in table.groupby(["identity", "seed"], observed=True)]
    return Spread.of(reaches)


def last_lag(study: Study, identities: Iterable[str]) -> float:
    """The last lag that was looked at, the horizon minus 1; nan where nothing was measured. Arguments as above."""
    return float(study.of("memory_over_inputs", identities)["lag"].max())


def _longest(memory: pd.DataFrame) -> float:
    within = memory["lag"][(memory["median"] > 0) & (memory["median"] >= SHARE * memory["median"].max())]
    return float(within.max())
