"""Which scenario a round runs, and which faults hit it: all drawn from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.campaign.bench import Bench
from tests.campaign.faults import KINDS
from tests.campaign.faults.base import Fault
from tests.campaign.faults.processes import PowerCut
from tests.campaign.scenarios import Scenario

Kind = type[Fault]


@dataclass(frozen=True)
class Stage:
    """One command of a round, and what hits it.

    Attributes:
        live: faults that hit it while it runs, all at once.
        rest: faults that hit the study's files after it.
    """

    live: tuple[Kind, ...]
    rest: tuple[Kind, ...] = ()


@dataclass(frozen=True)
class Round:
    """One study that is broken, and finished.

    Attributes:
        number: from 0; with the campaign's seed it gives the same round again.
        stages: of which the first ones end their command.
    """

    seed: int
    number: int
    scenario: Scenario
    stages: tuple[Stage, ...]

    def luck(self) -> random.Random:
        """Where the times and the targets come from."""
        return random.Random(f"{self.seed} {self.number} run")

    def __str__(self) -> str:
        stages = [" + ".join(kind.name for kind in stage.live + stage.rest) for stage in self.stages]
        return f"round {self.number} ({self.scenario}): {'; then '.join(stages)}"


def rounds(seed: int, bench: Bench, only: tuple[str, ...] = (), where: str = "") -> Iterator[Round]:
    """The rounds of a campaign, without end; kinds that were drawn least come first.

    Args:
        seed: of all draws.
        bench: what this machine can do, which decides the kinds.
        only: names of the kinds to draw; empty for all.
        where: words that a scenario's name must hold.
    """
    draws = _Draws(seed, bench, only, where)
    number = 0
    while True:
        yield draws.next(number)
        number += 1


class _Draws:
    """Which kinds were drawn so far, and how often."""

    def __init__(self, seed: int, bench: Bench, only: tuple[str, ...], where: str) -> None:
        self.seed = seed
        scenarios = [one for one in bench.scenarios() if all(word in str(one) for word in where.split())]
        wanted = [kind for name, kind in KINDS.items() if not only or name in only]
        if all(kind.at_rest for kind in wanted):
            wanted.append(PowerCut)  # else there is nothing that ends a command before it is done
        self.possible = {kind: [one for one in scenarios if kind.applies(one, bench)] for kind in wanted}
        kinds = [kind for kind in wanted if self.possible[kind]]
        self.live, self.rest = ([kind for kind in kinds if kind.at_rest is resting] for resting in (False, True))
        self.drawn = Counter[Kind](dict.fromkeys(kinds, 0))

    def next(self, number: int) -> Round:
        """At most two stages: one whose command ends by a fault, and its files are damaged; one that may go on."""
        luck = random.Random(f"{self.seed} {number}")
        first = self._least(self.live, luck)
        scenario = luck.choice(self.possible[first])
        here = [kind for kind in self.live if scenario in self.possible[kind]]
        resting = [kind for kind in self.rest if scenario in self.possible[kind]]
        chosen, stages = {first}, []

        def draw(kinds: list[Kind]) -> list[Kind]:
            left = [kind for kind in kinds if kind not in chosen]
            found = [self._least(left, luck)] if left else []
            chosen.update(found)
            return found

        def with_another(kind: Kind, kinds: list[Kind]) -> tuple[Kind, ...]:
            more = not kind.alone and luck.random() < 0.4
            return (kind, *draw([one for one in kinds if not one.alone] if more else []))

        ending, passing = ([kind for kind in here if kind.ends is ends] for ends in (True, False))
        breaking = [kind for kind in ending if not kind.finishes]
        for breaks in [first] if first.ends else draw(breaking) if luck.random() < 0.7 else []:
            rest = [kind for _ in range(luck.randrange(1, 5)) for kind in draw(resting)]
            stages.append(Stage(with_another(breaks, here), tuple(rest)))
        done = any(kind.finishes for stage in stages for kind in stage.live)
        for goes_on in [first] if not first.ends else draw(passing) if luck.random() < 0.7 and not done else []:
            stages.append(Stage(with_another(goes_on, passing)))
        return Round(self.seed, number, scenario, tuple(stages))

    def _least(self, kinds: list[Kind], luck: random.Random) -> Kind:
        """One of those that were drawn least, which counts as drawn now."""
        fewest = min(self.drawn[kind] for kind in kinds)
        kind = luck.choice([kind for kind in kinds if self.drawn[kind] == fewest])
        self.drawn[kind] += 1 if kind.rare else 2
        return kind
