"""Who trains on and who is stopped: Ray Tune's schedulers, driven by reports in the order of the rows.

Ray's classes decide; who asks them, when, and about what, is ours. They were written for a controller that runs trials
as it likes, so they are given stand-ins for it and for its trials, with what they look at and no more. A scheduler's
state is what its calls made of it: the same calls on a new one end in the same state, which is how a search resumes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from memsweep.config.schema.search import ASHA, HYPERBAND, MEDIAN, NONE, SchedulerConfig
from memsweep.sweep.ray.session import import_ray

Decisions = dict[int, int | None]
"""Number of a suggestion -> optimizer step to which it trains next, or None: it trains no more."""


@dataclass(frozen=True)
class Report:
    """What a member had reached when it was looked at.

    Attributes:
        number: of its suggestion.
        steps: optimizer steps trained.
        value: the objective, smaller is better; not finite where it diverged or failed, which ends it.
    """

    number: int
    steps: int
    value: float


class Scheduler(ABC):
    """Decides at looks; a look is the step at which a member's row ends for now.

    Args:
        config: which one, and its budget in steps.
        steps: of the whole training.
        multiple: looks are at multiples of so many steps (``training.validate_every``), rounded up.
    """

    def __init__(self, config: SchedulerConfig, steps: int, multiple: int = 1) -> None:
        self._config, self._steps, self._multiple = config, steps, multiple

    @abstractmethod
    def first(self, number: int) -> int:
        """Enter a new member; the step of its first look, ``steps`` where it is never looked at before the end.

        Members enter in the order of their numbers, each once, before it is reported.
        """

    @abstractmethod
    def report(self, reports: Sequence[Report], more: bool = True) -> Decisions:
        """Hear of members at their looks, and at their ends, in the order of the rows.

        Args:
            reports: one for each row that ended.
            more: whether other members may still enter; those that wait for them are decided when not.

        Returns:
            Decisions on all members that can be decided now, also ones reported earlier; None for those that ended, for
            the diverged, and for those that are stopped.
        """

    def _round(self, step: float) -> int:
        """The step of a look: the next multiple, at most all steps."""
        return min(self._multiple * math.ceil(step / self._multiple - 1e-9), self._steps)


def scheduler(config: SchedulerConfig, steps: int, multiple: int = 1) -> Scheduler:
    """The scheduler of a search; for population-based training, which takes over states, see ``search.population``.

    Raises:
        ValueError: the name is no early-stopping scheduler's.
    """
    kinds: Mapping[str, type[Scheduler]] = {NONE: _Everybody, ASHA: _Asha, HYPERBAND: _HyperBand, MEDIAN: _Median}
    if config.name not in kinds:
        raise ValueError(f"{config.name!r} stops nobody early; allowed: {', '.join(kinds)}")
    # with no look before the end there is nothing to decide
    kind = kinds[config.name] if config.grace < steps else _Everybody
    return kind(config, steps, multiple)


class _Everybody(Scheduler):
    def first(self, number: int) -> int:
        return self._steps

    def report(self, reports: Sequence[Report], more: bool = True) -> Decisions:
        return {one.number: None for one in reports}


@dataclass(eq=False)
class _Trial:
    """What Ray's schedulers look at of a trial."""

    number: int
    status: str = "RUNNING"
    is_saving: bool = False
    dead: bool = False

    @property
    def trial_id(self) -> str:
        return str(self.number)


class _Looked(Scheduler):
    """Looks at fixed steps, and a decision at once: nobody waits for others."""

    def __init__(self, config: SchedulerConfig, steps: int, multiple: int = 1) -> None:
        super().__init__(config, steps, multiple)
        self._looks = sorted({self._round(step) for step in self._milestones()} | {steps})
        self._trials: dict[int, _Trial] = {}
        self._ray = self._theirs()

    @abstractmethod
    def _milestones(self) -> Iterator[float]:
        """Steps at which they want to decide, before they are rounded."""

    @abstractmethod
    def _theirs(self) -> Any:
        """Ray's scheduler."""

    def _told(self, value: float) -> float:
        """A value as Ray's scheduler hears it."""
        return value

    def first(self, number: int) -> int:
        trial = self._trials[number] = _Trial(number)
        with _untouched():
            self._ray.on_trial_add(self, trial)
        return self._looks[0]

    def report(self, reports: Sequence[Report], more: bool = True) -> Decisions:
        decided: Decisions = {}
        for one in reports:
            value = one.value if math.isfinite(one.value) else math.inf
            result = {"steps": one.steps, "value": self._told(value)}
            action = self._ray.on_trial_result(self, self._trials[one.number], result)
            stop = action == "STOP" or math.isinf(value)
            decided[one.number] = None if stop else next((look for look in self._looks if look > one.steps), None)
        return decided

    def get_live_trials(self) -> list[_Trial]:
        """For Ray: the trials that wait for room, for whose sake another may be paused. Here none ever is."""
        return []


class _Asha(_Looked):
    """Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934), by Ray."""

    def _milestones(self) -> Iterator[float]:
        step = float(self._round(self._config.grace))
        while step < self._steps:
            yield step
            step *= self._config.reduction

    def _theirs(self) -> Any:
        import_ray()
        from ray.tune.schedulers import AsyncHyperBandScheduler

        return AsyncHyperBandScheduler(
            time_attr="steps",
            metric="value",
            mode="min",
            max_t=self._steps,
            grace_period=self._round(self._config.grace),
            reduction_factor=self._config.reduction,
        )

    def _told(self, value: float) -> float:
        # Ray's cutoff lies between two of the recorded values; beside an infinite one it would be NaN, below which
        # nobody is. So values are bent into (-1, 1], in the same order.
        return value / (1.0 + abs(value)) if math.isfinite(value) else 1.0


class _Median(_Looked):
    """The median stopping rule (Golovin et al. 2017, Google Vizier), by Ray; infinite means do not count."""

    def _milestones(self) -> Iterator[float]:
        step = self._round(self._config.grace)
        while step < self._steps:
            yield step
            step += self._config.interval

    def _theirs(self) -> Any:
        import_ray()
        from ray.tune.schedulers import MedianStoppingRule

        return MedianStoppingRule(
            time_attr="steps", metric="value", mode="min", grace_period=self._round(self._config.grace)
        )


class _HyperBand(Scheduler):
    """HyperBand (Li et al. 2018, arXiv 1603.06560), by Ray: brackets of members, each halved at its own pace.

    Time is counted in units of ``grace`` steps, so that the hastiest bracket looks first after one of them. A bracket
    is halved when it is full, or nobody enters any more: Ray alone would halve whoever is there. Who survives the last
    halving trains to the end: where ``steps / grace`` is no power of ``reduction``, Ray alone would end it before.
    """

    def __init__(self, config: SchedulerConfig, steps: int, multiple: int = 1) -> None:
        import_ray()
        from ray.tune.schedulers import HyperBandScheduler

        super().__init__(config, steps, multiple)
        self._unit = self._round(config.grace)
        self._ray = HyperBandScheduler(
            time_attr="units",
            metric="value",
            mode="min",
            max_t=max(steps // self._unit, 1),
            reduction_factor=config.reduction,
        )
        self._trials: dict[int, _Trial] = {}
        self._held: list[tuple[_Trial, float]] = []
        self._decided: Decisions = {}

    def first(self, number: int) -> int:
        trial = self._trials[number] = _Trial(number)
        self._ray.on_trial_add(self, trial)
        return self._next(trial)

    def report(self, reports: Sequence[Report], more: bool = True) -> Decisions:
        self._decided = {}
        for one in reports:
            trial = self._trials[one.number]
            if not math.isfinite(one.value) or one.steps >= self._steps:
                trial.dead = not math.isfinite(one.value)
                self._decided[one.number] = None
            # a bracket whose last halving is over has nothing more to decide
            if self._next(trial) < self._steps:
                self._held.append((trial, one.value))
        held, self._held = self._held, []
        for trial, value in held:
            if more and not self._bracket(trial).filled():
                self._held.append((trial, value))
            else:
                self._deliver(trial, value)
        return self._decided

    def stop_trial(self, trial: _Trial) -> None:
        """For Ray: end a trial that waits for its bracket."""
        trial.status = "TERMINATED"
        self._decide(trial, None)
        self._ray.on_trial_remove(self, trial)

    def _decide(self, trial: _Trial, step: int | None) -> None:
        # on one that diverged it was decided when it was reported
        if not trial.dead:
            self._decided[trial.number] = step

    def _deliver(self, trial: _Trial, value: float) -> None:
        """Tell Ray of a member at its look, and go on as it decides: on this one, and on those that waited for it."""
        bracket = self._bracket(trial)
        trial.status = "RUNNING"
        # a diverged member ended somewhere before its look, and is the last of its bracket at each that follows
        told = {"units": bracket._cumul_r, "value": math.inf if trial.dead else value}
        action = self._ray.on_trial_result(self, trial, told)
        trial.status = {"PAUSE": "PAUSED", "STOP": "TERMINATED"}.get(action, "RUNNING")
        if action == "STOP":
            self._decide(trial, None)
        going = [other for other in bracket.trials_to_unpause if other.status == "PAUSED"]
        going = sorted([*going, *([trial] if action == "CONTINUE" else [])], key=lambda other: other.number)
        for other in going:
            other.status = "RUNNING"
            self._decide(other, self._next(other))
        for other in going:
            if other.dead and self._next(other) < self._steps:
                self._deliver(other, math.inf)

    def _next(self, trial: _Trial) -> int:
        bracket = self._bracket(trial)
        return self._steps if bracket._halves == 0 else min(bracket._cumul_r * self._unit, self._steps)

    def _bracket(self, trial: _Trial) -> Any:
        # Ray offers no other way to its brackets than these names; the tests hold them
        return self._ray._trial_info[trial][0]


@contextmanager
def _untouched() -> Iterator[None]:
    """numpy's global random numbers stay as they are: Ray's halving draws a bracket from them, of one."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)
