"""Exact radii of optimal fits: kernels, fits of sums of exponentials to them, and the radii under a push of all rates.

The radius is that of the drift: the distance of the moved model's memory function from its own, as a share of its size.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from optimal_fits import optimal_fit
from scipy.optimize import brentq

from memsweep.config.grid.time_scale import time_scale
from memsweep.stability.verdict.judgement import STEP_LIMIT, Verdict
from memsweep.stability.verdict.radius import THRESHOLDS, VALID_ERROR

HORIZONS = tuple(2**power for power in range(3, 11))
PARAMETERIZATIONS = ("direct", "exp", "softplus")


class Kernel(NamedTuple):
    """A memory.

    Attributes:
        at: the memory function.
        eigenvalues, factors: it is the sum of factor(t) eigenvalue^t; none where it is fitted, as a polynomial memory.
        chosen: the interval was made on it.
    """

    name: str
    at: Callable[[np.ndarray], np.ndarray]
    eigenvalues: tuple[float, ...] = ()
    factors: tuple[Callable[[np.ndarray], np.ndarray], ...] = ()
    chosen: bool = False


def _exponentials(name: str, *parts: tuple[float, float], chosen: bool = False) -> Kernel:
    """A sum of amplitude e^(-rate t)."""

    def at(t: np.ndarray) -> np.ndarray:
        return np.asarray(sum(amplitude * np.exp(-rate * t) for amplitude, rate in parts))

    factors = tuple(functools.partial(np.full_like, fill_value=amplitude) for amplitude, _ in parts)
    return Kernel(name, at, tuple(math.exp(-rate) for _, rate in parts), factors, chosen)


def _power(rate: float, exponent: float, *, chosen: bool = False) -> Kernel:
    return Kernel(f"(1+{rate:g}t)^-{exponent:g}", lambda t: (1.0 + rate * t) ** -exponent, chosen=chosen)


_SLOW = (math.exp(-0.1),)
KERNELS = (
    _exponentials("e^-t", (1.0, 1.0), chosen=True),
    _exponentials("e^-.1t", (1.0, 0.1), chosen=True),
    *(_power(*each, chosen=True) for each in ((0.1, 1.1), (0.4, 1.1), (0.1, 1.5), (0.2, 2.0))),
    _exponentials("e^-.3t", (1.0, 0.3)),
    _exponentials("e^-.5t + .2e^-.03t", (1.0, 0.5), (0.2, 0.03)),
    _exponentials("e^-t + .5e^-.1t", (1.0, 1.0), (0.5, 0.1)),
    _exponentials("e^-.05t - e^-.5t", (1.0, 0.05), (-1.0, 0.5)),
    Kernel("(t+1)e^-.1t", lambda t: (t + 1.0) * np.exp(-0.1 * t), _SLOW, (lambda t: t + 1.0,)),
    Kernel("e^-.1t cos .5t", lambda t: np.exp(-0.1 * t) * np.cos(0.5 * t), _SLOW, (lambda t: np.cos(0.5 * t),)),
    Kernel("(.2+.3t)(1+.3t)^-2.5", lambda t: (0.2 + 0.3 * t) * (1.0 + 0.3 * t) ** -2.5),
    *(_power(*each) for each in ((0.2, 1.3), (0.05, 1.1), (1.0, 1.5))),
)
"""The interval was made on the first six (``chosen``) and attacked on the others."""
STEEP = _power(0.4, 3.0)
PUBLISHED = (_exponentials("0.9^t", (1.0, -math.log(0.9))), _power(1.0, 1.1))
"""Of Figure 1 of the curse of memory (arXiv 2305.19190)."""
MODES = (3, 4, 6, 8)
"""Of fitted models; the most are only there to say whether the next fewer suffice."""


class Fit(NamedTuple):
    """A sum of factor(t) eigenvalue^t, and its squared error as a share of the kernel's size."""

    eigenvalues: np.ndarray
    factors: tuple[Callable[[np.ndarray], np.ndarray], ...]
    error: float


def lags_of(horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Lags and weights of sums over all lags of a horizon: all of them, and of long horizons some of the late ones."""
    if horizon <= 256:
        return np.arange(float(horizon)), np.ones(horizon)
    late = np.unique(np.round(np.geomspace(128, horizon - 1, 160)))
    gaps = np.diff(late)
    weights = (np.append(gaps, 1.0) + np.append(1.0, gaps)) / 2.0
    return np.append(np.arange(128.0), late), np.append(np.ones(128), weights)


@functools.cache
def fit(kernel: Kernel, horizon: int, modes: int) -> Fit:
    """The best sum of so many exponentials; the kernel's own one where it has one (modes 0)."""
    if not modes:
        return Fit(np.array(kernel.eigenvalues), kernel.factors, 0.0)
    lags, weights = lags_of(horizon)
    eigenvalues, amplitudes = optimal_fit(kernel.at(lags), weights, modes, lags=lags, evaluations=200)
    found = (eigenvalues ** lags[:, None]) @ amplitudes
    error = (weights * (found - kernel.at(lags)) ** 2).sum() / (weights * kernel.at(lags) ** 2).sum()
    return Fit(eigenvalues, tuple(functools.partial(np.full_like, fill_value=c) for c in amplitudes), float(error))


def moved(eigenvalues: np.ndarray, parameterization: str, push: float) -> np.ndarray:
    """Eigenvalues when all raw weights move by a push, towards slower modes where it is positive."""
    if parameterization == "direct":
        return eigenvalues + push
    rates = -np.log(eigenvalues)
    if parameterization == "exp":
        return np.exp(-rates * np.exp(-push))
    return np.exp(-np.logaddexp(0.0, np.log(np.expm1(rates)) - push))


@functools.cache
def radii(kernel: Kernel, modes: int, parameterization: str, horizon: int) -> np.ndarray | None:
    """At every threshold; None where the model does not approximate the memory, or has more numbers than it."""
    model = fit(kernel, horizon, modes)
    if model.error > VALID_ERROR or 2 * modes >= horizon:
        return None
    lags, weights = lags_of(horizon)
    factors = np.stack([factor(lags) for factor in model.factors], 1)

    def output(eigenvalues: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return (factors * eigenvalues[None, :] ** lags[:, None]).sum(1)

    own = output(model.eigenvalues)

    def log_drift(log_radius: float) -> float:
        pushes = [output(moved(model.eigenvalues, parameterization, sign * math.exp(log_radius))) for sign in (1, -1)]
        with np.errstate(over="ignore", invalid="ignore"):
            drifts = [float((weights * (each - own) ** 2).sum() / (weights * own**2).sum()) for each in pushes]
        return math.log(min(max(each if math.isfinite(each) else 1e30 for each in drifts), 1e30))

    return np.exp([brentq(lambda r, tau=tau: log_drift(r) - math.log(tau), -14.0, 3.0) for tau in THRESHOLDS])


class Window(NamedTuple):
    """Exact radii at successive horizons.

    Attributes:
        truth: stable, or unstable (polynomial memory under direct), by theory.
        log_radii: ``[horizons, thresholds]``.
        step: ``[thresholds]``, how the log radius changes at the longest horizon with more modes; nan where they are
            more numbers than the memory has.
        scale: of the memory.
    """

    kernel: Kernel
    parameterization: str
    truth: Verdict
    horizons: np.ndarray
    log_radii: np.ndarray
    step: np.ndarray
    scale: float

    @property
    def suffices(self) -> bool:
        """Whether more modes have the same radius: a few cannot follow a memory that decays like a power for ever."""
        return bool((self.step >= STEP_LIMIT).all())

    @property
    def limit(self) -> np.ndarray:
        """The slope that an interval has to hold: 0, or that over the last doubling of a radius without a limit."""
        if self.truth is Verdict.STABLE:
            return np.zeros(len(THRESHOLDS))
        last: np.ndarray = np.diff(self.log_radii[-2:], axis=0)[0] / np.log(2.0)
        return last


def scale_of(kernel: Kernel) -> float:
    """The time scale of the memory, in steps."""
    found = time_scale(kernel.at(np.arange(float(HORIZONS[-1]))))
    assert found is not None
    return found


def windows(count: int, kernels: tuple[Kernel, ...] = KERNELS, scales: float = 2.0) -> Iterator[Window]:
    """All windows of so many horizons, each of at least so many time scales, in which the fits are valid."""
    for kernel in kernels:
        scale = scale_of(kernel)
        modes = ((0, 0),) if kernel.eigenvalues else tuple(itertools.pairwise(MODES))
        for parameterization in PARAMETERIZATIONS:
            for mode, wider in modes:
                for start in range(len(HORIZONS) - count + 1):
                    horizons = HORIZONS[start : start + count]
                    found = [radii(kernel, mode, parameterization, horizon) for horizon in horizons]
                    if horizons[0] < scales * scale or any(each is None for each in found):
                        continue
                    logs, beside = np.log(np.stack(found)), radii(kernel, wider, parameterization, horizons[-1])
                    step = np.full(len(THRESHOLDS), math.nan) if beside is None else np.log(beside) - logs[-1]
                    unstable = not kernel.eigenvalues and parameterization == "direct"
                    truth = Verdict.UNSTABLE if unstable else Verdict.STABLE
                    yield Window(kernel, parameterization, truth, np.array(horizons, float), logs, step, scale)
