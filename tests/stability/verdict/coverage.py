"""Coverage of the interval of a limit slope, on exact radii with noise: the tables of docs/verdict.md.

``python tests/stability/verdict/coverage.py`` prints them: the interval on the kernels that it was made on and on those
that attack it, with the worst kernel; the width check; slopes that are not normal.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from exact_fits import KERNELS, PUBLISHED, STEEP, Kernel, Window, fit, radii, windows

from memsweep.stability.verdict.judgement import SLOPE_LIMIT, Verdict
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.stability.verdict.trend import SKEW, Slope, limit_slope, mean_interval, rounded, slope_weights

SIGMAS = (0.0003, 0.003, 0.01, 0.03, 0.05)
COUNTS = (4, 5, 6)
SEEDS = 5
SHARES = 6
"""Of the error of *unstable*: three thresholds, two axes."""


class Found(NamedTuple):
    """The outcome of some windows.

    Attributes:
        coverage: truth -> share of intervals that hold the limit.
        worst: truth -> the least share of a kernel, and its name.
        called: truth -> share of windows whose intervals say the truth, at all thresholds (stable), or at one
            (unstable, of windows whose width suffices).
        wrong: share of windows whose intervals say the opposite.
    """

    coverage: dict[Verdict, float]
    worst: dict[Verdict, tuple[float, str]]
    called: dict[Verdict, float]
    wrong: float


def slopes(window: Window, sigma: float, rng: np.random.Generator) -> list[Slope]:
    """At every threshold, with noise of its own on each log radius."""
    noisy = window.log_radii + sigma * rng.standard_normal((SEEDS, *window.log_radii.shape))
    parts = (noisy[..., place] for place in range(len(THRESHOLDS)))
    return [limit_slope(window.horizons, part, part, range(SEEDS), SHARES) for part in parts]


def interval(count: int, sigma: float, kernels: tuple[Kernel, ...] = KERNELS, repeats: int = 10) -> Found:
    """The interval over all windows of so many horizons."""
    rng = np.random.default_rng(7)
    held, called = defaultdict[tuple[Verdict, str], list[bool]](list), defaultdict[Verdict, list[bool]](list)
    wrong = []
    for window in windows(count, kernels):
        for _ in range(repeats):
            found = slopes(window, sigma, rng)
            for slope, limit in zip(found, window.limit, strict=True):
                held[window.truth, window.kernel.name].append(slope.low <= limit <= slope.high)
            stable = all(slope.least > SLOPE_LIMIT for slope in found)
            unstable = any(slope.most < SLOPE_LIMIT for slope in found)
            if window.truth is Verdict.STABLE:
                called[window.truth].append(stable)
            elif window.suffices:
                called[window.truth].append(unstable)
            wrong.append(window.truth is Verdict.STABLE and unstable)
    truths = tuple(called)
    by_kernel = {truth: {name: np.mean(each) for (t, name), each in held.items() if t is truth} for truth in truths}
    return Found(
        {
            truth: float(np.mean([*itertools.chain(*(v for (t, _), v in held.items() if t is truth))]))
            for truth in truths
        },
        {truth: min((float(share), name) for name, share in by_kernel[truth].items()) for truth in truths},
        {truth: float(np.mean(called[truth])) for truth in truths},
        float(np.mean(wrong)),
    )


def disjoint(sigma: float, repeats: int = 2) -> dict[str, float]:
    """Of pairs of 95 % intervals of one limit, over four horizons and over more, those that have nothing in common.

    By kernel; kernels without one are left out.
    """
    rng, apart = np.random.default_rng(7), defaultdict[str, list[bool]](list)
    short = {_key(window): window for window in _stable(4)}
    for window in itertools.chain(*map(_stable, COUNTS[1:])):
        first = short[_key(window)]
        for _ in range(repeats):
            pairs = zip(slopes(first, sigma, rng), slopes(window, sigma, rng), strict=True)
            apart[window.kernel.name] += [a.high < b.low or b.high < a.low for a, b in pairs]
    return {name: float(np.mean(each)) for name, each in apart.items() if any(each)}


def _stable(count: int) -> Iterator[Window]:
    return (window for window in windows(count) if window.truth is Verdict.STABLE)


def _key(window: Window) -> tuple[str, str, tuple[float, ...]]:
    """Of the model and its first horizon: windows with the same one begin with the same radii."""
    return window.kernel.name, window.parameterization, tuple(window.log_radii[0])


def interval_lines() -> Iterator[str]:
    """Rows: horizons, noise, coverage with the worst kernel, and what is called by its name."""
    for count in COUNTS:
        for sigma in SIGMAS:
            found = interval(count, sigma)
            cells = []
            for truth in (Verdict.STABLE, Verdict.UNSTABLE):
                worst, name = found.worst[truth]
                cells.append(f"{found.coverage[truth]:.3f} ({worst:.2f}, {name}) | {found.called[truth]:.3f}")
            yield f"| {count} | {sigma:g} | {' | '.join(cells)} | {found.wrong:.3f} |"


def width_check() -> tuple[int, int, int, float]:
    """Of unstable windows: how many have slopes above the limit, how many of these pass the check, and of how many.

    The radius falls with the width there, and a few modes cannot follow the memory. Last is the least change of a log
    radius of a stable memory.
    """
    known = [window for window in windows(4, (*KERNELS, STEEP)) if np.isfinite(window.step).all()]
    unstable = [window for window in known if window.truth is Verdict.UNSTABLE]
    flat = [w for w in unstable if (w.log_radii.T @ slope_weights(w.horizons, 1.0) > SLOPE_LIMIT).all()]
    least = min(float(window.step.min()) for window in known if window.truth is Verdict.STABLE)
    return len(flat), sum(window.suffices for window in flat), len(unstable), least


def slopes_by_width() -> Iterator[str]:
    """Rows: the slope of (1+0.4t)^-3 under direct over T = 64 to 512, by modes and threshold."""
    horizons = (64, 128, 256, 512)
    for modes in (3, 4, 6, 8):
        logs = np.log(np.stack([radii(STEEP, modes, "direct", horizon) for horizon in horizons]))
        found = slope_weights(np.array(horizons, float), 1.0) @ logs
        yield f"| {modes} | {' | '.join(map(rounded, found))} |"


def radii_by_modes(horizon: int = 1024) -> Iterator[str]:
    """Rows: radii of exact fits of the two published memories, by modes; 1 and 10 % under direct and under exp."""
    exponential, polynomial = PUBLISHED
    for kernel, modes in ((exponential, 0), *((polynomial, count) for count in (3, 4, 6, 8, 14))):
        found = [radii(kernel, modes, parameterization, horizon) for parameterization in ("direct", "exp")]
        cells = (f"{value:.2g}" for each in found for value in (each[0], each[-1]))
        yield f"| {kernel.name} | {modes or 1} | {fit(kernel, horizon, modes).error:.0e} | {' | '.join(cells)} |"


DISTRIBUTIONS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "Student t, 3 degrees": lambda rng, shape: rng.standard_t(3, shape),
    "gamma(4)": lambda rng, shape: rng.gamma(4.0, 1.0, shape) - 4.0,
    "exponential": lambda rng, shape: rng.exponential(1.0, shape) - 1.0,
}


def skewed(name: str, seeds: int, repeats: int = 4000) -> float:
    """How often the 95 % interval of the mean of so many slopes holds it."""
    drawn = DISTRIBUTIONS[name](np.random.default_rng(7), (repeats, seeds))
    ends = [mean_interval(values, values, SKEW)[1:] for values in drawn]
    return float(np.mean([low <= 0.0 <= high for low, high in ends]))


def skewed_lines() -> Iterator[str]:
    """Rows: distribution, and the coverage at 5, 10, 20 and 40 seeds."""
    for name in DISTRIBUTIONS:
        yield f"| {name} | {' | '.join(f'{skewed(name, seeds):.3f}' for seeds in (5, 10, 20, 40))} |"


if __name__ == "__main__":
    flat, passed, count, least = width_check()
    text = (
        *interval_lines(),
        "",
        *(f"disjoint at {sigma:g}: {disjoint(sigma)}" for sigma in SIGMAS),
        "",
        f"{flat} of {count} windows have slopes above the limit, {passed} of them pass the width check",
        f"least step of a stable memory: {least:.3f}",
        *slopes_by_width(),
        "",
        *skewed_lines(),
        "",
        *radii_by_modes(),
    )
    sys.stdout.write("\n".join([*text, ""]))
