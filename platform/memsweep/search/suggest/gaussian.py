"""On which scale results look like a Gaussian process: as they are, or their logarithms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memsweep.config.schema.search import CHOICE, LOG_INT, LOG_UNIFORM, Domain, same

_FEWEST = 8
"""Results from which the question is asked; logarithms before."""

_BEYOND_DOUBT = 1e8
"""Largest by smallest result that no process of plain values stands."""


def logarithmic(space: Mapping[str, Domain], settings: Sequence[Mapping[str, Any]], values: Sequence[float]) -> bool:
    """Whether logarithms make a Gaussian process of the results more likely than the results themselves.

    Losses span decades, and a process of their plain values sees the large ones alone; of a smooth function that comes
    close to zero, logarithms make spikes. So both are fitted (Matérn 5/2 with a length per dimension and noise, as
    Snoek et al. 2012, arXiv 1206.2944), and the evidence decides (a warped Gaussian process, Snelson et al. 2003).

    Args:
        space: dotted path -> domain.
        settings: of each result; fields that did not apply are missing.
        values: finite. Where one is not positive there are no logarithms.
    """
    results = np.asarray(values, dtype=float)
    if not len(results) or results.min() <= 0.0 or results.max() == results.min():
        return False
    if len(results) < _FEWEST or results.max() / results.min() > _BEYOND_DOUBT:
        return True
    points = np.array([[x for path in sorted(space) for x in _place(space[path], one.get(path))] for one in settings])
    logs = np.log(results)
    return _evidence(points, logs) - float(logs.sum()) > _evidence(points, results)


def _evidence(points: np.ndarray, values: np.ndarray) -> float:
    """Log density of the values under a Gaussian process that was fitted to them."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    spread = float(values.std())
    scaled = (values - values.mean()) / spread
    dimensions = points.shape[1]
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * Matern(np.full(dimensions, 0.5), (1e-2, 1e2), nu=2.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length at its bound is an answer
        fitted = GaussianProcessRegressor(kernel + WhiteKernel(1e-2, (1e-6, 1.0))).fit(points, scaled)
    return float(fitted.log_marginal_likelihood_value_) - len(values) * math.log(spread)


def _place(domain: Domain, value: Any) -> list[float]:
    """A setting in the unit cube: a choice has a dimension for each of its values."""
    if domain.kind == CHOICE:
        return [float(value is not None and same(value, choice)) for choice in domain.values]
    if value is None or domain.high == domain.low:
        return [0.5]
    low, high, here = float(domain.low), float(domain.high), float(value)
    if domain.kind in (LOG_UNIFORM, LOG_INT):
        low, high, here = math.log(low), math.log(high), math.log(here)
    return [(here - low) / (high - low)]
