"""Error rates of the verdict on exact radii with noise: the simulation of docs/verdict.md.

``python tests/stability/verdict/error_rates.py`` prints its tables.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from optimal_fits import optimal_fit
from scipy.optimize import brentq

from memsweep.stability.verdict.judgement import SLOPE_LIMIT, SMALLEST_RANGE, Trends, Verdict
from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR
from memsweep.stability.verdict.rule import decide, time_scale
from memsweep.stability.verdict.trend import Slope, slope_weights, trend

HORIZONS = tuple(2**power for power in range(3, 11))
WINDOW = 4
"""Horizons of a study."""
FLAT = Slope(0.0, 0.0, 0.0)


class Kernel(NamedTuple):
    """A memory: e^(-rate t), or (1 + rate t)^-exponent."""

    rate: float
    exponent: float | None = None

    def at(self, lags: np.ndarray) -> np.ndarray:
        """The memory function."""
        return np.exp(-self.rate * lags) if self.exponent is None else (1.0 + self.rate * lags) ** -self.exponent


KERNELS = (Kernel(1.0), Kernel(0.1), Kernel(0.1, 1.1), Kernel(0.4, 1.1), Kernel(0.1, 1.5), Kernel(0.2, 2.0))
PARAMETERIZATIONS = ("direct", "exp", "softplus")


class Window(NamedTuple):
    """Exact radii at WINDOW successive horizons.

    Attributes:
        truth: stable, or unstable (polynomial memory under direct), by theory.
        log_radii: ``[thresholds, WINDOW]``.
        scales: the longest horizon in time scales of the memory.
    """

    truth: Verdict
    horizons: np.ndarray
    log_radii: np.ndarray
    scales: float


def slower(eigenvalues: np.ndarray, parameterization: str, radius: float) -> np.ndarray:
    """Eigenvalues when all raw weights move by the radius, towards slower modes."""
    if parameterization == "direct":
        return eigenvalues + radius
    rates = -np.log(eigenvalues)
    if parameterization == "exp":
        return np.exp(-rates * np.exp(-radius))
    return np.exp(-np.logaddexp(0.0, np.log(np.expm1(rates)) - radius))


def exact_radii(kernel: Kernel, parameterization: str, horizon: int) -> np.ndarray | None:
    """At every threshold, for the best sum of exponentials; None where it does not approximate the memory."""
    lags = np.arange(horizon)
    target = kernel.at(lags)
    eigenvalues, amplitudes = fit(kernel, horizon)

    def log_error(log_radius: float) -> float:
        moved = slower(eigenvalues, parameterization, np.exp(log_radius))
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.square(target - moved[None, :] ** lags[:, None] @ amplitudes).sum() / np.square(target).sum()
        return float(np.log(min(error, 1e30))) if np.isfinite(error) else 70.0

    if log_error(-40.0) > np.log(VALID_ERROR):
        return None
    return np.exp([brentq(lambda r, tau=tau: log_error(r) - np.log(tau), -14.0, 3.0) for tau in THRESHOLDS])


@functools.cache
def fit(kernel: Kernel, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and amplitudes: one mode for an exponential memory, four for a polynomial one."""
    modes = 1 if kernel.exponent is None else 4
    return optimal_fit(kernel.at(np.arange(horizon)), np.ones(horizon), modes)


@functools.cache
def windows() -> tuple[Window, ...]:
    """All windows in which the fits are valid."""
    found = []
    for kernel in KERNELS:
        scale = time_scale(kernel.at(np.arange(HORIZONS[-1])))
        for parameterization in PARAMETERIZATIONS:
            radii = [exact_radii(kernel, parameterization, horizon) for horizon in HORIZONS]
            unstable = kernel.exponent is not None and parameterization == "direct"
            for start in range(len(HORIZONS) - WINDOW + 1):
                part, horizons = radii[start : start + WINDOW], np.array(HORIZONS[start : start + WINDOW], float)
                if not any(radius is None for radius in part):
                    truth = Verdict.UNSTABLE if unstable else Verdict.STABLE
                    found.append(Window(truth, horizons, np.log(np.stack(part, 1)), horizons[-1] / scale))
    return tuple(found)


def wrong_slopes(transient: bool, scales: float) -> dict[Verdict, tuple[int, int]]:
    """Truth -> how many windows have their exact slope on the wrong side of the limit, and how many there are.

    Args:
        transient: the limit slope, or the slope over the range.
        scales: shortest longest horizon in time scales.
    """
    counts = {}
    for truth in (Verdict.STABLE, Verdict.UNSTABLE):
        slopes = [
            float(slope_weights(window.horizons, transient) @ radii)
            for window in windows()
            if window.truth is truth and window.scales >= scales
            for radii in window.log_radii[[0, -1]]
        ]
        counts[truth] = (sum((slope < SLOPE_LIMIT) != (truth is Verdict.UNSTABLE) for slope in slopes), len(slopes))
    return counts


class Rates(NamedTuple):
    """Of one kind of noise: coverage of the limit slope's interval, and shares of verdicts by truth."""

    coverage: float
    stable: dict[Verdict, float]
    unstable: dict[Verdict, float]


NOISES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "heavy tails": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3.0),
    "a tilt by seed": lambda rng, shape: rng.standard_normal((shape[0], 1)) * np.linspace(-1.0, 1.0, shape[1]),
    "shared by seeds": lambda rng, shape: (
        np.tile(rng.standard_normal(shape[1]), (shape[0], 1)) + 0.3 * rng.standard_normal(shape)
    ),
}
"""Noise of log radii ``[seeds, horizons]``, standard deviation about 1."""


def rates(noise: str, seeds: int, sigma: float, repeats: int) -> Rates:
    """Simulated error rates over all windows that are long enough for a verdict.

    Args:
        noise: one of NOISES; the same at all thresholds.
        seeds, sigma: number of seeds; standard deviation of one log radius.
        repeats: draws for each window.
    """
    rng = np.random.default_rng(7)
    covered, counts = [], {truth: dict.fromkeys(Verdict, 0) for truth in (Verdict.STABLE, Verdict.UNSTABLE)}
    for window in windows():
        if window.scales < SMALLEST_RANGE:
            continue
        truth = slope_weights(window.horizons, transient=True) @ window.log_radii.T
        for _ in range(repeats):
            shifts = sigma * NOISES[noise](rng, (seeds, WINDOW))
            radii = np.exp(window.log_radii[:, None, :] + shifts)
            trends = [trend(window.horizons, radius, radius) for radius in radii]
            covered += [each.limit.low <= value <= each.limit.high for each, value in zip(trends, truth, strict=True)]
            flat = trend(window.horizons, np.ones_like(radii[0]), np.ones_like(radii[0]))
            by_threshold = {tau: Trends(each, flat) for tau, each in zip(THRESHOLDS, trends, strict=True)}
            counts[window.truth][decide(by_threshold, FLAT, limited=False)] += 1
    shares = {
        truth: {verdict: count / sum(each.values()) for verdict, count in each.items()}
        for truth, each in counts.items()
    }
    return Rates(float(np.mean(covered)), shares[Verdict.STABLE], shares[Verdict.UNSTABLE])


CASES = (
    *(("normal", 5, sigma) for sigma in (0.01, 0.03, 0.05)),
    *(("normal", 10, sigma) for sigma in (0.03, 0.05)),
    ("heavy tails", 5, 0.03),
    ("heavy tails", 10, 0.05),
    ("a tilt by seed", 5, 0.03),
    ("shared by seeds", 5, 0.03),
)


def lines(repeats: int = 20) -> Iterator[str]:
    """The rows of docs/verdict.md's table."""
    for noise, seeds, sigma in CASES:
        found = rates(noise, seeds, sigma, repeats)
        stable, unstable = (
            " / ".join(f"{share[verdict]:.2f}" for verdict in order)
            for share, order in (
                (found.stable, (Verdict.STABLE, Verdict.INCONCLUSIVE, Verdict.UNSTABLE)),
                (found.unstable, (Verdict.UNSTABLE, Verdict.INCONCLUSIVE, Verdict.STABLE)),
            )
        )
        yield f"| {noise} | {seeds} | {sigma} | {found.coverage:.3f} | {stable} | {unstable} |"


def table_of_slopes() -> Iterator[str]:
    """The rows of docs/verdict.md's comparison of estimates."""
    for name, transient in (("one slope over the range", False), ("limit slope", True)):
        for scales in (0.0, float(SMALLEST_RANGE)):
            wrong = wrong_slopes(transient, scales)
            stable, unstable = (f"{n} of {count}" for n, count in wrong.values())
            yield f"| {name} | {f'{scales:g}' if scales else 'any'} | {stable} | {unstable} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table_of_slopes(), "", *lines(), ""]))
