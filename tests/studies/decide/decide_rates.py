"""Error rates and power of rounds that are chosen until a verdict: the simulation of docs/evidence/decide.md.

The studies are those of docs/verdict.md (``error_rates``). While one is inconclusive, the next round is chosen as
``memsweep decide`` chooses it, up to its most rounds; a cell costs its width times its horizon times its seeds.

``PYTHONPATH=tests/stability/verdict python tests/studies/decide/decide_rates.py [studies]`` prints the table.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import error_rates
import numpy as np
from error_rates import Case, Study, Truth

from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.reasons import Evidence
from memsweep.studies.decide.choice import ROUNDS, choose
from memsweep.studies.decide.options import SEEDS, Option
from memsweep.studies.decide.question import HORIZON, WIDTH, Design, Question
from memsweep.studies.decide.reading import regainable

SKEWED = (
    Case(error_rates.AT_LIMIT, "exponential", 0.1, tilt=True),
    Case(error_rates.ONE_AT_LIMIT, "-exponential", 0.1, tilt=True),
    *(
        Case(truth, noise, 0.03, horizons=5)
        for truth in (error_rates.FLAT, error_rates.SHRINKING)
        for noise in ("exponential", "-exponential")
    ),
)
"""Seeds whose noise has a long tail on one side: of their slopes at the limit, of their radii elsewhere."""
FIRST_WIDTHS, WIDE = (4, 6, 8, 12), (4, 6, 8, 12, 20, 24, 32, 48)
SHORT = (
    Case(Truth("m^-0.45", width=-0.45, widths=WIDE), "normal", 0.05, widths=FIRST_WIDTHS),
    Case(Truth("m^-0.45", width=-0.45, widths=WIDE), "normal", 0.15, widths=FIRST_WIDTHS),
    Case(Truth("m^-0.2", width=error_rates.SLOPE_LIMIT, widths=WIDE), "normal", 0.05, widths=FIRST_WIDTHS),
    Case(Truth("falls with m, and levels off", fades=1.0, widths=WIDE), "normal", 0.05, widths=FIRST_WIDTHS),
)
"""Widths that span too little for *unstable*, and may grow."""
CASES = (*(case for case in (*error_rates.LIMITS, *error_rates.POWERS) if not case.every), *SKEWED, *SHORT)
STUDIES = 200
SHOWN = (0.25, 0.5, 0.9)
"""Quantiles of the seeds and of the cost."""


class Ended(NamedTuple):
    """How a simulated study ended: its verdict, its rounds, its seeds, its horizons, and its cost over the first's."""

    verdict: Verdict
    rounds: int
    seeds: int
    horizons: int
    cost: float


def question_of(
    evidence: Evidence, design: Design, valid: np.ndarray | None = None, grows: tuple[str, ...] = (HORIZON,)
) -> Question:
    """The question of a simulated study.

    Args:
        evidence, design: of the study.
        valid: replicas that fit, ``[seeds, widths, horizons]``; None: more seeds bring no width back.
        grows: axes on which values can be added.
    """
    regained, kept, along = 0, 0.0, 0.0
    if valid is not None:
        regained, kept = regainable(valid[:, :, -1], np.flatnonzero(np.isin(design.widths, evidence.widths)))
        along = float(valid[:, design.widths.index(design.top)].all(1).mean())
    return Question(
        key="",
        name="",
        by_threshold=evidence.by_threshold,
        growth=evidence.growth,
        limited=evidence.limited,
        criteria=evidence.criteria,
        design=design,
        valid_widths=len(evidence.widths),
        valid_horizons=len(evidence.horizons),
        complete=evidence.complete_seeds,
        entering=(len(evidence.widths), sum(width >= min(evidence.widths, default=0) for width in design.widths)),
        regained=regained,
        kept=kept,
        kept_along=along,
        grows=grows,
    )


def cost_of(design: Design) -> float:
    """Of all cells."""
    return float(sum(width * horizon * design.seeds for width, horizon in design.cells))


def decided(case: Case, rng: np.random.Generator) -> Ended:
    """The end of one study."""
    study, most = Study(case, rng, SEEDS[-1]), SEEDS[-1]
    grid, widths = study.horizons[: case.horizons], case.widths or case.truth.widths
    design, grows = Design(case.seeds, widths, grid, widths[-1]), (HORIZON, *((WIDTH,) if case.widths else ()))
    first = cost_of(design)

    def cost(question: Question, option: Option) -> float:
        there = set(option.design.horizons) <= set(study.horizons) and option.design.seeds <= most
        there = there and set(option.design.widths) <= set(case.truth.widths)
        return max(cost_of(option.design) - cost_of(design), 0.0) if there else np.inf

    rounds, evidence = 0, study.weigh(design.seeds, len(design.horizons), design.widths)
    while evidence.verdict is Verdict.INCONCLUSIVE and rounds < ROUNDS:
        places = np.isin(case.truth.widths, design.widths)
        valid = study.valid[: design.seeds, places, : len(design.horizons)]
        chosen = choose(question_of(evidence, design, valid, grows), cost)
        if chosen.option is None:
            break
        design, rounds = chosen.option.design, rounds + 1
        evidence = study.weigh(design.seeds, len(design.horizons), design.widths)
    return Ended(evidence.verdict, rounds, design.seeds, len(design.horizons), cost_of(design) / first)


def rates(case: Case, studies: int) -> list[Ended]:
    """The ends of so many studies."""
    rng = np.random.default_rng(7)
    return [decided(case, rng) for _ in range(studies)]


def share(found: list[Ended], verdict: Verdict) -> float:
    """Of the studies, those that ended in a verdict."""
    return Counter(one.verdict for one in found)[verdict] / len(found)


def row(case: Case, found: list[Ended]) -> str:
    """A row of the table."""
    noise = f"{case.noise}, {'slope' if case.tilt else 'radius'} {case.sigma:g}"
    verdicts = " / ".join(
        f"{share(found, each):.3f}" for each in (Verdict.STABLE, Verdict.INCONCLUSIVE, Verdict.UNSTABLE)
    )
    seeds = " / ".join(f"{np.quantile([one.seeds for one in found], q):.0f}" for q in SHOWN)
    cost = " / ".join(f"{np.quantile([one.cost for one in found], q):.1f}" for q in SHOWN)
    rounds = f"{np.mean([one.rounds for one in found]):.1f}"
    return (
        f"| {case.truth.name} | {noise} | {case.horizons} × {case.seeds} | {verdicts} | {rounds} | {seeds} | {cost} |"
    )


def lines(studies: int = STUDIES) -> Iterator[str]:
    """The rows of docs/evidence/decide.md's table."""
    for case in CASES:
        yield row(case, rates(case, studies))


if __name__ == "__main__":
    for line in lines(*map(int, sys.argv[1:])):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
