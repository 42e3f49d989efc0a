"""The hours, memory and disk that a study will take, by the cost model and measurements on this machine.

The settings of a search are not known before it runs: settings spread evenly over its space stand in for them, and all
of them train to the end, which is a bound where a scheduler ends trainings early.

The cost model (``memsweep.sweep.planning.cost``) knows how costs grow with sizes. Its scale is corrected by measuring
a few steps of its costliest programs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import LOG_INT, LOG_UNIFORM
from memsweep.config.schema.study import KEEP
from memsweep.errors import ConfigError
from memsweep.sweep.estimate.benchmark import Benchmark, Measured, benchmark
from memsweep.sweep.estimate.kept import KeptMeasurements
from memsweep.sweep.estimate.nodes import Lengths, makespan
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.identity import Arithmetic
from memsweep.sweep.planning.plan import Pack, ends_below, identified, make_packs, pack_seconds
from memsweep.sweep.planning.plan import programs as by_program
from memsweep.sweep.planning.resources import local_cpus, slots, this_machine, threads

if TYPE_CHECKING:
    from memsweep.config.schema.search import Domain, Search
    from memsweep.config.schema.study import ResourcesConfig, SweepConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.planning.plan import PlannedTrial

BENCHMARK_SECONDS = 8.0
"""The longest measurement, without the start of its process, see ``benchmark``. The next plan goes on with it."""
RAY_SECONDS = 10.0
"""Seconds until Ray has started, without its workers."""
MEASURED_FACTOR, MODEL_FACTOR = 2.0, 3.0
"""The hours hold within these factors: if nine tenths of the work were measured well, and otherwise."""

_SURE_SHARE, _SURE_LEVELS = 0.9, 3  # of the work, and of the runs of a program, for the smaller factor


@dataclass(frozen=True)
class Wave:
    """Packs that run side by side.

    Attributes:
        packs: of one wave.
        times: how many such waves there are.
    """

    packs: tuple[Pack, ...]
    times: float = 1.0


def waves(sweep: SweepConfig, packs: Sequence[Pack]) -> tuple[Wave, ...]:
    """The waves of a study; ``packs`` are the remaining ones of its plan, if it has no search."""
    if (search := sweep.search) is None:
        return (Wave(tuple(packs)),)
    batch = min(search.settings.batch, search.settings.trials)
    found = [Wave(_packs(_suggestions(sweep, search, batch), sweep), search.settings.trials / batch)]
    if (confirm := sweep.confirm) is not None:
        best = _suggestions(sweep, search, confirm.top)
        found.append(Wave(_packs([_with_training(config, seeds=confirm.seeds) for config in best], sweep)))
    return tuple(found)


def _suggestions(sweep: SweepConfig, search: Search, count: int) -> list[TrialConfig]:
    return [suggestion(cell, search, place) for cell in sweep.rows for place in range(count)]


def _with_training(config: TrialConfig, **changes: Any) -> TrialConfig:
    return replace(config, training=replace(config.training, **changes))


def _packs(trials: Sequence[TrialConfig], sweep: SweepConfig) -> tuple[Pack, ...]:
    planned = identified(replace(sweep, rows=tuple(trials), search=None, confirm=None))
    return tuple(make_packs(planned, pack_seconds(planned)))


def suggestion(cell: TrialConfig, search: Search, place: int) -> TrialConfig:
    """A cell's trial with settings from the search's space, evenly spread over places 0, 1, ...

    The cell's own settings replace a combination that is no legal trial.
    """
    from memsweep.config.search.domains import order
    from memsweep.config.search.suggestion import config_of, fixed_of

    known, values = fixed_of(cell, search.space), dict[str, Any]()
    for number, path in enumerate(order(search.space)):  # a field comes after the fields of its condition
        domain = search.space[path]
        if domain.applies(known):
            # multiples of an irrational number spread evenly; each field has its own
            known[path] = values[path] = _value(domain, (0.5 + place * math.sqrt(2 + 4 * number)) % 1.0)
    with contextlib.suppress(ConfigError):
        cell = config_of(cell, values)
    # trials of one wave have different seeds, because their settings may be the same
    return _with_training(cell, first_seed=cell.training.first_seed + place * cell.training.seeds)


def _value(domain: Domain, share: float) -> Any:
    """The value at this share of a domain, in [0, 1)."""
    if not domain.is_numeric:
        return domain.values[int(share * len(domain.values))]
    if domain.kind in (LOG_UNIFORM, LOG_INT):
        value = domain.low * (domain.high / domain.low) ** share
    else:
        value = domain.low + share * (domain.high - domain.low)
    return min(max(round(value), int(domain.low)), int(domain.high)) if domain.is_whole else value


@dataclass(frozen=True)
class Took:
    """Core seconds of trials with a result, and those of the cost model."""

    seconds: float = 0.0
    modelled: float = 0.0
    trials: int = 0

    def plus(self, seconds: float, modelled: float) -> Took:
        """With one trial more; one whose seconds are not known is left out."""
        return Took(self.seconds + seconds, self.modelled + modelled, self.trials + 1) if seconds > 0.0 else self


@dataclass(frozen=True)
class Estimate:
    """The time, memory and disk that a study is expected to take.

    Attributes:
        seconds: of the clock on this machine, without the start of Ray and its workers; None if no pack fits it.
        slots: packs that this machine runs at once; 0 if it cannot hold one.
        work: seconds of one pack after the other.
        measured: part of the work whose programs' training was measured, in [0, 1].
        kinds: how many programs of different cost there are, and of how many the training was measured.
        whole: of how many, what follows the training was measured, too.
        kept: how many of the measured ones an earlier plan has measured, all that is known of them.
        at_once: packs that run at once on this machine: its slots, or fewer where there are fewer packs.
        idle: cores of this machine that no pack uses then.
        took: how many stored trials scale the cost of what was not measured whole.
        soonest: seconds of the work where each training ends as soon as ``training.stop_below`` lets it; None where no
            training has one.
        memory: bytes that the largest pack holds beyond its bare process; 0 if nothing was measured.
        disk: bytes of one stored trial; 0 if nothing was measured.
        weights: those of its trained weights among them.
        rows: trials that are expected to be stored.
        why_not: sentences: what was not measured, what else the numbers rest on.
        factor: the seconds hold within it, if nothing else runs and no training ends early.
        starting: seconds until a process was ready to begin; each worker needs them once.
        lengths: seconds of each pack, by what packs ask for and by wave.
    """

    seconds: float | None
    slots: int
    work: float
    measured: float
    kinds: tuple[int, int]
    memory: int
    disk: float
    weights: float
    rows: float
    why_not: tuple[str, ...] = ()
    factor: float = MODEL_FACTOR
    starting: float = 0.0
    lengths: Lengths = ()
    whole: int = 0
    kept: int = 0
    at_once: int = 0
    idle: int = 0
    took: int = 0
    soonest: float | None = None

    @property
    def starting_on_ray(self) -> float:
        """Seconds until Ray and its workers have started."""
        return RAY_SECONDS + self.starting


def modelled_work(waves: Iterable[Wave]) -> float:
    """Seconds of one pack after the other by the cost model alone."""
    return sum(
        wave.times * cost.seconds(group) for wave in waves for pack in wave.packs for group in _configs(pack.trials)
    )


def estimate(
    waves: Sequence[Wave],
    resources: ResourcesConfig,
    workspace: Path,
    seconds: float = BENCHMARK_SECONDS,
    keep: str = KEEP[0],
    kept: KeptMeasurements | None = None,
    took: Mapping[str, Took] | None = None,
) -> Estimate:
    """Estimate waves of packs.

    Args:
        waves: what will run.
        resources: what one pack asks for.
        workspace: folder whose ``tasks/`` the programs need.
        seconds: of the measurement; 0 for none.
        kept: what earlier plans have measured, and where this one's measurements go.
        took: by model, what trials of the same study took.
    """
    programs, result, why_not = _programs_by_kind(waves), Benchmark(), list[str]()
    before = 0
    kinds: dict[ResourcesConfig, dict[str, list[TrialConfig]]] = {}
    for name, program in programs.items():
        kinds.setdefault(resources.of(program.trials[0]), {})[name] = program.trials
    slots_here = min((_slots(kind)[0] for kind in kinds), default=_slots(resources)[0])
    for kind, groups in kinds.items():
        if seconds and (problem := _slots(kind)[1]):
            why_not.append(f"not measured here: {problem}")
            continue
        arithmetic = replace(Arithmetic.of(kind), shards=1)  # one process measures alone
        known = {} if kept is None else kept.of(groups, arithmetic, threads(kind), keep)
        left = {name: trials for name, trials in groups.items() if name not in known or known[name].evaluation is None}
        part = Benchmark()
        if seconds and left:
            part = benchmark(left, arithmetic, threads(kind), workspace, seconds / len(kinds), keep, known)
            if kept is not None:
                kept.add(left, part, arithmetic, threads(kind), keep)
        before += len(known.keys() - part.measured.keys())
        result = replace(
            part,
            measured=result.measured | known | part.measured,
            failed=result.failed | part.failed,
            starting=max(result.starting, part.starting, kept.starting if kept is not None else 0.0),
        )
    why_not += sorted({f"a program could not be measured: {error}" for error in result.failed.values()})
    prices = _Prices(programs, result.measured, took or {})
    lengths = [(prices.packs(wave), wave.times) for wave in waves]
    work, soonest = sum(sum(packs) * times for packs, times in lengths), prices.soonest(waves)
    at_once = min(slots_here, max((len(wave.packs) for wave in waves), default=0))
    cores = max((kind.cpus * kind.workers for kind in kinds), default=0.0)
    return Estimate(
        seconds=sum(makespan(packs, slots_here) * times for packs, times in lengths) if slots_here else None,
        slots=slots_here,
        work=work,
        measured=prices.share(result.measured),
        kinds=(len(programs), len(result.measured)),
        memory=max((measured.memory for measured in result.measured.values()), default=0),
        disk=prices.bytes_of_a_trial("disk"),
        weights=prices.bytes_of_a_trial("weights"),
        rows=sum(len(pack.trials) * wave.times for wave in waves for pack in wave.packs),
        why_not=tuple(why_not),
        starting=result.starting,
        factor=prices.factor,
        lengths=_lengths(waves, prices, resources),
        whole=sum(measured.evaluation is not None for measured in result.measured.values()),
        kept=before,
        at_once=at_once,
        took=prices.took(),
        idle=max(0, math.floor(local_cpus() - at_once * cores)) if at_once else 0,
        soonest=soonest if soonest < work else None,
    )


def _lengths(waves: Sequence[Wave], prices: _Prices, resources: ResourcesConfig) -> Lengths:
    found = []
    for wave in waves:
        kinds: dict[ResourcesConfig, list[float]] = {}
        for pack, seconds in zip(wave.packs, prices.packs(wave), strict=True):
            kinds.setdefault(resources.of(pack.trials[0].config), []).append(seconds)
        found += [(kind, seconds, wave.times) for kind, seconds in kinds.items()]
    return found


@dataclass
class _Program:
    """Programs of equal cost.

    Attributes:
        trials: of one of them, which stands for all.
        cost: seconds of all of them, by the cost model.
    """

    trials: list[TrialConfig]
    cost: float = 0.0


def _programs_by_kind(waves: Iterable[Wave]) -> dict[str, _Program]:
    """The kinds of programs, the costliest first."""
    kinds: dict[str, _Program] = {}
    for wave in waves:
        for pack in wave.packs:
            for group in _configs(pack.trials):
                kind = kinds.setdefault(kind_of(group), _Program(group))
                kind.cost += cost.seconds(group) * wave.times
                kind.trials = max(kind.trials, group, key=lambda trials: trials[0].training.end)
    return dict(sorted(kinds.items(), key=lambda item: -item[1].cost))


def _configs(trials: Iterable[PlannedTrial]) -> list[list[TrialConfig]]:
    trials = list(trials)
    trained = by_program(trial for trial in trials if not trial.trained[0])
    measured = by_program(trial for trial in trials if trial.trained[0])
    return [[trial.config for trial in group] for group in trained] + [
        [_with_training(trial.config, steps=0, until=0, turns=()) for trial in group] for group in measured
    ]


def kind_of(group: Sequence[TrialConfig]) -> str:
    """Name of all programs that cost the same for each step: equal parts and, by the cost model, equal sizes."""
    first = group[0]
    seconds = cost.seconds([_of_standard_length(trial) for trial in group])
    sizes = (first.training.batch_size, first.training.validation_size)  # what a validation takes is in no cost model
    parts = (first.task.name, getattr(first.task, "horizon", ""), first.model.name, *sizes)
    return f"{parts} {len(group)} trials, chained: {first.chain is not None}, {seconds:.6g}"


def _ended_soonest(trial: TrialConfig) -> TrialConfig:
    """The trial, whose training ends at the first validation after which ``training.stop_below`` may end it."""
    if not ends_below(trial):
        return trial
    training = trial.training
    validations = max(1, math.ceil(training.smallest_steps / training.validate_every))
    soonest = min(training.end, validations * training.validate_every)
    return _with_training(trial, until=soonest if soonest < training.steps else 0, turns=())


def _of_standard_length(trial: TrialConfig) -> TrialConfig:
    return _with_training(trial, until=0, turns=(), steps=1000 if trial.training.end else 0)


def _slots(resources: ResourcesConfig) -> tuple[int, str]:
    """Packs that this machine runs at once; 0 and the reason if there is no room for one."""
    try:
        return slots(resources, [this_machine(resources)]), ""
    except ConfigError as error:
        return 0, " ".join(str(error).split())


@dataclass
class _Prices:
    """Seconds of programs, and bytes of trials.

    Programs that were measured whole take that; else the cost model counts, on the scale of the study's stored trials
    of the same model, or of measured programs.
    """

    programs: Mapping[str, _Program]
    measured: Mapping[str, Measured]
    stored: Mapping[str, Took]
    _ratios: dict[str, float] = field(default_factory=dict)

    def packs(self, wave: Wave) -> list[float]:
        """Seconds of each pack of a wave."""
        return [sum(map(self._program, _configs(pack.trials))) for pack in wave.packs]

    def soonest(self, waves: Iterable[Wave]) -> float:
        """Seconds of one pack after the other, where each training ends as soon as it may."""
        programs = ((wave.times, group) for wave in waves for pack in wave.packs for group in _configs(pack.trials))
        return sum(times * self._program([*map(_ended_soonest, group)]) for times, group in programs)

    def bytes_of_a_trial(self, kind_of_files: str) -> float:
        """Bytes of one stored trial, ``disk`` or ``weights``: the mean over the measured programs."""
        trials = {kind: len(self.programs[kind].trials) for kind, each in self.measured.items() if each.levels}
        whole = sum(getattr(self.measured[kind], kind_of_files) * count for kind, count in trials.items())
        return whole / max(1, sum(trials.values()))

    @property
    def factor(self) -> float:
        """The seconds hold within it."""
        sure = [kind for kind, measured in self.measured.items() if measured.levels >= _SURE_LEVELS]
        return MEASURED_FACTOR if self.share(sure) >= _SURE_SHARE else MODEL_FACTOR

    def share(self, kinds: Iterable[str]) -> float:
        """The part of the work, by the cost model, that these kinds are."""
        whole = sum(program.cost for program in self.programs.values())
        return sum(self.programs[kind].cost for kind in kinds) / whole if whole else 0.0

    def took(self) -> int:
        """How many stored trials scale the cost of programs."""
        whole = {kind for kind, each in self.measured.items() if each.evaluation is not None}
        models = {program.trials[0].model.name for kind, program in self.programs.items() if kind not in whole}
        return sum(took.trials for model, took in self.stored.items() if model in models)

    def _program(self, group: list[TrialConfig]) -> float:
        measured, stored = self.measured.get(kind_of(group)), self.stored.get(group[0].model.name)
        if measured is not None and (measured.evaluation is not None or stored is None):
            return measured.seconds(group)
        if stored is not None:
            return cost.seconds(group) * stored.seconds / stored.modelled
        return cost.seconds(group) * self._ratio(group[0].model.name)

    def _ratio(self, model: str) -> float:
        """Measured over modelled seconds: of programs of this model, else of all."""
        if model not in self._ratios:
            alike = {kind for kind in self.measured if self.programs[kind].trials[0].model.name == model}
            groups = {kind: self.programs[kind].trials for kind in alike or self.measured}
            modelled = sum(cost.seconds(group) for group in groups.values())
            measured = sum(self.measured[kind].seconds(group) for kind, group in groups.items())
            self._ratios[model] = measured / modelled if modelled else 1.0
        return self._ratios[model]
