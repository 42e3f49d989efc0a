"""Error rates and power of the whole rule: the simulation of docs/verdict.md.

A study of noisy radii is judged by the rule's own functions. While it is inconclusive, it is extended, up to 40 seeds
and four doublings of the longest horizon: as the printed advice says, or at every look that there is. Radii at the
three thresholds have noise of their own and noise in common. Both axes, the growth of the error, the width check and
the choice of the valid seeds are in it.

``python tests/stability/verdict/error_rates.py [studies]`` prints the table.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from memsweep.stability.verdict.cells import Radii
from memsweep.stability.verdict.judgement import DEFAULT, SLOPE_LIMIT, Verdict
from memsweep.stability.verdict.lacks import advice, lacks
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.stability.verdict.rule import weigh
from memsweep.stability.verdict.weighed import Evidence

WIDTHS, LONG_WIDTHS = (2, 3, 4, 6, 8), (2, 4, 8, 16)
FIRST, DOUBLINGS, SEEDS = 50, 4, 40
STUDIES = 400
LOOKS = (5, 6, 8, 10, 13, 16, 20, 25, 31, 40)
SHARED = 0.8
"""Part of the noise's variance that the thresholds have in common."""
LEFT_OUT = -2.6
"""A replica whose common noise is below this does not approximate its target: 1 of 200, those of small radii."""

Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "heavy tails": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3.0),
    "gamma(4)": lambda rng, shape: (rng.gamma(4.0, 1.0, shape) - 4.0) / 2.0,
    "-gamma(4)": lambda rng, shape: (4.0 - rng.gamma(4.0, 1.0, shape)) / 2.0,
    "exponential": lambda rng, shape: rng.exponential(1.0, shape) - 1.0,
    "-exponential": lambda rng, shape: 1.0 - rng.exponential(1.0, shape),
}
"""Standard deviation 1, mean 0."""


class Truth(NamedTuple):
    """How the radii of a condition change.

    Attributes:
        horizon: limit slope in the horizon at every threshold.
        width: slope in the width.
        widths: of the study.
        growth: slope of the change at a small radius with width, beside that which follows from the radii.
        fades: by how much log radii lie higher at the smallest width; it halves when the width doubles.
    """

    name: str
    horizon: tuple[float, float, float] = (0.0, 0.0, 0.0)
    width: float = 0.0
    widths: tuple[int, ...] = WIDTHS
    growth: float = 0.0
    fades: float = 0.0


class Case(NamedTuple):
    """A row of the table.

    Attributes:
        noise: one of NOISES.
        sigma: its standard deviation: of each log radius, or, with ``tilt``, of a seed's own slope.
        tilt: the noise is a slope of the seed, and the radii of a seed share it.
        horizons, seeds: at the first look.
        every: looks at every number of LOOKS, where the advice may say less.
        widths: at the first look; empty: all of the truth.
    """

    truth: Truth
    noise: str
    sigma: float
    tilt: bool = False
    horizons: int = 4
    seeds: int = 5
    every: bool = False
    widths: tuple[int, ...] = ()


class Shares(NamedTuple):
    """Of verdicts at the first look and at the last, and how many seeds and horizons the last one had on average."""

    first: dict[Verdict, float]
    last: dict[Verdict, float]
    seeds: float
    horizons: float


class Study:
    """Noisy radii of one condition, of which the first seeds and horizons are looked at.

    Attributes:
        horizons: all of them.
        radii: ``[seeds, widths, horizons, thresholds]``.
        valid: ``[seeds, widths, horizons]``.
    """

    def __init__(self, case: Case, rng: np.random.Generator, seeds: int = SEEDS) -> None:
        self._truth, widths = case.truth, np.array(case.truth.widths, float)
        self.horizons = tuple(FIRST * 2**power for power in range(case.horizons + DOUBLINGS))
        x = np.log(np.array(self.horizons, float) / FIRST)
        shape = (seeds, len(widths), len(x))
        draw = NOISES[case.noise]
        if case.tilt:
            seed = draw(rng, (seeds, 1, 1))
            common = case.sigma * (seed * x + 0.02 * rng.standard_normal(shape))
            own, left_out = np.zeros((*shape, 1)), np.zeros(shape, bool)
        else:
            noise = draw(rng, shape)
            common, left_out = case.sigma * np.sqrt(SHARED) * noise, noise < LEFT_OUT
            own = case.sigma * np.sqrt(1.0 - SHARED) * draw(rng, (*shape, len(THRESHOLDS)))
        by_width = case.truth.width * np.log(widths / 2.0) + case.truth.fades * widths[0] / widths
        trend = x[:, None] * np.array(case.truth.horizon) + by_width[:, None, None]
        self.radii = np.array(THRESHOLDS) ** 0.5 * np.exp(trend + common[..., None] + own)
        self.valid = ~left_out

    def weigh(self, seeds: int, horizons: int, widths: Sequence[int] = ()) -> Evidence:
        """The first so many seeds and horizons, at the widths or at all of them, judged by the rule."""
        asked = tuple(widths) or self._truth.widths
        places = [self._truth.widths.index(width) for width in asked]
        part = self.radii[:seeds, places, :horizons]

        def change_at(radius: float) -> np.ndarray:
            growth = np.array(asked, float) ** self._truth.growth
            return THRESHOLDS[0] * (radius / part[:, :, -1, 0]) ** 2 * growth

        valid = self.valid[:seeds, places, :horizons]
        return weigh(
            Radii(
                seeds=tuple(range(seeds)),
                widths=asked,
                horizons=self.horizons[:horizons],
                thresholds=THRESHOLDS,
                low=part,
                high=part,
                valid=valid,
                fit=np.zeros(valid.shape),
                change_at=change_at,
            )
        )


def followed(case: Case, rng: np.random.Generator) -> tuple[Verdict, Verdict, int, int]:
    """The verdict at the first look, the one after all extensions, and its seeds and horizons."""
    study, seeds, horizons = Study(case, rng), case.seeds, case.horizons
    most = case.horizons + DOUBLINGS
    evidence = study.weigh(seeds, horizons)
    first, longer = evidence.verdict, True
    while evidence.verdict is Verdict.INCONCLUSIVE:
        paths = dict(line.split("=") for line in advice(lacks(evidence), evidence))
        more = [count for count in LOOKS if count > seeds]
        if case.every:  # horizons and seeds in turn, whatever is advised
            if longer and horizons < most:
                horizons += 1
            elif more:
                seeds = more[0]
            elif horizons == most:
                break
            longer = not longer
        elif "task.horizon" in paths and horizons < most:
            horizons = min(most, horizons + paths["task.horizon"].count(",") + 1)
        elif more:  # as many as advised; where none are, as many again as there are
            advised = int(paths.get("training.seeds", 2 * seeds))
            seeds = min(max(advised, seeds + 1), SEEDS)
        else:
            break
        evidence = study.weigh(seeds, horizons)
    return first, evidence.verdict, seeds, horizons


def rates(case: Case, studies: int) -> Shares:
    """Shares of verdicts over so many studies."""
    rng = np.random.default_rng(7)
    found = [followed(case, rng) for _ in range(studies)]
    first, last = (Counter(each[place] for each in found) for place in (0, 1))
    share = [{verdict: count[verdict] / studies for verdict in Verdict} for count in (first, last)]
    return Shares(*share, *(float(np.mean([each[place] for each in found])) for place in (2, 3)))


FLAT = Truth("keeps its size")
AT_LIMIT = Truth("T^-0.2 and m^-0.2, all thresholds", (SLOPE_LIMIT,) * 3, SLOPE_LIMIT, LONG_WIDTHS)
ONE_AT_LIMIT = Truth("T^-0.2 at one threshold", (SLOPE_LIMIT, 0.0, 0.0))
GROWING = Truth(f"error grows as m^{DEFAULT.growth_limit:g}", growth=DEFAULT.growth_limit)
SLOW = Truth("T^-0.1", (-0.1,) * 3)
SHRINKING = Truth("T^-0.6", (-0.6,) * 3)

LIMITS = (
    *(Case(AT_LIMIT, "normal", 0.03, every=every) for every in (False, True)),
    Case(AT_LIMIT, "heavy tails", 0.03, every=True),
    *(Case(AT_LIMIT, noise, 0.1, tilt=True, every=True) for noise in ("gamma(4)", "exponential")),
    *(Case(ONE_AT_LIMIT, "normal", 0.03, every=every) for every in (False, True)),
    Case(ONE_AT_LIMIT, "heavy tails", 0.03, every=True),
    *(Case(ONE_AT_LIMIT, noise, 0.1, tilt=True, every=True) for noise in ("-gamma(4)", "-exponential")),
)
"""The first five are stable by a hair: none may be called unstable. The others are unstable by a hair."""
POWERS = (
    *(Case(FLAT, "normal", sigma, horizons=horizons) for horizons in (4, 5) for sigma in (0.01, 0.03, 0.05)),
    Case(FLAT, "normal", 0.05, horizons=5, seeds=10),
    Case(SLOW, "normal", 0.03, horizons=5),
    *(Case(SHRINKING, "normal", sigma, horizons=horizons) for horizons in (4, 5) for sigma in (0.01, 0.03, 0.05)),
    Case(GROWING, "normal", 0.01, horizons=5),
)


def row(case: Case, shares: Shares) -> str:
    """A row of the table."""
    noise = f"{case.noise}, {'slope' if case.tilt else 'radius'} {case.sigma:g}"
    first, last = (
        " / ".join(f"{each[verdict]:.3f}" for verdict in (Verdict.STABLE, Verdict.INCONCLUSIVE, Verdict.UNSTABLE))
        for each in (shares.first, shares.last)
    )
    size, ended = f"{case.horizons} × {case.seeds}", f"{shares.horizons:.1f} × {shares.seeds:.0f}"
    looks = "every look" if case.every else "as advised"
    return f"| {case.truth.name} | {noise} | {size} | {first} | {looks} | {last} | {ended} |"


def lines(studies: int = STUDIES) -> Iterator[str]:
    """The rows of docs/verdict.md's table."""
    for case in (*LIMITS, *POWERS):
        yield row(case, rates(case, studies))


if __name__ == "__main__":
    for line in lines(*map(int, sys.argv[1:])):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
