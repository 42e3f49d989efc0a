"""What a study will take: hours, memory and disk, from measurements of its costliest programs on this machine.

Programs that differ in numbers alone cost the same, and one of them is measured for all. Where the time of the probe
does not reach, the cost model (``memsweep.sweep.planning.cost``) stands in, brought to the scale of what was measured.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.errors import ConfigError
from memsweep.sweep.estimate.benchmark import Measured, Probed, evaluations, probe
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.identity import Arithmetic, identity, pack_identity
from memsweep.sweep.planning.resources import slots, this_machine, threads
from memsweep.sweep.worker.execute import PackJob

if TYPE_CHECKING:
    from memsweep.config.schema.trial import ResourcesConfig, TrialConfig
    from memsweep.sweep.estimate.expected_load import Wave

PROBE_SECONDS = 20.0
"""What a probe may take, the start of its processes included."""
MEASURED_FACTOR, MODEL_FACTOR = 2.0, 3.0
"""Within these factors the hours hold: where nine tenths of the work were measured well, and else."""

_PROCESSES = 4  # that probe side by side, at most
_SURE = 0.9  # part of the work that is to be measured for the smaller factor


@dataclass(frozen=True)
class Estimate:
    """What a study is expected to take.

    Attributes:
        seconds: of the clock on this machine, the start of Ray and its workers left out; None where no pack fits it.
        slots: packs that this machine runs at once; 0 where it cannot hold one.
        work: seconds of one pack after the other.
        measured: part of the work whose programs were measured, in [0, 1].
        kinds: programs of different cost; the second number is how many of them were measured.
        memory: bytes that the largest pack holds beyond its bare process; 0 where nothing was measured.
        disk: bytes of one stored row; 0 where nothing was measured.
        rows: that will be stored, expected.
        why_not: why nothing or not all was measured, a sentence for each reason.
        starting: seconds of the clock until a process was ready to begin; each worker needs them once.
        factor: within which the seconds are right, where nothing else runs and no training ends early.
    """

    seconds: float | None
    slots: int
    work: float
    measured: float
    kinds: tuple[int, int]
    memory: int
    disk: float
    rows: float
    why_not: tuple[str, ...] = ()
    factor: float = MODEL_FACTOR
    starting: float = 0.0


def estimate(
    waves: Sequence[Wave], resources: ResourcesConfig, workspace: Path, seconds: float = PROBE_SECONDS
) -> Estimate:
    """Estimate waves of packs.

    Args:
        waves: what will run.
        resources: what one pack asks for.
        workspace: folder whose ``tasks/`` the programs need.
        seconds: that the probe may take; 0 for none.
    """
    kinds = _kinds(waves)
    found, why_not = Probed(), list[str]()
    slots_here, trouble = _slots(resources)
    if not kinds or seconds <= 0:
        pass
    elif trouble:
        why_not.append(f"not measured here: {trouble}")
    else:
        found = probe(_jobs(kinds, resources, workspace), seconds, min(slots_here, _PROCESSES))
        why_not += sorted({f"a program could not be measured: {error}" for error in found.failed.values()})
    prices = _Prices(kinds, {list(kinds)[place]: measured for place, measured in found.found.items()})
    lengths = [[prices.pack(pack.trials, wave.begin) for pack in wave.packs] for wave in waves]
    work = sum(sum(packs) * wave.times for packs, wave in zip(lengths, waves, strict=True))
    whole: float | None = None
    if slots_here:
        whole = sum(makespan(packs, slots_here) * wave.times for packs, wave in zip(lengths, waves, strict=True))
    return Estimate(
        seconds=whole,
        slots=slots_here,
        work=work,
        measured=prices.measured_share,
        kinds=(len(kinds), len(prices.found)),
        memory=max((measured.memory for measured in prices.found.values()), default=0),
        disk=prices.disk,
        rows=sum(len(pack.trials) * wave.times for wave in waves for pack in wave.packs),
        why_not=tuple(why_not),
        starting=found.starting,
        factor=MEASURED_FACTOR if prices.sure_share >= _SURE else MODEL_FACTOR,
    )


def makespan(lengths: Iterable[float], slots: int) -> float:
    """When the last of these packs ends, each begun in its turn as soon as one of the slots is free."""
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


@dataclass
class _Kind:
    """Programs of equal cost.

    Attributes:
        trials: of one of them, that stands for all.
        cost: seconds of all of them, by the cost model.
    """

    trials: list[TrialConfig]
    cost: float = 0.0


def _kinds(waves: Iterable[Wave]) -> dict[str, _Kind]:
    """The kinds of programs, the costliest first."""
    found: dict[str, _Kind] = {}
    for wave in waves:
        for pack in wave.packs:
            for group in _programs(trial.config for trial in pack.trials):
                kind = found.setdefault(kind_of(group), _Kind(group))
                kind.cost += cost.seconds(group) * wave.times
                kind.trials = max(kind.trials, group, key=lambda trials: trials[0].training.end)
    return dict(sorted(found.items(), key=lambda item: -item[1].cost))


def _programs(trials: Iterable[TrialConfig]) -> list[list[TrialConfig]]:
    from memsweep.trial import program

    groups: dict[str, list[TrialConfig]] = {}
    for trial in trials:
        groups.setdefault(program(trial), []).append(trial)
    return list(groups.values())


def kind_of(group: Sequence[TrialConfig]) -> str:
    """What programs share that cost the same: all but numbers that are no sizes, and the length of the training."""
    from memsweep.learning.ensemble.flat_layout import bucket
    from memsweep.trial import program

    data = json.loads(program(_first_link(group[0])))
    for name in (
        "until",
        "turns",
        "steps",
        "validate_every",
        "checkpoint_every",
        "first_seed",
        "data_seed",
        "schedule",
    ):
        data["training"].pop(name, None)
    data["training"]["learns"] = group[0].training.end > 0
    data["perturbation"].pop("seed", None)
    widths = Counter[int]()
    for trial in group:
        widths[bucket(int(getattr(trial.model, "width", 1)))] += trial.training.seeds
    data["replicas"] = sorted(widths.items())
    data["horizon"] = getattr(group[0].task, "horizon", None)
    return json.dumps(_without_numbers(data), sort_keys=True)


def _first_link(trial: TrialConfig) -> TrialConfig:
    """A chained trial at the beginning of its chain, where it needs no other's result."""
    return (
        trial if trial.chain is None else dataclasses.replace(trial, chain=dataclasses.replace(trial.chain, earlier=()))
    )


def _without_numbers(data: Any) -> Any:
    """The same without floating-point numbers, which decide results and no sizes."""
    if isinstance(data, dict):
        return {key: _without_numbers(value) for key, value in data.items() if not isinstance(value, float)}
    return [_without_numbers(value) for value in data] if isinstance(data, list) else data


def _jobs(kinds: Mapping[str, _Kind], resources: ResourcesConfig, workspace: Path) -> list[PackJob]:
    from memsweep.config.schema.canonical import to_dict

    arithmetic = dataclasses.replace(Arithmetic.of(resources), shards=1)  # one process measures, without a crew
    jobs = []
    for kind in kinds.values():
        configs = [_first_link(trial) for trial in kind.trials]
        members = {identity(config, arithmetic): to_dict(config) for config in configs}
        jobs.append(
            PackJob(
                pack=pack_identity(members),
                study="probe",
                folder="",
                workspace=str(Path(workspace).resolve()),
                members=tuple(members.items()),
                threads=threads(resources),
                arithmetic=arithmetic,
            )
        )
    return jobs


def _slots(resources: ResourcesConfig) -> tuple[int, str]:
    """Packs that this machine runs at once, or 0 and why."""
    try:
        return slots(resources, [this_machine(resources)]), ""
    except ConfigError as error:
        return 0, " ".join(str(error).split())


@dataclass
class _Prices:
    """What programs cost, as measured or by the model on the scale of what was measured."""

    kinds: Mapping[str, _Kind]
    found: Mapping[str, Measured]
    _scales: dict[str, float] = field(default_factory=dict)

    def _scale(self, model: str) -> float:
        """Measured over modelled seconds, of programs of this model where there are any, else of all."""
        if model not in self._scales:
            groups = {name: self.kinds[name].trials for name in self.found}
            alike = {name: group for name, group in groups.items() if group[0].model.name == model} or groups
            by_model = sum(cost.seconds(group) for group in alike.values())
            measured = sum(seconds(self.found[name], group) for name, group in alike.items())
            self._scales[model] = measured / by_model if by_model else 1.0
        return self._scales[model]

    def pack(self, trials: Iterable[Any], begin: int) -> float:
        """Seconds of a pack whose trials have been trained for ``begin`` steps before."""
        return sum(self._program(group, begin) for group in _programs(trial.config for trial in trials))

    def _program(self, group: list[TrialConfig], begin: int) -> float:
        if (measured := self.found.get(kind_of(group))) is not None:
            return seconds(measured, group, begin)
        whole, end = cost.seconds(group), group[0].training.end
        if begin and end:
            measuring = cost.seconds([_untrained(trial) for trial in group])
            whole = measuring + (whole - measuring) * (end - begin) / end
        return whole * self._scale(group[0].model.name)

    @property
    def measured_share(self) -> float:
        """The part of the work, by the model, whose kinds were measured."""
        return self._share(self.found)

    @property
    def sure_share(self) -> float:
        """The part of the work whose kinds were measured well."""
        return self._share(name for name, measured in self.found.items() if measured.sure)

    def _share(self, names: Iterable[str]) -> float:
        whole = sum(kind.cost for kind in self.kinds.values())
        return sum(self.kinds[name].cost for name in names) / whole if whole else 0.0

    @property
    def disk(self) -> float:
        """Bytes of a row, in the mean over the rows that were measured."""
        rows = {name: len(self.kinds[name].trials) for name in self.found}
        return sum(self.found[name].disk * count for name, count in rows.items()) / (sum(rows.values()) or 1)


def _untrained(trial: TrialConfig) -> TrialConfig:
    return dataclasses.replace(trial, training=dataclasses.replace(trial.training, until=0, turns=(), steps=0))


def seconds(measured: Measured, group: Sequence[TrialConfig], begin: int = 0) -> float:
    """What a program costs that is of the kind that was measured.

    Args:
        measured: of this kind.
        group: the trials of the program.
        begin: steps that they have been trained before.
    """
    training, perturbation = group[0].training, group[0].perturbation
    steps = max(0, training.end - begin)
    return (
        measured.begin
        + steps * measured.step
        + steps / training.validate_every * measured.validation
        + measured.end
        + measured.unmoved
        + evaluations(perturbation) * measured.evaluation
        + len(group) * measured.storing
    )
