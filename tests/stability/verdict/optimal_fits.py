"""Exact optimal fits of sums of exponentials to a kernel: approximants without any training noise."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares


def optimal_fit(
    kernel: np.ndarray, importance: np.ndarray, modes: int, *, lags: np.ndarray | None = None, evaluations: int = 4000
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and amplitudes that minimize sum_s importance_s (kernel_s - sum_i a_i eigenvalue_i^s)^2.

    The amplitudes are the linear least squares solution at given eigenvalues (variable projection), so only the decay
    rates are searched, on a log scale, from several spreads.

    Args:
        kernel: at the lags.
        importance: of each lag.
        modes: how many exponentials.
        lags: 0, 1, ... where they are not given.
        evaluations: at most, from each spread.
    """
    lags, root = np.arange(len(kernel)) if lags is None else lags, np.sqrt(importance)

    def amplitudes(log_rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        powers = (1.0 - np.exp(log_rates))[None, :] ** lags[:, None] * root[:, None]
        found, *_ = np.linalg.lstsq(powers, kernel * root, rcond=1e-13)
        return found, powers @ found - kernel * root

    best = None
    for slowest in (0.3, 1.0, 3.0):
        start = np.log(np.geomspace(slowest / (lags[-1] + 1), 0.5, modes) if modes > 1 else np.array([0.5]))
        found = least_squares(
            lambda log_rates: amplitudes(log_rates)[1],
            start,
            bounds=(np.log(1e-6), np.log(0.999)),
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=evaluations,
        )
        best = found if best is None or found.cost < best.cost else best
    assert best is not None
    return 1.0 - np.exp(best.x), amplitudes(best.x)[0]
