"""Which scenario a round runs, and which faults hit it: those that hit least so far, the rest drawn from a seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

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
        live: names of the kinds that hit it while it runs, one after the other.
        rest: of those that hit the study's files after it.
    """

    live: tuple[str, ...]
    rest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Round:
    """One study that is broken, and finished.

    Attributes:
        number: from 0.
    """

    seed: int
    number: int
    scenario: Scenario
    stages: tuple[Stage, ...]

    def luck(self) -> random.Random:
        """Where the times and the targets come from."""
        return random.Random(f"{self.seed} {self.number} run")

    def __str__(self) -> str:
        stages = [", ".join(stage.live + stage.rest) for stage in self.stages]
        return f"round {self.number} ({self.scenario}): {'; then '.join(stages)}"

    def as_json(self) -> dict[str, Any]:
        """The JSON from which ``of_json`` makes the same round."""
        return asdict(self)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Round:
        """A round that was written down."""
        stages = tuple(Stage(tuple(stage["live"]), tuple(stage["rest"])) for stage in data["stages"])
        return cls(data["seed"], data["number"], Scenario(**data["scenario"]), stages)


class Deck:
    """The kinds and scenarios of a campaign.

    Args:
        bench: what this machine can do, which decides the kinds.
        only: names of the kinds to draw; empty for all.
        where: words that a scenario's name must hold.
    """

    def __init__(self, bench: Bench, only: tuple[str, ...] = (), where: str = "") -> None:
        scenarios = [one for one in bench.scenarios() if all(word in str(one) for word in where.split())]
        wanted = [kind for name, kind in KINDS.items() if not only or name in only]
        if all(kind.at_rest for kind in wanted):
            wanted.append(PowerCut)  # else there is nothing that ends a command before it is done
        self._possible = {kind: [one for one in scenarios if kind.applies(one, bench)] for kind in wanted}
        self._kinds = [kind for kind in wanted if self._possible[kind]]
        self._drawn = Counter[Kind]()

    def draw(self, seed: int, number: int, hits: Mapping[str, int]) -> Round:
        """A round; the kind that has hit least gets a scenario and a command, others come along.

        Args:
            seed, number: of all draws.
            hits: how often the kinds have hit something; those that never find anything to harm still end up behind.
        """
        luck = random.Random(f"{seed} {number}")
        hand = _Hand({kind: hits.get(kind.name, 0) + self._drawn[kind] / 4 for kind in self._kinds}, luck)
        first = hand.least([kind for kind in self._kinds if not kind.at_rest])
        scenario = _often_inline(self._possible[first], luck)
        here = [kind for kind in self._kinds if scenario in self._possible[kind]]
        stages: list[Stage] = []
        for place in range(luck.randrange(2, 5)):
            live = hand.live([kind for kind in here if not kind.at_rest], scenario, [] if place else [first])
            over = any(kind.finishes for kind in live)
            rest = [] if over else hand.some([kind for kind in here if kind.at_rest], luck.randrange(3, 8))
            stages.append(Stage(tuple(kind.name for kind in live), tuple(kind.name for kind in rest)))
            if over:  # nothing hits a study that another driver has finished
                break
        self._drawn.update(hand.drawn)
        return Round(seed, number, scenario, tuple(stages))


class _Hand:
    """Draws kinds for one round.

    Args:
        hits: of each kind so far; the kind with the fewest is drawn.

    Attributes:
        drawn: what was drawn.
    """

    def __init__(self, hits: Mapping[Kind, float], luck: random.Random) -> None:
        self._hits, self._luck = dict(hits), luck
        self.drawn: list[Kind] = []

    def least(self, kinds: list[Kind]) -> Kind:
        """One of those that hit least, which counts as a hit now."""
        fewest = min(self._hits[kind] for kind in kinds)
        kind = self._luck.choice([kind for kind in kinds if self._hits[kind] == fewest])
        self._hits[kind] += 1
        self.drawn.append(kind)
        return kind

    def some(self, kinds: list[Kind], count: int, *, again: bool = False) -> list[Kind]:
        """So many; each at most once unless it may come again."""
        found: list[Kind] = []
        for _ in range(count):
            if left := [kind for kind in kinds if again or kind not in found]:
                found.append(self.least(left))
        return found

    def live(self, kinds: list[Kind], scenario: Scenario, chosen: list[Kind]) -> list[Kind]:
        """The faults that hit one command, in order: what passes, at most one that ends it."""
        head = chosen[0] if chosen else self.least(kinds)
        if head.alone:
            return [head]
        ending = [kind for kind in kinds if kind.ends_in(scenario) and not kind.alone]
        passing = [kind for kind in kinds if not kind.ends_in(scenario) and not kind.alone]
        last = [head] if head in ending else self.some(ending, 1) if self._luck.random() < 0.9 else []
        first = [] if head in ending else [head]
        at_start = [kind for kind in passing if kind.from_start and kind not in first]
        first += self.some(at_start, self._luck.choice([0, 1, 1]))
        first += self.some(
            [kind for kind in passing if not kind.from_start],
            self._luck.randrange(3, 8),
            again=True,
        )
        return [*sorted(first, key=lambda kind: not kind.from_start), *last]


def _often_inline(scenarios: list[Scenario], luck: random.Random) -> Scenario:
    """One of them; Ray takes long to start, and so is rare where a kind does not need it."""
    return luck.choices(scenarios, [0.02 if one.hosts else 0.2 if one.ray else 1.0 for one in scenarios])[0]
