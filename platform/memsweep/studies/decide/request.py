"""The request of a study that goes on until it is decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError, counted
from memsweep.studies.continuation import refuse_renamed, unchanged
from memsweep.studies.decide.choice import ROUNDS
from memsweep.studies.decide.decisions import LIMIT, OPEN, Decision
from memsweep.studies.decide.first_round import begun_rounds, first_round, seconds_of
from memsweep.studies.decide.growing import GrowingTrials
from memsweep.studies.decide.options import SEEDS
from memsweep.studies.decide.round_log import Round, RoundLog, Step
from memsweep.studies.extension import changed_since, not_covered, of_other_settings
from memsweep.studies.locations import plan_to_run, store_of
from memsweep.studies.trials import Request, added
from memsweep.sweep.driver.launch import LIMITS, Limits
from memsweep.sweep.driver.progress import duration
from memsweep.sweep.estimate.nodes import hours_for
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.planning.plan_file import plan_to_replace
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import failed_often, read_statuses
from memsweep.sweep.store.results import Store
from memsweep.trust.gate import Trust


class Deciding:
    """Makes the trials of a run that goes on until its study is decided, and says how its questions stand.

    Args:
        limits: of the run.
        note: why the study begins anew, or with less than its own plan; empty where it does neither.
    """

    def __init__(self, limits: Limits, note: str = "") -> None:
        self._limits, self.note = limits, note
        self._trials: GrowingTrials | None = None

    def __call__(self, request: Request, store: Store, results: Location, failed: frozenset[str]) -> GrowingTrials:
        self._trials = GrowingTrials(request, store, results, failed, limits=self._limits)
        return self._trials

    @property
    def rounds(self) -> int:
        """Of the study so far."""
        return self._trials.rounds if self._trials is not None else 0

    @property
    def left(self) -> int:
        """How many planned trials have no result yet."""
        return len(self._trials.left) if self._trials is not None else 0

    def preview(self, request: Request, results: Location) -> tuple[list[Decision], list[Step]]:
        """How the questions of what is stored stand, and the next round; nothing is run or written.

        Where nothing is stored, the first round is the study's own plan.
        """
        if request.plan is not None:
            store = store_of(results, request.sweep.name)
            return self(request, store, results, failed_often(read_statuses(store.location))).preview()
        cost, most = seconds_of(request.sweep), SEEDS[-1]
        more = max(0.0, _seconds_of_seeds(request.sweep, most) - cost)
        less = f" ({self.note})" if self.note else ""
        own = (
            f"its own plan, {counted(len(request.trials), 'trial')}{less}; then by the results nothing, or at most "
            f"{ROUNDS} rounds a question: about {duration(more)} more for {most} seeds of all these trials, and what "
            "longer horizons, larger widths and repairs (finer radii, a stronger search, twice the training) cost"
        )
        return [], [Step("", request.sweep.name, own, (), cost)]

    def decisions(self, *, at_limit: bool) -> list[Decision]:
        """How the questions stand after the run.

        Args:
            at_limit: it was stopped at a limit.
        """
        if self._trials is None:
            return []
        found = self._trials.settled()
        return [replace(one, state=LIMIT) if at_limit and one.state == OPEN else one for one in found]


def deciding(
    study: SweepConfig | None, store: Store | None, results: Location, trust: Trust, source: str, limits: Limits
) -> tuple[Request, Deciding]:
    """Goes on with what is stored of a study, or begins with its own plan, until its questions are decided.

    Args:
        study: as its file says it; None: as it is stored.
        store: its stored results, where no file is read.
        results: the folder of all studies.
        trust: the person's word for code that the plan names.
        source: the study as it was named.
        limits: of the run.

    Raises:
        ConfigError: the study searches settings.
        MemsweepError: as of ``continuation.resumed``.
    """
    own = store or store_of(results, study.name if study is not None else "")
    plan, grow = plan_to_replace(own.location), Deciding(limits)
    if store is not None and plan is not None:
        refuse_renamed(store, plan.study)
    if plan is None or (study is not None and study.search is not None):
        if study is None:
            raise ConfigError([f"there is no plan in {own.location}"], "the study")
        _refuse_search(study)
        begun, note = first_round(study, limits)
        grow = Deciding(limits, note)
        return Request(begun, identified(begun), source=source, grow=grow), grow
    plan = plan_to_run(own, trust, study.rows if study is not None else ())
    before = unchanged(plan, own.location.parent)
    _refuse_search(before)
    rounds = RoundLog(own.location, before.rows).read()
    rows: tuple[TrialConfig, ...] = before.rows
    if study is not None:
        begun, note = first_round(study, limits)
        gone = {name for one in rounds for name in one.removed}
        asked = [not_covered(rows, _without(gone, each)) for each in (begun, *begun_rounds(study))]
        if all(asked):  # no plan that an earlier command may have begun with is stored whole
            if other := of_other_settings(study, asked[0], _after(rounds, before, rows)):
                if rounds or plan.extended:
                    raise changed_since(before.name, other, own.location)
                anew = f"anew, because {other}; the stored results stay"
                grow = Deciding(limits, "; ".join(filter(None, (anew, note))))
                return Request(begun, identified(begun), source=source, grow=grow), grow
            rows = (*rows, *asked[0])
    rows = _after(rounds, before, rows)
    whole = replace(study or before, rows=rows, grid=before.grid)
    trials = identified(whole)
    return Request(whole, trials, plan=plan, extended=added(plan, trials), source=source, grow=grow), grow


def _after(rounds: Iterable[Round], study: SweepConfig, rows: tuple[TrialConfig, ...]) -> tuple[TrialConfig, ...]:
    """The trials that the rounds of a study have made of these."""
    for one in rounds:
        rows = tuple(one.applied(identified(replace(study, rows=rows))))
    return rows


def _without(gone: Collection[str], study: SweepConfig) -> list[TrialConfig]:
    """The trials of a first plan whose place no round has taken; an earlier version checked the search of all of them.

    Args:
        gone: identities of the trials that rounds have replaced.
        study: with the plan.
    """
    every = max((row.perturbation.stronger_every for row in study.rows), default=0)
    checked = {row: replace(row, perturbation=replace(row.perturbation, stronger_every=every)) for row in study.rows}
    rows = tuple(dict.fromkeys((*checked, *checked.values())))
    names = {trial.config: trial.identity for trial in identified(replace(study, rows=rows))}
    return [row for row, before in checked.items() if not {names[row], names[before]} & {*gone}]


def limits_of_study(given: Limits, study: SweepConfig | None) -> Limits:
    """The limits of a run, and those of the study's file where none were given.

    Raises:
        ConfigError: the file limits the cost, and nobody says what a node costs.
    """
    if study is None:
        return given
    own = {name: getattr(study.decide, f"max_{name}") for name in LIMITS if getattr(given, name) is None}
    if own.get("cost") is not None:
        own["cost"] = hours_for(own["cost"])
    return replace(given, **own)


def _seconds_of_seeds(study: SweepConfig, seeds: int) -> float:
    """Core seconds of the study's trials with so many seeds each, the first ones checked, by the cost model."""
    rows = []
    for row in study.rows:
        training = replace(row.training, seeds=max(seeds, row.training.seeds))
        every = row.perturbation.stronger_every and max(row.perturbation.stronger_every, training.seeds)
        rows.append(replace(row, training=training, perturbation=replace(row.perturbation, stronger_every=every)))
    return seconds_of(replace(study, rows=tuple(rows)))


def _refuse_search(study: SweepConfig) -> None:
    if study.search is not None:
        raise ConfigError(
            ["it searches settings, and rounds are added to a grid. Set the settings that were found, without search"],
            f"study {study.name!r}",
        )
