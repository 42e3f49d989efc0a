"""Early stopping by Ray Tune's schedulers, which get reports in the order of the trials.

Ray's classes decide. They expect a controller and its trials, so they get objects with the attributes that they read
and no others. The same calls on a new scheduler end in the same state, which is how a search resumes.
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
from memsweep.search.private_names import private
from memsweep.sweep.ray.session import import_ray

Decisions = dict[int, int | None]
"""Number of a suggestion -> optimizer step to which it trains next, or None: it trains no more."""


@dataclass(frozen=True)
class Report:
    """A suggestion at a look.

    Attributes:
        number: of the suggestion.
        steps: optimizer steps trained.
        value: the objective, smaller is better; not finite where it diverged or failed, which ends it.
    """

    number: int
    steps: int
    value: float


class Scheduler(ABC):
    """Decides at looks; a look is the step at which a suggestion's trial ends for now.

    Args:
        config: which one, and its budget in steps.
        steps: of the whole training.
        multiple: looks are at multiples of so many steps (``training.validate_every``), rounded up.
    """

    def __init__(self, config: SchedulerConfig, steps: int, multiple: int = 1) -> None:
        self._config, self._steps, self._multiple = config, steps, multiple

    @abstractmethod
    def first(self, number: int) -> int:
        """Add a suggestion; the step of its first look, ``steps`` where it has none before the end.

        Suggestions are added in the order of their numbers, each once, before they are reported.
        """

    @abstractmethod
    def report(self, reports: Sequence[Report], more: bool = True) -> Decisions:
        """Decide on suggestions at their looks, and at their ends.

        Args:
            reports: one for each trial that ended, in the order of the trials.
            more: whether other suggestions may still enter; if not, those that wait for them are decided.

        Returns:
            Decisions on all suggestions that can be decided now, also ones reported earlier; None for those that ended,
            diverged, or are stopped.
        """

    def _round(self, step: float) -> int:
        """The step of a look: the next multiple, at most all steps."""
        return min(self._multiple * math.ceil(step / self._multiple - 1e-9), self._steps)


def scheduler(config: SchedulerConfig, steps: int, multiple: int = 1) -> Scheduler:
    """The scheduler of a search; population-based training, which copies states, is in ``stopping.population``.

    Raises:
        ValueError: the name is no early-stopping scheduler's.
    """
    kinds: Mapping[str, type[Scheduler]] = {NONE: _NoStopping, ASHA: _AtOnce, HYPERBAND: _HyperBand, MEDIAN: _AtOnce}
    if config.name not in kinds:
        raise ValueError(f"{config.name!r} stops nobody early; allowed: {', '.join(kinds)}")
    # with no look before the end there is nothing to decide
    kind = kinds[config.name] if config.grace < steps else _NoStopping
    return kind(config, steps, multiple)


class _NoStopping(Scheduler):
    def first(self, number: int) -> int:
        return self._steps

    def report(self, reports: Sequence[Report], more: bool = True) -> Decisions:
        return {one.number: None for one in reports}


@dataclass(eq=False)
class _Trial:
    """The attributes of a trial that Ray's schedulers read."""

    number: int
    status: str = "RUNNING"
    is_saving: bool = False
    dead: bool = False

    @property
    def trial_id(self) -> str:
        return str(self.number)


class _AtOnce(Scheduler):
    """Looks at fixed steps, and a decision at once: no suggestion waits for others.

    Asynchronous successive halving (Li et al. 2020, arXiv 1810.05934) or the median stopping rule (Golovin et al. 2017,
    Google Vizier; infinite means do not count), by Ray.
    """

    def __init__(self, config: SchedulerConfig, steps: int, multiple: int = 1) -> None:
        import_ray()
        from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule

        super().__init__(config, steps, multiple)
        self._halves = config.name == ASHA
        grace = self._round(config.grace)
        common: dict[str, Any] = {"time_attr": "steps", "metric": "value", "mode": "min", "grace_period": grace}
        self._ray = (
            AsyncHyperBandScheduler(**common, max_t=steps, reduction_factor=config.reduction)
            if self._halves
            else MedianStoppingRule(**common)
        )
        looks, step = {steps}, float(grace)
        while step < steps:
            looks.add(self._round(step))
            step = step * config.reduction if self._halves else step + config.interval
        self._looks = sorted(looks)
        self._trials: dict[int, _Trial] = {}

    def first(self, number: int) -> int:
        trial = self._trials[number] = _Trial(number)
        with _untouched():
            self._ray.on_trial_add(self, trial)
        return self._looks[0]

    def report(self, reports: Sequence[Report], more: bool = True) -> Decisions:
        decided: Decisions = {}
        for one in reports:
            value = scaled = one.value if math.isfinite(one.value) else math.inf
            if self._halves:
                # Ray's cutoff interpolates between two recorded values, and is NaN where one is infinite, which stops
                # nothing. So values are mapped into (-1, 1], in the same order.
                scaled = 1.0 if math.isinf(value) else value / (1.0 + abs(value))
            result = {"steps": one.steps, "value": scaled}
            action = self._ray.on_trial_result(self, self._trials[one.number], result)
            stop = action == "STOP" or math.isinf(value)
            decided[one.number] = None if stop else next((look for look in self._looks if look > one.steps), None)
        return decided

    def get_live_trials(self) -> list[_Trial]:
        """For Ray: the trials that wait for resources. Here none does."""
        return []


class _HyperBand(Scheduler):
    """HyperBand (Li et al. 2018, arXiv 1603.06560), by Ray: brackets of suggestions, each halved at its own pace.

    Time is counted in units of ``grace`` steps, so that the fastest bracket looks first after one of them. A bracket is
    halved when it is full, or no suggestion enters any more: Ray alone would halve an incomplete one. A suggestion that
    survives the last halving trains to the end: where ``steps / grace`` is no power of ``reduction``, Ray alone would
    end it before.
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
        # a diverged suggestion was decided when it was reported
        if not trial.dead:
            self._decided[trial.number] = step

    def _deliver(self, trial: _Trial, value: float) -> None:
        """Report a suggestion at its look to Ray, and apply the decisions on it and on those that waited for it."""
        bracket = self._bracket(trial)
        trial.status = "RUNNING"
        # a diverged suggestion ended somewhere before its look, and is the last of its bracket at each that follows
        result = {"units": private("ray", bracket, "_cumul_r"), "value": math.inf if trial.dead else value}
        action = self._ray.on_trial_result(self, trial, result)
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
        if private("ray", bracket, "_halves") == 0:
            return self._steps
        return min(private("ray", bracket, "_cumul_r") * self._unit, self._steps)

    def _bracket(self, trial: _Trial) -> Any:
        return private("ray", self._ray, "_trial_info")[trial][0]


@contextmanager
def _untouched() -> Iterator[None]:
    """Restores numpy's global random state: Ray's halving draws a bracket from it, of one."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)
