"""Population-based training (Jaderberg et al. 2017, arXiv 1711.09846): who copies whom, and with which settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memsweep.config.schema.search import CHOICE, INT, LOG_INT, Domain, SchedulerConfig
from memsweep.search.suggest import space as spaces
from memsweep.streams import Stream

_FACTORS = (0.8, 1.2)


@dataclass(frozen=True)
class PopulationMember:
    """A member at the end of an interval.

    Attributes:
        number: of its suggestion.
        values: its present settings.
        score: its objective, smaller is better; not finite where it diverged or failed.
    """

    number: int
    values: Mapping[str, Any]
    score: float


@dataclass(frozen=True)
class Evolved:
    """A member after an exchange.

    Attributes:
        number: of its suggestion.
        donor: number of the member whose weights it continues from; its own where it copied none.
        values: its settings from now on.
    """

    number: int
    donor: int
    values: Mapping[str, Any]


def evolve(
    members: Sequence[PopulationMember], space: Mapping[str, Domain], config: SchedulerConfig, seed: int, step: int
) -> list[Evolved]:
    """Truncation selection: the worst share continues from the weights of the best, with settings near theirs.

    The share is ``config.quantile`` of the population, at least one member of two or more. A member of the worst share
    copies a random member of the best share, unless that one is no better. A diverged member always copies. Each
    copied setting is multiplied by 0.8 or 1.2 (a whole number moves by at least one), or drawn from its domain with
    probability ``config.resample``, and stays within its domain; a choice stays or is drawn.

    Args:
        members: the population, in any order; equal scores are ranked by number.
        space: dotted path -> domain of each setting.
        config: quantile and resample.
        seed: of the search; with ``step`` and a member's number it decides that member's random numbers.
        step: optimizer step at which they all stand.

    Returns:
        One for each member, by number. Empty where all have diverged.
    """
    ranked = sorted(members, key=lambda one: (_score(one), one.number))
    alive = sum(math.isfinite(one.score) for one in members)
    if not alive:
        return []
    share = min(max(round(config.quantile * len(ranked)), 1), len(ranked) // 2)
    best = ranked[: min(max(share, 1), alive)]
    worst = {one.number for one in ranked[len(ranked) - share :]}
    evolved = []
    for one in sorted(members, key=lambda member: member.number):
        random = Stream(seed % 2**63, f"population {step}").generator(one.number)
        donor = best[int(random.integers(len(best)))]
        if math.isfinite(one.score) and (one.number not in worst or not donor.score < one.score):
            evolved.append(Evolved(one.number, one.number, dict(one.values)))
            continue
        values = {path: _explored(space[path], donor.values[path], config, random) for path in sorted(donor.values)}
        evolved.append(Evolved(one.number, donor.number, values))
    return evolved


def _score(member: PopulationMember) -> float:
    return member.score if math.isfinite(member.score) else math.inf


def _explored(domain: Domain, value: Any, config: SchedulerConfig, random: np.random.Generator) -> Any:
    """A value near one that did well, or any of the domain."""
    resample, factor = random.random() < config.resample, _FACTORS[int(random.integers(2))]
    if resample:
        return spaces.draw(domain, random)
    if domain.kind == CHOICE:
        return value
    moved = value * factor
    if domain.kind in (INT, LOG_INT):
        moved = math.floor(moved) if moved < value else math.ceil(moved)
        return min(max(moved, int(domain.low)), int(domain.high))
    return float(min(max(moved, domain.low), domain.high))
