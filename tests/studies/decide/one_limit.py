"""Many open questions under one limit: how many rounds decide, and how good the chances are that choose them.

A study has questions of models that differ: slopes of the radius are drawn, noise, and what a cell costs. Only those
that the first look leaves open enter. Rounds are chosen and allotted as ``memsweep decide`` does it.

``PYTHONPATH=tests/stability/verdict python tests/studies/decide/one_limit.py [studies]`` prints the two tables of
docs/evidence/decide.md.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from decide_rates import cost_of, question_of
from error_rates import Case, Study, Truth

from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.reasons import Evidence
from memsweep.studies.decide.choice import LEAST, ROUNDS, Chosen, allotted, choose, fare_of
from memsweep.studies.decide.options import SEEDS, Option
from memsweep.studies.decide.question import Design, Question

QUESTIONS, STUDIES = 24, 20
LIMITS = (2, 10, 40)
"""Of a study, in what its first round cost."""
BINS = (LEAST, 0.3, 0.5, 0.7, 0.9, 1.0)
"""Of the chances."""
_HORIZONS = 4


@dataclass
class Asked:
    """One question of a study, and how it stands.

    Attributes:
        key: of its condition.
        scale: what a cell costs, over its width times its horizon times its seeds.
        study: its radii.
        design, evidence: by the last look.
        rounds: so far.
    """

    key: str
    scale: float
    study: Study
    design: Design
    evidence: Evidence
    rounds: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it has no verdict."""
        return self.evidence.verdict is Verdict.INCONCLUSIVE

    def cost(self, design: Design) -> float:
        """Of what a design has more than the present one."""
        return max(cost_of(design) - cost_of(self.design), 0.0) * self.scale

    def chosen(self, limit: float, questions: int) -> Chosen:
        """The addition that the next round would make for it."""

        def cost(question: Question, option: Option) -> float:
            there = set(option.design.horizons) <= set(self.study.horizons) and option.design.seeds <= SEEDS[-1]
            return self.cost(option.design) if there else np.inf

        valid = self.study.valid[: self.design.seeds, :, : len(self.design.horizons)]
        question = replace(question_of(self.evidence, self.design, valid), key=self.key)
        return choose(question, cost, most=limit, fare=fare_of(limit, questions))

    def go_on(self, design: Design) -> None:
        """Gets the cells of a design."""
        self.design, self.rounds = design, self.rounds + 1
        self.evidence = self.study.weigh(design.seeds, len(design.horizons))


@dataclass
class Outcome:
    """The sum of what became of studies.

    Attributes:
        questions, decided: how many.
        spent: shares of the limit.
        chances: of each addition that had a forecast, with whether it brought a verdict.
    """

    questions: int = 0
    decided: int = 0
    spent: list[float] = field(default_factory=list)
    chances: list[tuple[float, bool]] = field(default_factory=list)


def drawn(rng: np.random.Generator, key: str) -> Asked:
    """A question that the first look leaves open."""
    while True:
        horizon, width = rng.uniform(-0.6, 0.25), rng.choice([0.0, 0.0, rng.uniform(-0.4, 0.2)])
        case = Case(Truth("", (float(horizon),) * 3, float(width)), "normal", float(rng.choice([0.03, 0.05, 0.1, 0.2])))
        scale, study = float(np.exp(rng.uniform(-2.3, 2.3))), Study(case, rng, SEEDS[-1])
        widths = case.truth.widths
        design = Design(case.seeds, widths, study.horizons[:_HORIZONS], widths[-1])
        asked = Asked(key, scale, study, design, study.weigh(case.seeds, _HORIZONS))
        if asked.is_open:
            return asked


def run(seed: int, limit: float, outcome: Outcome) -> None:
    """One study under a limit of so many times what its first round cost."""
    rng = np.random.default_rng(seed)
    every = [drawn(rng, str(number)) for number in range(QUESTIONS)]
    whole = limit * sum(cost_of(each.design) * each.scale for each in every)
    left = whole
    while True:
        open_ = {place: each for place, each in enumerate(every) if each.is_open and each.rounds < ROUNDS}
        going = {place: each.chosen(whole, len(open_)) for place, each in open_.items()}
        found = {place: chosen for place, chosen in going.items() if chosen.option is not None and chosen.cost <= whole}
        taken = allotted(found, left, whole)
        if not taken:
            break
        for place in taken:
            option, asked = found[place].option, every[place]
            assert option is not None
            left -= asked.cost(option.design)
            asked.go_on(option.design)
            if (chance := found[place].chance) is not None:
                outcome.chances.append((chance, not asked.is_open))
    outcome.questions += len(every)
    outcome.decided += sum(not each.is_open for each in every)
    outcome.spent.append(1.0 - left / whole)


def outcomes(studies: int = STUDIES) -> dict[int, Outcome]:
    """By limit, of so many studies."""
    found = {limit: Outcome() for limit in LIMITS}
    for limit, outcome in found.items():
        for seed in range(studies):
            run(seed, limit, outcome)
    return found


def limit_rows(found: dict[int, Outcome]) -> Iterator[str]:
    """A row for each limit."""
    for limit, one in found.items():
        yield f"| {limit} | {one.questions} | {one.decided / one.questions:.2f} | {np.mean(one.spent):.2f} |"


def chance_rows(found: dict[int, Outcome]) -> Iterator[str]:
    """A row for each range of chances, over all limits."""
    odds, came = np.array([each for one in found.values() for each in one.chances], float).T
    for low, high in itertools.pairwise(BINS):
        inside = (odds >= low) & ((odds < high) | (high == BINS[-1]))
        mean, seen = odds[inside].mean(), came[inside].mean()
        yield f"| {low:.1f} to {high:.1f} | {inside.sum()} | {mean:.2f} | {seen:.2f} |"


if __name__ == "__main__":
    ended = outcomes(*map(int, sys.argv[1:]))
    for line in (*limit_rows(ended), "", *chance_rows(ended)):
        sys.stdout.write(f"{line}\n")
