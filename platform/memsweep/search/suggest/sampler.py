"""Suggestions: samplers as a pure function of the results that they are told.

An Optuna study is built in memory for each question and discarded after it, so that a search has no state but its own
log. A sampler's notes on a trial (NSGA-II's generations, CMA-ES's) are the suggestion's memo and come back with the
result. Optimizers are not pickled: a pickle in a study's folder could be somebody else's program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import CMA_ES, GP, GRID, MOST_COMBINATIONS, NSGA_II, Domain, SearchConfig
from memsweep.search.suggest import space as spaces
from memsweep.search.suggest.algorithms import finite, quiet, sampler
from memsweep.search.suggestions import Result, Suggestion
from memsweep.streams import Stream

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

_TRIES = 4
"""Times that a sampler is asked again before chance decides."""
_DRAWS = 64
"""Random draws before what is left is counted."""
_OWN = ("relative_params", "fixed_params")
"""Parts of names of notes that are not kept: copies of the parameters."""


def ask(
    search: SearchConfig,
    space: Mapping[str, Domain],
    fixed: Mapping[str, Any],
    modes: Sequence[str],
    told: Sequence[tuple[Suggestion, Result]],
    pending: Sequence[Suggestion],
    count: int,
    seed: int,
) -> list[Suggestion]:
    """Suggests what to try: the same arguments give the same suggestions in any process (on one class of processor).

    What the samplers are told:

    - a value that is infinite in the bad direction, or not a number (a diverged trial), becomes one beyond the worst
      finite value of its objective, by the distance from best to worst; infinite in the good direction, likewise
      beyond the best. Rank-based samplers need an order, the Gaussian process and hypervolumes finite numbers.
    - a failed trial is told as failed, and all samplers ignore it.
    - a trial that was stopped early is told as pruned, with its value at its last step. The Gaussian process and
      NSGA-II know no pruned trials; they get that value as the trial's own. With several objectives it is ignored.
    - ``gp`` gets logarithms of an objective where they are the likelier Gaussian process, as of losses over decades
      (``search.suggest.gaussian``).

    Args:
        search: the algorithm and its settings. ``startup`` is also the size of NSGA-II's generations; CMA-ES's are its
            usual ``4 + 3 ln n``, made a multiple of ``batch`` so that no result comes too late for its generation.
        space: dotted path -> domain.
        fixed: the cell's own values of fields that conditions name and that are not searched.
        modes: ``min`` or ``max`` for each objective.
        told: suggestions that have ended, with their results, in any order.
        pending: suggestions that have not ended.
        count: how many to suggest.
        seed: decides all chance; another one for each question (each search, each round).

    Returns:
        New suggestions, numbered on; none equals another. Fewer than ``count`` where there are no
        more. Values are plain Python.

    Raises:
        MemsweepError: ``cma_es`` is asked for, and the package ``cmaes`` is not installed.
    """
    if count < 1:
        return []
    with quiet():
        question = _Question(search, space, fixed, modes, seed)
        question.tell(told, pending)
        number = max((suggestion.number for suggestion in _known(told, pending)), default=-1)
        made: list[Suggestion] = []
        while len(made) < count:
            number += 1
            if (new := question.next(number)) is None:
                break
            made.append(new)
        return made


def _known(told: Sequence[tuple[Suggestion, Result]], pending: Sequence[Suggestion]) -> list[Suggestion]:
    return [suggestion for suggestion, _ in told] + list(pending)


class _Question:
    """One question to a sampler."""

    def __init__(
        self,
        search: SearchConfig,
        space: Mapping[str, Domain],
        fixed: Mapping[str, Any],
        modes: Sequence[str],
        seed: int,
    ) -> None:
        import optuna

        self._search, self._space, self._fixed = search, space, fixed
        self._modes = tuple(modes)
        self._distributions = spaces.distributions(space, fixed)
        self._random = Stream(seed % 2**63, "search").generator()
        directions = ["minimize" if mode == "min" else "maximize" for mode in modes]
        self._sampler = sampler(search, self._distributions, len(modes), space, seed % 2**32)
        self._study = optuna.create_study(sampler=self._sampler, directions=directions)
        self._seen: set[str] = set()

    def tell(self, told: Sequence[tuple[Suggestion, Result]], pending: Sequence[Suggestion]) -> None:
        """Fill the study with all that is known, in the order of the suggestions."""
        import optuna

        settings = {suggestion.number: suggestion.values for suggestion, _ in told}

        def logarithms(numbers: Sequence[int], finite_values: Sequence[float]) -> bool:
            if self._search.algorithm != GP:
                return False
            from memsweep.search.suggest.gaussian import logarithmic

            return logarithmic(self._space, [settings[number] for number in numbers], finite_values)

        by_number = sorted((result for _, result in told), key=lambda result: result.number)
        values = finite(by_number, self._modes, logarithms)
        results = {suggestion.number: result for suggestion, result in told}
        for suggestion in sorted(_known(told, pending), key=lambda one: one.number):
            self._seen.add(spaces.suggestion_key(suggestion.values))
            result = results.get(suggestion.number)
            state, final, partial = self._outcome(result, values)
            applying = {path: self._distributions[path] for path in self._distributions if path in suggestion.values}
            self._study.add_trial(
                optuna.trial.create_trial(
                    state=state,
                    values=final,
                    params={path: spaces.inward(self._space[path], suggestion.values[path]) for path in applying},
                    distributions=applying,
                    system_attrs=dict(suggestion.memo),
                    intermediate_values=partial,
                )
            )

    def _outcome(
        self, result: Result | None, values: Mapping[int, tuple[float, ...]]
    ) -> tuple[optuna.trial.TrialState, list[float] | None, dict[int, float]]:
        from optuna.trial import TrialState

        if result is None:
            return TrialState.RUNNING, None, {}
        if result.values is None or (result.stopped and len(self._modes) > 1):
            return TrialState.FAIL, None, {}
        final = list(values[result.number])
        if result.stopped and self._search.algorithm not in (GP, NSGA_II):
            return TrialState.PRUNED, None, {result.steps: final[0]}
        return TrialState.COMPLETE, final, {}

    def next(self, number: int) -> Suggestion | None:
        """The next suggestion; None where every one there is has been made."""
        if self._search.algorithm == GRID:
            left = self._left()  # the last field varies fastest
            return self._once(number, left[0]) if left else None
        for _ in range(_TRIES):
            if suggestion := self._once(number, {}):
                return suggestion
        for _ in range(_DRAWS):
            values = spaces.draw_all(self._space, self._fixed, self._random)
            if spaces.suggestion_key(values) not in self._seen:
                return self._once(number, values)
        left = self._left()
        return self._once(number, left[int(self._random.integers(len(left)))]) if left else None

    def _left(self) -> list[dict[str, Any]]:
        """Suggestions that have not been made, in a fixed order; none where they cannot be counted."""
        listed = spaces.all_suggestions(self._space, self._fixed, MOST_COMBINATIONS) or []
        return [values for values in listed if spaces.suggestion_key(values) not in self._seen]

    def _once(self, number: int, given: Mapping[str, Any]) -> Suggestion | None:
        """Ask the sampler once, with some fields given; None where it repeats itself."""
        import optuna

        if given:
            self._study.enqueue_trial({path: spaces.inward(self._space[path], given[path]) for path in given})
        trial = self._study.ask()
        values: dict[str, Any] = {}
        for path in self._distributions:
            if self._space[path].applies({**self._fixed, **values}):
                values[path] = spaces.outward(self._space[path], _suggest(trial, path, self._distributions[path]))
        if (name := spaces.suggestion_key(values)) in self._seen:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return None
        self._seen.add(name)
        if self._search.algorithm == CMA_ES:  # a given suggestion is not its own sample, so no part of its generation
            return Suggestion(number, values, {} if given else self._sampler.memo)
        notes = self._study.get_trials(deepcopy=False)[-1].system_attrs
        memo = {key: value for key, value in notes.items() if not any(part in key for part in _OWN)}
        return Suggestion(number, values, memo)


def _suggest(trial: optuna.Trial, path: str, distribution: BaseDistribution) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(path, distribution.choices)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(path, distribution.low, distribution.high, log=distribution.log)
    assert isinstance(distribution, FloatDistribution)
    return trial.suggest_float(path, distribution.low, distribution.high, log=distribution.log)
