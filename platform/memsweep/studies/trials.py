"""The trials of one run: of a grid, with what ``extend`` added to it, or of a search, which grow round by round."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.errors import ConfigError, counted
from memsweep.sweep.planning.plan import Plan, PlannedTrial, make_plan
from memsweep.sweep.planning.reuse import Reuse, find_reusable, with_stored_training
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.layout import STATES

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.sweep.driver.launch import ByClock
    from memsweep.sweep.planning.plan import PlannedTrial
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.results import Store


ANEW = "anew"
"""The key in the provenance of the plan of a study that is being recomputed, until it is complete."""
SEARCH = "search"
"""In the place of identities, where a search was extended: its trials follow from its settings."""
_MOST = 4  # fields that a message names


def added(before: StoredPlan, trials: Collection[PlannedTrial]) -> tuple[str, ...]:
    """The additions of all extensions of a study so far, to be kept in its next plan."""
    if before.search is not None:
        return (SEARCH,)
    new = (trial.identity for trial in trials if trial.identity not in before.rows)
    return tuple(dict.fromkeys([*before.extended, *new]))


def kept(before: StoredPlan | None, sweep: SweepConfig) -> tuple[str, ...]:
    """The additions by ``extend`` in the plan before this one, as far as the study still has them."""
    return before.extended if before is not None and (before.search is None) == (sweep.search is None) else ()


def refuse_to_drop(before: StoredPlan | None, request: Request, resume: str) -> None:
    """Refuses a plan that lacks what ``extend`` added to the one before it.

    Args:
        before: the stored plan.
        request: of the study that would replace it.
        resume: the command that runs the whole stored plan, if its code is the same.

    Raises:
        ConfigError: with what would be dropped, and what to do.
    """
    if before is None or not (lost := lacks_of(before, request.sweep)):
        return
    if has_changed(before, request.trials):
        ways = (
            "No command goes on with that plan, because its code has changed. To run all with this code: the same "
            "command with --drop-extended, then the extend or decide that added them"
        )
    else:
        ways = f"To run the whole plan: {resume}. To drop them: the same command with --drop-extended"
    raise ConfigError(
        [
            f"to this study {lost} came later (by memsweep extend or decide), and this sweep lacks them: it "
            f"would take them out of the plan and of the report (their results stay). {ways}. To keep both: give this "
            "sweep another name, name=..."
        ],
        f"study {before.study!r}",
    )


def has_changed(before: StoredPlan, trials: Collection[PlannedTrial]) -> bool:
    """Whether a trial of a stored plan has another identity now; ``resume`` and ``extend`` refuse that plan."""
    stored = [*before.rows.values()]
    return any(trial.identity not in before.rows and to_dict(trial.config) in stored for trial in trials)


def lacks_of(before: StoredPlan, sweep: SweepConfig) -> str:
    """Says what the study lacks of an extension; empty where nothing, and where there was none."""
    if not before.extended:
        return ""
    rows = [to_dict(row) for row in sweep.rows]
    if before.search is None:
        lost = [config for name in before.extended if (config := before.rows.get(name)) and config not in rows]
        return f"{counted(len(lost), 'trial')}{own_values(lost, rows)}" if lost else ""
    if sweep.search is None:
        return "more of its search"
    cells = [cell for cell in before.cells if cell not in rows]
    trials = before.search.settings.trials - sweep.search.settings.trials
    words = [f"{counted(len(cells), 'cell')}{own_values(cells, rows)}"] if cells else []
    words += [counted(trials, "suggestion")] if trials > 0 else []
    words += ["confirmations"] if before.confirm is not None and before.confirm != sweep.confirm else []
    return " and ".join(words)


def own_values(lost: Sequence[Any], kept: Sequence[Any]) -> str:
    """The values that only the lost trials have: `` (model.width: 4, 6)``."""
    there: dict[str, set[str]] = {}
    for config in kept:
        for path, value in flatten(config).items():
            there.setdefault(path, set()).add(json.dumps(value, default=str))
    own: dict[str, list[str]] = {}
    for config in lost:
        for path, value in flatten(config).items():
            if (text := json.dumps(value, default=str)) not in there.get(path, set()) | {*own.get(path, [])}:
                own.setdefault(path, []).append(text)
    parts = [f"{path}: {', '.join(texts)}" for path, texts in own.items()]
    return f" ({'; '.join(parts[:_MOST])})" if parts else ""


def refuse_misfit(sweep: SweepConfig, measures: str = "") -> None:
    """Refuses a study with a file of initial weights that does not fit a trial's model.

    A search over what decides shapes is left to its trials; a measurement of stored weights reads no file.

    Raises:
        ConfigError: with every file that does not fit, and the first trial's model of each kind.
    """
    from memsweep.learning.state.weights_file import WeightsFileError
    from memsweep.trial import check_weights

    problems = list[str]()
    for row in [] if measures else _from_files(sweep):
        try:
            check_weights(row)
        except WeightsFileError as error:
            model = row.model
            sized = hasattr(model, "width") and getattr(model, "width_argument", "width") is not None
            size = f" (model.width {model.width})" if sized else ""
            problems.append(f"training.weights of the model {model.name}{size}: {error}")
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)), f"study {sweep.name!r}")


def of_several_weights(sweep: SweepConfig) -> list[str]:
    """Lines about files that hold several weights of a model: those that are taken, and those that are not."""
    from memsweep.learning.state.found_weights import beside
    from memsweep.learning.state.weights_file import WeightsFileError, read_weights
    from memsweep.trial import state_of

    said = dict[str, None]()
    for row in _from_files(sweep):
        if (file := row.training.weights_file) is not None:
            with contextlib.suppress(WeightsFileError):  # ``refuse_misfit`` says what is wrong with a file
                said[beside(file, state_of(row), read_weights(file))] = None
    return [f"training.weights: {words}" for words in said if words]


def _from_files(sweep: SweepConfig) -> list[TrialConfig]:
    """The rows that begin with the weights of a file, one of each kind; none of a search over what decides shapes."""
    searched = sweep.search.space if sweep.search is not None else ()
    if any(path.partition(".")[0] in ("task", "model") or path == "training.weights" for path in searched):
        return []
    given = [row for row in sweep.rows if row.training.weights]
    return [*{(row.task, row.model, row.training.weights, row.training.dtype): row for row in given}.values()]


def with_kept_states(trials: Sequence[PlannedTrial], done: Collection[str], store: Store) -> tuple[PlannedTrial, ...]:
    """The trials, each that lacks a result after the longest kept training that is its beginning.

    A training that ends early (``training.until``) keeps its state. It has the bits of the whole training at that step,
    so a trial that differs from it in ``until`` alone goes on from there, with the bits of an uninterrupted one.
    """
    kept = store.location.names(STATES)
    early = [trial for trial in trials if trial.config.training.until and f"{trial.identity}.pt" in kept]
    if not early:
        return tuple(trials)
    return tuple(trial if trial.identity in done else _after(trial, early) for trial in trials)


def _after(trial: PlannedTrial, early: Sequence[PlannedTrial]) -> PlannedTrial:
    from memsweep.learning.state.warm_start import prefix

    shards, best = trial.arithmetic.shards, (0, "")
    for other in early:
        until = other.config.training.until
        same = best[0] < until < trial.config.training.end and other.arithmetic == trial.arithmetic
        if same and prefix(other.config, until, shards) == prefix(trial.config, until, shards):
            best = until, other.identity
    return dataclasses.replace(trial, after=best[1])


def more_steps(stored: Collection[TrialConfig], new: Collection[TrialConfig]) -> str:
    """Why trials that differ from stored ones in ``training.steps`` train from the beginning; empty without such."""
    known = {_without_steps(row): row for row in stored}
    pairs = [(before, row) for row in new if (before := known.get(_without_steps(row))) is not None]
    if not pairs:
        return ""
    old, longer = (each.training for each in pairs[0])
    why = (
        f"the learning rate falls over all steps (schedule cosine), so a training of {longer.steps} steps is "
        "another one from its first step on"
        if (longer.schedule or "cosine") == "cosine"
        else f"a training that ran all of its {old.steps} steps keeps its best weights, and no state to go on from"
    )
    return (
        f"training.steps: {len(pairs)} trials train from the beginning: {why}. To be able to go on, let a training end "
        f"early: training.steps={longer.steps} training.until={old.steps}. memsweep extend with training.until=0 then "
        "goes on from there, with the bits of an uninterrupted training."
    )


def _without_steps(row: TrialConfig) -> str:
    training = dataclasses.replace(row.training, steps=1, until=0, warmup=0)
    return json.dumps(to_dict(dataclasses.replace(row, training=training)), sort_keys=True, default=str)


@dataclass(frozen=True)
class Request:
    """The request for a run.

    Attributes:
        sweep: the study.
        trials: its trials; empty for a search, which makes them round by round.
        only: identities to run; None for all that have no result.
        retry_all: also run trials that failed in the same way too often.
        no_reuse: recompute everything.
        begun: with ``no_reuse``: an earlier command, which was stopped, has begun with it; this one goes on.
        plan: the stored plan that the command continues, with its run in MLflow; None where it needs none.
        measures: the stored study whose weights are measured, and nothing is trained; empty: trials are trained.
        extended: what ``extend`` added to the study, as of ``StoredPlan``; None: as the stored plan says.
        drop_extended: a plan without what ``extend`` added may replace one that has it.
        command: as it was typed, for the report; empty where none was.
        overrides: in which the study differs from its file.
        source: the study as the command named it, by its name or its file; empty where none did.
        grow: makes the trials of the run, where rounds add to those of the grid; None: they stay as they are.
    """

    sweep: SweepConfig
    trials: tuple[PlannedTrial, ...]
    only: frozenset[str] | None = None
    retry_all: bool = False
    no_reuse: bool = False
    begun: bool = False
    plan: StoredPlan | None = None
    measures: str = ""
    extended: tuple[str, ...] | None = None
    drop_extended: bool = False
    command: str = ""
    overrides: tuple[str, ...] = ()
    source: str = ""
    grow: MakeTrials | None = None

    def postponed(self, trials: Collection[PlannedTrial]) -> frozenset[str]:
        """Identities of trials that the command does not run now."""
        return frozenset(t.identity for t in trials if self.only is not None and t.identity not in self.only)

    def goes_on_anew(self, before: StoredPlan) -> bool:
        """Whether a run that recomputes everything was stopped, and this one goes on with it."""
        if not before.provenance.get(ANEW):
            return False
        sweep, names = self.sweep, {trial.identity for trial in self.trials}
        same = names == before.rows.keys() if sweep.search is None else sweep.search == before.search
        return self.plan is not None or (self.no_reuse and same)


class GridTrials:
    """The trials of a grid.

    Args:
        request: what is asked for.
        store: the study's results.
        results: the folder of all studies.
        failed_often: identities that failed so often in the same way that they are not tried again.

    Attributes:
        plan: all trials so far, with packs of those to run next.
        stored: identities that had a result before the run.
        reuse: the results that need no work.
        gave_up: the identities of ``failed_often`` that lack a result of this study.
        postponed: number of trials without a result that the command does not run.
        rounds: rounds of the search so far.
        complete: no trials will be added.
        waits: a round was chosen and has not begun, because the run is at a limit.
        grown: identities that rounds of this run have added.
    """

    rounds = 0
    complete = True
    waits = False
    grown: tuple[str, ...] = ()

    def __init__(self, request: Request, store: Store, results: Location, failed_often: frozenset[str]) -> None:
        self._store, self._anew = store, request.no_reuse and not request.begun
        self.reuse = Reuse()
        if not self._anew:
            self.reuse = find_reusable(request.trials, store, None if request.no_reuse else results)
        missing = frozenset(trial.identity for trial in request.trials) - self.reuse.all
        self.gave_up = failed_often & missing
        postponed = request.postponed(request.trials)
        self.postponed = len(postponed & missing)
        self._results = None if request.no_reuse else results
        self.plan = self._planned(request, self.reuse.all, self.gave_up | postponed)
        self.stored = self.plan.done

    @property
    def all(self) -> tuple[PlannedTrial, ...]:
        """Every trial so far."""
        return self.plan.trials

    def _planned(self, request: Request, done: frozenset[str], apart: frozenset[str]) -> Plan:
        """The plan of a request; ``done`` needs no work, ``apart`` is not run now."""
        trials = request.trials
        if self._results is not None:
            trials = with_stored_training(trials, done, self._results)
            trials = with_kept_states(trials, done, self._store)
        return make_plan(request.sweep, trials, done, apart, measures=bool(request.measures))

    def restart(self) -> None:
        """Sets aside what is recomputed, before the plan says that this has begun."""
        if self._anew:
            for identity in self._store.identities() & {trial.identity for trial in self.plan.trials}:
                self._store.set_aside(identity)
            self._store.forget_checkpoints()

    def prepare_folder(self) -> None:
        """Brings the study's folder in line with the plan: copies reused results, sets damaged ones aside."""
        self.reuse.apply(self._store)

    def next_plan(self, failed: Collection[str], by_clock: ByClock, *, at_limit: bool) -> Plan | None:
        """No plan follows the one of a grid."""
        return None

    def news(self) -> list[str]:
        """A grid has no rounds to report."""
        return []

    def ended(self, stored: Collection[str]) -> bool:
        """Whether nothing is left to compute, with these results."""
        return {trial.identity for trial in self.plan.trials} <= set(stored)


class SearchTrials:
    """The trials of a study with a search; attributes and methods as of ``GridTrials``.

    Args:
        request: what is asked for.
        store: the study's results.
        results: the folder of all studies.
        failed_often: identities that failed so often in the same way that they are not tried again.

    Raises:
        MemsweepError: the trials of the stored rounds differ from those of the installed code, though the request
            continues a stored plan.
        StoreError: the storage cannot be read or written.
    """

    waits = False
    grown: tuple[str, ...] = ()

    def __init__(self, request: Request, store: Store, results: Location, failed_often: frozenset[str]) -> None:
        from memsweep.search.study_search import StudySearch

        self._sweep, self._store, self._anew = request.sweep, store, request.no_reuse and not request.begun
        self._results = None if request.no_reuse else results
        self._checked: set[str] = set()
        self.reuse = Reuse()
        if self._anew:
            _restart_search(store)
        self._search = StudySearch(request.sweep, store, same_code=request.plan is not None)
        self._advance(failed_often)
        postponed = request.postponed(self.all)
        self.plan = self._plan(failed_often | postponed, request.only or ())
        self.stored = self.plan.done
        self.gave_up = failed_often & (self._search.trials.keys() - self.reuse.all)
        self.postponed = len(postponed - self.stored)

    @property
    def all(self) -> tuple[PlannedTrial, ...]:
        return tuple(self._search.ordered_trials)

    @property
    def rounds(self) -> int:
        return self._search.rounds

    @property
    def complete(self) -> bool:
        return self._search.ended

    def restart(self) -> None:
        """Nothing is left to do: the search has started again before its first round."""

    def prepare_folder(self) -> None:
        """Nothing is left to do: each round prepared its results, because the next round follows from them."""

    def next_plan(self, failed: Collection[str], by_clock: ByClock, *, at_limit: bool) -> Plan | None:
        """The plan of the next round; None when nothing is left to run. ``failed``: identities that get no result."""
        unfinished = self._advance({*self.gave_up, *failed})
        self.plan = self._plan(self.gave_up)
        self.stored |= self.reuse.all
        return self.plan if unfinished else None

    def news(self) -> list[str]:
        """Lines for the person when a round begins: how far the search is, its best values."""
        return self._search.summary()

    def ended(self, stored: Collection[str]) -> bool:
        """Whether the winners are confirmed; suggestions that failed are part of a search."""
        return self.complete and all(trial.identity in stored for trial in self._search.current_trials)

    def _advance(self, failed: Collection[str]) -> bool:
        """Goes through the rounds as far as results allow; whether the present round has trials to run."""
        while self._search.advance(failed):
            new = [trial for trial in self._search.current_trials if trial.identity not in self._checked]
            self._checked |= {trial.identity for trial in new}
            reuse = Reuse() if self._anew else find_reusable(new, self._store, self._results)
            reuse.apply(self._store)
            self.reuse |= reuse
        missing = {trial.identity for trial in self._search.current_trials} - self.reuse.all - set(failed)
        return any(not self._store.has(identity) for identity in missing)

    def _plan(self, excluded: Collection[str], again: Collection[str] = ()) -> Plan:
        """All trials so far, with packs of the present round and of the trials ``again`` of earlier rounds."""
        earlier = [self._search.trials[name] for name in sorted(again) if name in self._search.trials]
        present = {trial.identity: trial for trial in (*self._search.current_trials, *earlier)}
        done = frozenset(self._store.identities() & self._search.trials.keys())
        trials = tuple(present.values())
        if self._results is not None:
            trials = with_stored_training(trials, done, self._results)
        plan = make_plan(self._sweep, trials, present.keys() & done, excluded)
        return dataclasses.replace(plan, trials=self.all, done=done)


Trials = GridTrials | SearchTrials
MakeTrials = Callable[["Request", "Store", Location, frozenset[str]], GridTrials]
"""From a request, the study's results, the folder of all studies, and the identities that failed too often."""


def _restart_search(store: Store) -> None:
    """Sets every result aside and deletes the log of the rounds, so that the search starts again."""
    from memsweep.search.round_log import FOLDER

    for identity in store.identities():
        store.set_aside(identity)
    store.forget_checkpoints()
    store.forget_states()
    with storage_errors("write", store.location):
        (store.location / FOLDER).delete_all()
