"""The nodes that a run asks its cluster for with ``--nodes``, said with the hours and the cost as ``plan`` has them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.errors import counted
from memsweep.sweep.driver.progress import duration
from memsweep.sweep.estimate.estimate import estimate, waves
from memsweep.sweep.estimate.nodes import Lengths, Use, use
from memsweep.sweep.ray.capacity import NOT_KNOWN, Capacity, Node, capacity, largest, most_packs, nodes_for, room

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig, SweepConfig
    from memsweep.sweep.driver.launch import Launch
    from memsweep.sweep.planning.plan import Plan

_log = logging.getLogger("memsweep")


def most_nodes(plan: Plan, launch: Launch, workspace: Path) -> int | None:
    """The most nodes that packs may fill at once; where nodes are asked for by number, says for how many.

    Args:
        plan: what is left to run.
        launch: where it runs.
        workspace: the study's.

    Returns:
        None: as many as there can be.
    """
    if (request := launch.request) is None:
        return launch.nodes
    lengths, found = _lengths(plan.sweep, plan, workspace), replace(capacity(), offered=request.node)
    limits = [most for most in (launch.nodes, request.count) if most is not None]
    chosen = choose(lengths, found, limits, request.price)
    if chosen.nodes:
        _log.warning("%s", chosen.sentence(request.count, request.price))
    return min(limits, default=None)


def _lengths(sweep: SweepConfig, plan: Plan, workspace: Path) -> Lengths:
    """The lengths of the packs by the cost model: what is measured here says little of the cluster's nodes."""
    return estimate(waves(sweep, plan.packs), sweep.resources, workspace, seconds=0.0).lengths


@dataclass(frozen=True)
class Chosen:
    """The nodes that a study can use.

    Attributes:
        nodes: how many.
        wanted: how many the packs can fill, if there are so many.
        packs: that run side by side at most.
        all_at_once: whether all of them do.
        possible: nodes that the cluster can have for them; None where nobody knows.
        living: those of them that are there.
        grows: whether nodes come when they are asked for.
        guessed: nobody knows what a node holds, and each is taken to hold one pack.
        use: the study on so many nodes.
    """

    nodes: int
    wanted: int
    packs: int
    all_at_once: bool
    possible: int | None
    living: int
    grows: bool
    guessed: bool
    use: Use

    def sentence(self, asked: int | None, price: float) -> str:
        """The sentence: how many nodes, why so many, for how long and at what cost.

        Args:
            asked: nodes; None: as many as the packs can use.
            price: of an hour of a node; 0 where nobody said.
        """
        verb, end = "asks the cluster for", ". The request ends with the study"
        if not self.grows:
            verb, end = "nobody starts nodes here: uses", ""
        there = f" ({self.living} of them there)" if self.living else ""
        expected = use_words(self.use, price)
        if self.guessed:
            there = f"{there}, each taken to hold one pack (--node says what one has)"
        return f"{verb} {counted(self.nodes, 'node')}{there}{self._why(asked)}. By the cost model: {expected}{end}"

    def _why(self, asked: int | None) -> str:
        if self.nodes == asked:
            return ""
        instead = "" if asked is None else f", not the {asked} of --nodes"
        if self.all_at_once or self.nodes == self.wanted != self.possible:
            return f"{instead}: as many as {counted(self.packs, 'pack')} can use"
        if self.nodes == self.possible:
            return f"{instead}: all that it can have"
        return f"{instead}: all that --max-nodes allows"


def use_words(use: Use, price: float) -> str:
    """The hours, the cost and the idle share of a study on so many nodes: of their hours where they have no price."""
    cost = f"{use.cost:.2f} at {price:g} an hour" if price else f"{use.nodes * use.seconds / 3600:.2g} hours of nodes"
    return f"{duration(use.seconds)}, {cost}, {use.idle:.0%} of it idle"


def choose(lengths: Lengths, found: Capacity, limits: Sequence[int], price: float = 0.0) -> Chosen:
    """The fewest nodes on which as many packs run side by side as can be.

    Args:
        lengths: of the packs.
        found: the cluster.
        limits: numbers of nodes that it may not pass.
        price: of an hour of a node.
    """
    most: dict[ResourcesConfig, int] = {}
    for kind, packs, _ in lengths:
        most[kind] = max(most.get(kind, 0), len(packs))
    wanted = sum(nodes_for(kind, count, found) for kind, count in most.items())
    possible = None if found.most is None else _usable(most, found.most)
    nodes = min([wanted, *([] if possible is None else [possible]), *limits])
    # one kind after the other, each has all of them
    alone = {kind: most_packs({kind: count}, found, nodes)[kind] for kind, count in most.items()}
    at_once = {kind: min(max(1, count), kind.max_concurrent or NOT_KNOWN) for kind, count in alone.items()}
    together = most_packs(most, found, nodes)
    all_at_once = all(together[kind] >= count for kind, count in most.items())
    guessed = found.most is None and not any(largest(kind, found) for kind in most)
    living = min(nodes, _usable(most, found.living))
    use_of_them = use(lengths, [at_once[kind] for kind, _, _ in lengths], nodes, price)
    return Chosen(nodes, wanted, sum(most.values()), all_at_once, possible, living, found.grows, guessed, use_of_them)


def _usable(kinds: dict[ResourcesConfig, int], nodes: list[Node]) -> int:
    return sum(any(room(kind, [node]) for kind in kinds) for node in nodes)
