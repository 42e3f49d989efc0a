"""The plan of a sweep: its trials with their identities, what is done already, and the rest in packs."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep.config.canonical import flatten, to_dict
from memsweep.errors import ConfigError
from memsweep.sweep.identity import identity, pack_identity

if TYPE_CHECKING:
    from memsweep.config.claims import Claims
    from memsweep.config.schema import ChainConfig, ResourcesConfig, SweepConfig, TrialConfig

PACK_REPLICAS = 256
"""Most replicas of one pack: enough to share each batch's statistics widely, few enough to spread over workers."""
SAMPLED_REPLICAS = 16
"""The same for models that run over every sequence: one ensemble. More would share nothing and spread less."""


@dataclass(frozen=True)
class PlannedTrial:
    """A trial and its identity."""

    identity: str
    config: TrialConfig


@dataclass(frozen=True)
class Pack:
    """Trials that one worker runs: together as one program, or one after the other where they are a chain.

    Attributes:
        identity: of these members in this order; names the checkpoint.
        trials: the members.
        cost: estimated work, comparable between packs; for order and time estimates only.
    """

    identity: str
    trials: tuple[PlannedTrial, ...]
    cost: float


@dataclass(frozen=True)
class Plan:
    """What a sweep will do.

    Attributes:
        study: the study's name.
        description: its study file's head.
        trials: every row of the grid, in order.
        done: identities whose results exist already, here or in another study.
        packs: what is left, the costliest first, so that no long pack starts last.
        resources: what one pack asks for.
        claims: what was published about the study's conditions, for its report.
        protocol: the preset under the study's settings.
    """

    study: str
    description: str
    trials: tuple[PlannedTrial, ...]
    done: frozenset[str]
    packs: tuple[Pack, ...]
    resources: ResourcesConfig
    claims: Claims | None = None
    protocol: str = "matched"


def identified(sweep: SweepConfig) -> tuple[PlannedTrial, ...]:
    """The rows of a sweep with their identities.

    Raises:
        ConfigError: two rows are one trial, because they differ in cosmetic fields alone.
    """
    found: dict[str, PlannedTrial] = {}
    axes: set[str] = set()  # cosmetic fields that the grid varies
    for config in sweep.rows:
        trial = PlannedTrial(identity(config), config)
        if trial is not (first := found.setdefault(trial.identity, trial)):
            one, other = flatten(to_dict(first.config)), flatten(to_dict(config))
            axes |= {path for path in one | other if one.get(path) != other.get(path)}
    if axes:
        raise ConfigError(
            [f"grid.{path}: cannot change a trial's numbers. Take this axis out of the grid." for path in sorted(axes)],
            f"study {sweep.name!r}",
        )
    return tuple(found.values())


def make_plan(sweep: SweepConfig, trials: Sequence[PlannedTrial], done: Collection[str]) -> Plan:
    """Plan a sweep.

    Args:
        sweep: the study.
        trials: its rows, from ``identified``.
        done: identities that need no work.
    """
    packs = make_packs([trial for trial in trials if trial.identity not in done])
    return Plan(
        study=sweep.name,
        description=sweep.description,
        trials=tuple(trials),
        done=frozenset(done),
        packs=tuple(packs),
        resources=sweep.resources,
        claims=sweep.claims,
        protocol=sweep.protocol,
    )


def make_packs(trials: Sequence[PlannedTrial]) -> list[Pack]:
    """Group trials by program and cut the groups to size; a chain's trials are one pack, in order. Costliest first."""
    from memsweep.trial import program

    groups: dict[str, list[PlannedTrial]] = {}
    chains: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        if trial.config.chain is not None:
            chains.setdefault(_chain(trial.config, trial.config.chain), []).append(trial)
            continue
        groups.setdefault(program(trial.config), []).append(trial)
    packs = [pack_of(members) for group in groups.values() for members in _cut(group)]
    packs += [pack_of(sorted(chain, key=_position)) for chain in chains.values()]
    return sorted(packs, key=lambda pack: -pack.cost)


def _chain(config: TrialConfig, chain: ChainConfig) -> str:
    """What the trials of one chain share: everything but the axis that they run along."""
    fields = flatten(to_dict(config))
    return json.dumps({path: fields[path] for path in sorted(fields) if path not in (chain.along, "chain.earlier")})


def _position(trial: PlannedTrial) -> int:
    return len(trial.config.chain.earlier) if trial.config.chain is not None else 0


def _cut(group: Sequence[PlannedTrial]) -> list[list[PlannedTrial]]:
    packs: list[list[PlannedTrial]] = [[]]
    most = PACK_REPLICAS if group[0].config.has_closed_form else SAMPLED_REPLICAS
    room = most
    for trial in group:
        seeds = trial.config.training.seeds
        if packs[-1] and seeds > room:
            packs.append([])
            room = most
        packs[-1].append(trial)
        room -= seeds
    return packs


def pack_of(trials: Sequence[PlannedTrial]) -> Pack:
    """One pack of these trials."""
    together = [[trial] for trial in trials] if trials[0].config.chain is not None else [trials]
    cost = sum(_cost(members) for members in together)
    return Pack(pack_identity(trial.identity for trial in trials), tuple(trials), cost)


def _cost(trials: Sequence[PlannedTrial]) -> float:
    """Estimated work in nanoseconds of one core, roughly; see ``_sampled_cost`` for models without a closed form."""
    first = trials[0].config
    horizon = float(getattr(first.task, "horizon", 100))
    if not first.has_closed_form:
        return _sampled_cost(trials, horizon)
    training = first.training
    replicas = sum(trial.config.training.seeds * getattr(trial.config.model, "width", 1) for trial in trials)
    # a batch's statistics grow with the square of the horizon, each replica's response with width x horizon
    shared = horizon**2 * (training.batch_size + horizon) if training.objective == "minibatch" else horizon
    return training.steps * (shared / 40.0 + 4.0e5 + replicas * horizon * 20.0)


def _sampled_cost(trials: Sequence[PlannedTrial], horizon: float) -> float:
    """Steps of time, each a few torch calls over all states of a batch, in training and in the ascents."""
    training, perturbation = trials[0].config.training, trials[0].config.perturbation
    states = sum(trial.config.training.seeds * max(8, getattr(trial.config.model, "width", 1)) for trial in trials)
    ascents = perturbation.radii.count * (perturbation.starts + 6) * (perturbation.ascent_steps // 2 + 1)
    measured = len(perturbation.balls) * ascents
    call, per_state = 3.0e4, 15.0  # measured: of a step of time, forward and backward
    trained = training.steps * (call + per_state * states * training.batch_size)
    return horizon * (trained + measured * (call + per_state * states * perturbation.test_size))
