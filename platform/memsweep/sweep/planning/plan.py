"""The plan of a sweep: its trials with their identities, what is done already, and the rest in packs."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.errors import ConfigError
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.compiling import tell_of_compiling
from memsweep.sweep.planning.identity import ON_CPU, Arithmetic, identity, pack_identity

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig, SweepConfig
    from memsweep.config.schema.trial import ChainConfig, TrialConfig

PACK_REPLICAS = 256
"""Most replicas that train as one program: enough to share each batch widely, few enough for any machine's memory."""
PACK_SECONDS = (3.0, 30.0)
"""Least and most seconds that a pack is meant to last. At three seconds Ray's share of a pack, some 50 ms, is 2 %."""
PACKS_WANTED = 64
"""Packs of a study that is long enough for so many of the least length: a few for each core of a large machine."""
_WORKERS_START = 10
"""Times as long as others are packs of several workers, which take some 20 s to find one another."""
_NEARLY_FREE = 0.2  # of a trial's own work: one that adds less fills an ensemble that is padded anyway, and stays
_WORTH_SHARING = 5.0  # a program is not cut into parts whose own work is less than this many times the shared work


@dataclass(frozen=True)
class PlannedTrial:
    """A trial of a plan.

    Attributes:
        identity: its identity.
        config: its config.
        arithmetic: what the identity names of the place where it is computed.
        after: identity of the trial whose kept state it may go on from; empty where it starts anew. It saves time and
            changes no number.
        trained: URI of the folder and identity of the trial that keep its trained weights, which are measured then;
            empty where it is trained. It changes no number.
    """

    identity: str
    config: TrialConfig
    arithmetic: Arithmetic = ON_CPU
    after: str = ""
    trained: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Pack:
    """Trials that one worker runs: one program after the other, the trials of each together, or a chain in order.

    Attributes:
        identity: of these members in this order; names the checkpoint.
        trials: the members.
        cost: estimated seconds of one core; for order and time estimates only.
        whole: identity of the pack before finished trials were left out of it: the same in all drivers of a study.
    """

    identity: str
    trials: tuple[PlannedTrial, ...]
    cost: float
    whole: str


@dataclass(frozen=True)
class Plan:
    """The trials and packs that a sweep will run.

    Attributes:
        sweep: the study.
        trials: its trials, in order; of a search those that it has made so far.
        done: identities whose results exist already, here or in another study.
        packs: what is left, the costliest first, so that no long pack starts last.
        measures: nothing is trained: a trial whose trained weights cannot be read fails.
        cut: digest of all packs, those whose trials are done included: the same in all drivers of a study.
    """

    sweep: SweepConfig
    trials: tuple[PlannedTrial, ...]
    done: frozenset[str]
    packs: tuple[Pack, ...]
    measures: bool = False
    cut: str = ""

    @property
    def most_trials(self) -> int:
        """The trials that a search may run in all; 0 for a grid, whose plan has them all."""
        if (search := self.sweep.search) is None:
            return 0
        top = self.sweep.confirm.top if self.sweep.confirm is not None else 0
        return len(self.sweep.rows) * (search.settings.trials + top)

    @property
    def may_end_early(self) -> bool:
        """Whether a loss may end a training before its last step."""
        return any(_may_end_early(trial.config) for trial in self.trials)


def ends_below(config: TrialConfig) -> bool:
    """Whether a validation loss below one that was written, or carried along a chain, ends the training."""
    chain = config.chain
    carried = chain is not None and chain.into == "training.stop_below" and (chain.first or chain.earlier)
    return bool(config.training.stop_below or carried)


def _may_end_early(config: TrialConfig) -> bool:
    training = config.training
    plateaus = training.schedule == "plateau" and training.smallest_rate > 0.0
    return training.end > 0 and (ends_below(config) or training.patience > 0 or plateaus)


def identified(sweep: SweepConfig) -> tuple[PlannedTrial, ...]:
    """The rows of a sweep with their identities.

    Raises:
        ConfigError: two rows are one trial, because they differ in cosmetic fields alone.
    """
    by_identity: dict[str, PlannedTrial] = {}
    axes: set[str] = set()  # cosmetic fields that the grid varies
    tell_of_compiling(frozenset(row.training.dtype for row in sweep.rows if _asks_for_kernels(row, sweep)))
    for config in sweep.rows:
        arithmetic = Arithmetic.of(sweep.resources.of(config))
        trial = PlannedTrial(identity(config, arithmetic), config, arithmetic)
        if trial is not (first := by_identity.setdefault(trial.identity, trial)):
            one, other = flatten(to_dict(first.config)), flatten(to_dict(config))
            axes |= {path for path in one | other if one.get(path) != other.get(path)}
    if axes:
        raise ConfigError(
            [f"grid.{path}: cannot change a trial's numbers. Take this axis out of the grid." for path in sorted(axes)],
            f"study {sweep.name!r}",
        )
    return tuple(by_identity.values())


def _asks_for_kernels(config: TrialConfig, sweep: SweepConfig) -> bool:
    """Whether the identity of a trial asks for compiled kernels; that of a module may not."""
    return config.model.name != "module" and sweep.resources.of(config).device == "cpu"


def make_plan(
    sweep: SweepConfig,
    trials: Sequence[PlannedTrial],
    done: Collection[str],
    apart: Collection[str] = (),
    *,
    measures: bool = False,
) -> Plan:
    """Plan a sweep.

    Args:
        sweep: the study.
        trials: its rows, from ``identified``.
        done: identities that need no work.
        apart: identities without a result that are not to be run now.
        measures: nothing is trained.
    """
    # cut from all trials, done or not: a sweep that goes on cuts as it did at first, and finds its checkpoints
    target_seconds = pack_seconds(trials) * (_WORKERS_START if sweep.resources.workers > 1 else 1)
    kinds: dict[ResourcesConfig, list[PlannedTrial]] = {}
    for trial in trials:
        kinds.setdefault(sweep.resources.of(trial.config), []).append(trial)
    made = [pack for kind in kinds.values() for pack in make_packs(kind, target_seconds)]
    packs, cut = _without(made, {*done, *apart}), pack_identity(sorted(pack.whole for pack in made))
    return Plan(sweep, tuple(trials), frozenset(done), tuple(packs), measures, cut)


def _without(packs: Iterable[Pack], gone: Collection[str]) -> list[Pack]:
    """The packs without these trials, costliest first."""
    left = ((pack.whole, [trial for trial in pack.trials if trial.identity not in gone]) for pack in packs)
    return sorted((pack_of(trials, whole) for whole, trials in left if trials), key=lambda pack: -pack.cost)


def pack_seconds(trials: Sequence[PlannedTrial]) -> float:
    """How long a pack of this study is meant to last: enough packs for many cores, and each worth its overhead."""
    least, most = PACK_SECONDS
    whole = sum(cost.seconds([trial.config for trial in group]) for group in programs(trials))
    return min(max(whole / PACKS_WANTED, least), most)


def make_packs(trials: Sequence[PlannedTrial], target_seconds: float = PACK_SECONDS[1]) -> list[Pack]:
    """Cut programs that are long, and put short ones together; a chain's trials are one pack, in order.

    Args:
        trials: what is to run.
        target_seconds: length of a pack; a single trial, or a program whose trials share much work, may last longer.

    Returns:
        The packs, costliest first.
    """
    chains: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        if trial.config.chain is not None:
            chains.setdefault(_chain(trial.config, trial.config.chain), []).append(trial)
    packs = [pack_of(sorted(chain, key=_position)) for chain in chains.values()]
    short: list[list[PlannedTrial]] = []
    for group in programs(trial for trial in trials if trial.config.chain is None):
        *full, last = _cut(group, target_seconds)
        packs += map(pack_of, full)
        short.append(last)  # no two of one program, which a worker would run as one
    packs += map(pack_of, _join(short, target_seconds))
    return sorted(packs, key=lambda pack: -pack.cost)


def programs(trials: Iterable[PlannedTrial]) -> list[list[PlannedTrial]]:
    """Trials by program, in order of first appearance; a chained trial has its own."""
    groups: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        groups.setdefault(_program(trial.config), []).append(trial)
    return list(groups.values())


@functools.lru_cache(maxsize=100_000)
def _program(config: TrialConfig) -> str:
    """Asked several times for each trial: for the length of packs, for packs, and for their cost."""
    from memsweep.trial import program

    return sys.intern(program(config))


def _chain(config: TrialConfig, chain: ChainConfig) -> str:
    """The key that the trials of one chain share: everything but the axis that they run along."""
    fields = flatten(to_dict(config))
    return json.dumps({path: fields[path] for path in sorted(fields) if path not in (chain.along, "chain.earlier")})


def _position(trial: PlannedTrial) -> int:
    return len(trial.config.chain.earlier) if trial.config.chain is not None else 0


def _cut(group: Sequence[PlannedTrial], target_seconds: float) -> list[list[PlannedTrial]]:
    """The trials of one program in parts that are neither too long nor too large."""
    shared = cost.shared(group[0].config)
    longest = max(target_seconds, (1 + _WORTH_SHARING) * shared)
    parts: list[list[PlannedTrial]] = []
    room, length = 0, math.inf
    for trial in group:
        alone = cost.seconds([trial.config])
        together = cost.seconds([member.config for member in (*parts[-1], trial)]) if parts else math.inf
        costly = together > longest and together - length > _NEARLY_FREE * (alone - shared)
        if costly or trial.config.training.seeds > room:
            parts.append([])
            room, together = PACK_REPLICAS, alone
        parts[-1].append(trial)
        room, length = room - trial.config.training.seeds, together
    return parts


def _join(parts: Iterable[list[PlannedTrial]], target_seconds: float) -> list[list[PlannedTrial]]:
    """Parts of different programs put together in order, up to the target length."""
    packs: list[list[PlannedTrial]] = []
    length = math.inf
    for part in parts:
        own = cost.seconds([trial.config for trial in part])
        if length + own > target_seconds:
            packs.append([])
            length = 0.0
        packs[-1] += part
        length += own
    return packs


def pack_of(trials: Sequence[PlannedTrial], whole: str = "") -> Pack:
    """One pack of these trials; ``whole``: identity of the pack of which they are what is left."""
    work = sum(cost.seconds([trial.config for trial in group]) for group in programs(trials))
    name = pack_identity(trial.identity for trial in trials)
    return Pack(name, tuple(trials), work, whole or name)
