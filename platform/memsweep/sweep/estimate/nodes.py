"""The hours and the price of a study on nodes of one type, by their number; nodes that wait for others cost, too."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep.errors import ConfigError

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig

VARIABLE = "MEMSWEEP_NODE"
"""Variable of the environment that says which nodes a plan reckons with, where ``--node`` does not."""


@dataclass(frozen=True)
class NodeOffer:
    """A type of node that can be had.

    Attributes:
        cpus: its cores.
        gpus: its cards.
        price: of an hour, in any currency; 0 where none was given.
    """

    cpus: float
    gpus: float = 0.0
    price: float = 0.0

    @classmethod
    def of(cls, text: str) -> NodeOffer:
        """The offer that a text names, ``cpus=16,gpus=1,price=1.2``.

        Raises:
            ValueError: it names none.
        """
        words = dict(word.strip().partition("=")[::2] for word in text.split(","))
        try:
            offer = cls(**{name: float(value) for name, value in words.items()})
        except (ValueError, TypeError):  # no number; a field that there is not, or no cpus
            offer = cls(0.0)
        if not (0 < offer.cpus < math.inf and offer._is_finite):
            raise ValueError(
                f"a node is written cpus=16,gpus=1,price=1.2 (gpus and price may be left out), in finite numbers, "
                f"got {text!r}"
            )
        return offer

    @property
    def _is_finite(self) -> bool:
        return 0 <= self.gpus < math.inf and 0 <= self.price < math.inf

    def __str__(self) -> str:
        """As ``of`` reads it."""
        return f"cpus={self.cpus!r},gpus={self.gpus!r},price={self.price!r}"


def offered(given: NodeOffer | None = None) -> NodeOffer | None:
    """The type of node that was given, else the one that the environment names; None where neither names one.

    It is read where a node counts: a wrong variable ends no command that has no use for it.

    Raises:
        ConfigError: the variable names none.
    """
    if given is not None or not (text := os.environ.get(VARIABLE)):
        return given
    try:
        return NodeOffer.of(text)
    except ValueError as error:
        raise ConfigError([f"{VARIABLE}: {error}. Correct it, or unset it"], "the environment") from None


def hours_for(cost: float) -> float:
    """The hours of nodes that a sum pays for, by the price that the environment names.

    Raises:
        ConfigError: it names none.
    """
    offer = offered()
    if offer is None or not offer.price:
        raise ConfigError([f"say first what an hour of a node costs: {VARIABLE}=cpus=16,price=0.68"], "the environment")
    return cost / offer.price


@dataclass(frozen=True)
class Use:
    """A study on so many nodes.

    Attributes:
        nodes: how many.
        seconds: until it ends.
        cost: of all nodes, from the first second to the last.
        idle: share of it that pays for slots in which no pack runs.
    """

    nodes: int
    seconds: float
    cost: float
    idle: float


Lengths = Sequence[tuple["ResourcesConfig", Sequence[float], float]]
"""The resources of packs, the seconds of each pack, and how often such packs come one after the other."""


def uses(lengths: Lengths, offer: NodeOffer, starting: float) -> Iterator[Use]:
    """The study on 1, 2, 4, ... such nodes, up to as many as its packs can use at once.

    More nodes are of no use where packs have their places, or where twice the nodes hold no more of them at once.

    Args:
        lengths: of the packs; those of different kinds are taken to run one kind after the other.
        offer: the type of the nodes.
        starting: seconds until a node computes.

    Raises:
        ConfigError: such nodes can never hold one pack.
    """
    from memsweep.sweep.planning.resources import marks, slots

    node, number = {"CPU": offer.cpus, "GPU": offer.gpus}, 1
    most, before = max((len(packs) for _, packs, _ in lengths), default=0), list[int]()
    while most:
        # with the marks that packs need: whoever names it knows which it has
        at_once = [slots(kind, [node | marks(kind)] * number) for kind, _, _ in lengths]
        if at_once == before:
            return
        yield use(lengths, at_once, number, offer.price, starting)
        if min(at_once) >= most:
            return
        number, before = 2 * number, at_once


def use(lengths: Lengths, at_once: Sequence[int], nodes: int, price: float, starting: float = 0.0) -> Use:
    """The study on so many nodes.

    Args:
        lengths: of the packs; those of different kinds are taken to run one kind after the other.
        at_once: packs that the nodes hold, for each entry of ``lengths``.
        nodes: how many.
        price: of an hour of one.
        starting: seconds until a node computes.
    """
    counted = [*zip(lengths, at_once, strict=True)]
    seconds = starting + sum(makespan(packs, count) * times for (_, packs, times), count in counted)
    work = sum(sum(packs) * times / count for (_, packs, times), count in counted)
    return Use(nodes, seconds, nodes * price * seconds / 3600, max(0.0, 1 - work / seconds) if seconds else 0.0)


def makespan(lengths: Iterable[float], slots: int) -> float:
    """When the last of these packs ends, each begun in its turn as soon as one of the slots is free."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def problem_of(lengths: Lengths, offer: NodeOffer) -> str:
    """Why such nodes can never hold a pack, in a sentence; empty where they can."""
    try:
        next(uses(lengths, offer, 0.0), None)
    except ConfigError as error:
        return " ".join(error.problems)
    return ""
