"""The trials of a study that goes on until its questions are decided: a grid that grows round by round."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from memsweep.config.schema.canonical import trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.sizes import horizon_of
from memsweep.errors import counted
from memsweep.report.analysis.contents import analyse
from memsweep.report.analysis.effort import core_seconds, seconds_of
from memsweep.report.read.known import Known
from memsweep.report.read.study import Study as Stored
from memsweep.report.read.study import load_study
from memsweep.studies.decide.choice import ROUNDS, Chosen, allotted, choose, fare_of, longer
from memsweep.studies.decide.decisions import (
    DECIDED,
    HOPELESS,
    LIMIT,
    OPEN,
    Decision,
    decision,
    hopeless,
)
from memsweep.studies.decide.options import Option
from memsweep.studies.decide.question import Question
from memsweep.studies.decide.reading import Cell, Subject, kind_of, question_of, subjects
from memsweep.studies.decide.round_log import Round, RoundLog, Step
from memsweep.studies.decide.rows import Addition, Cells
from memsweep.studies.trials import GridTrials, Request
from memsweep.sweep.driver.launch import ByClock, Limits
from memsweep.sweep.driver.progress import duration
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.plan import Pack, Plan, PlannedTrial, identified, make_packs
from memsweep.sweep.planning.reuse import find_reusable
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store

_NO_LIMITS = Limits()
_State = tuple[str, str, float]
"""The state of a question, why, and the core hours needed."""


@dataclass
class _Look:
    """One look at the stored results.

    Attributes:
        every: condition and ball, with its decision so far.
        chosen: key -> what the next round does.
    """

    study: Stored
    every: list[tuple[Subject, Decision]] = field(default_factory=list)
    chosen: dict[str, tuple[Chosen, Addition]] = field(default_factory=dict)


class GrowingTrials(GridTrials):
    """The trials of a grid, and those of every round.

    Args:
        request: what is asked for.
        store: the study's results.
        results: the folder of all studies.
        failed_often: identities that failed so often in the same way that they are not tried again.
        limits: of this run.

    Attributes:
        decisions: of every question, by the last look.
        grown: identities of trials that rounds of this run have added.
    """

    def __init__(
        self,
        request: Request,
        store: Store,
        results: Location,
        failed_often: frozenset[str],
        *,
        limits: Limits = _NO_LIMITS,
    ) -> None:
        self._request, self._results, self._known = request, results, Known()
        self._log = RoundLog(store.location, request.sweep.rows)
        self._limit = 3600.0 * limits.core_hours if limits.core_hours else math.inf
        self._shared = limits.core_seconds
        self._by_clock = ByClock()
        self._rounds, self._lines = self._log.read(), list[str]()
        self.decisions: list[Decision] = []
        super().__init__(request, store, results, failed_often)
        self.rounds, self.complete = len(self._rounds), False
        self._before = {*self.stored, *store.identities()}  # replaced ones among them

    def next_plan(self, failed: Collection[str], by_clock: ByClock, *, at_limit: bool) -> Plan | None:
        """The plan of the next round, which is written down; None where nothing more is to be done, or at a limit."""
        self._by_clock = by_clock
        look = self._look()
        self.decisions = [found for _, found in look.every]
        self._lines = [*self._told(look)]
        if not look.chosen:
            self.complete = True
            return None
        self.waits = at_limit
        if at_limit:
            return None
        new = self._round(look)
        self._log.write(self.rounds, new)
        self._rounds.append(new)
        self.rounds += 1
        self._grow(new, failed)
        return self.plan

    def settled(self) -> list[Decision]:
        """How the questions stand by the results that there are; nothing is added."""
        if self.waits or (self.complete and not self.left):
            return self.decisions
        return [found for _, found in self._standing()]

    def _standing(self) -> list[tuple[Subject, Decision]]:
        """The questions as the results have them.

        While trials are left, nothing is hopeless. And what they belong to is not decided: a look in the middle of a
        round is one more than the error of its verdict is spent on.
        """
        every, left = self._look().every, {kind_of(trial.config) for trial in self.left}
        if not left:
            return every

        def goes_on(subject: Subject) -> bool:
            return subject.is_open or not left.isdisjoint(map(kind_of, subject.trials.values()))

        return [
            (subject, replace(found, state=OPEN, why="", needed=math.nan) if goes_on(subject) else found)
            for subject, found in every
        ]

    @property
    def left(self) -> list[PlannedTrial]:
        """The planned trials that have no result yet, and have not failed for good."""
        return [
            trial
            for trial in self.plan.trials
            if trial.identity not in self.gave_up and not self._store.has(trial.identity)
        ]

    def preview(self) -> tuple[list[Decision], list[Step]]:
        """How the questions stand, and what comes next with its core seconds; nothing is written.

        That is the rest of what is planned, or the next round.
        """
        if left := self.left:
            study = load_study(self._store.location, self._known)
            factor = self._factor(study, study.records)  # of trials one by one, as they are measured
            of_model = sum(cost.seconds([trial.config]) for trial in left)
            seconds = factor * of_model or sum(pack.cost for pack in make_packs(tuple(left)))
            does = f"the planned {counted(len(left), 'trial')} without a result; then rounds, by their results"
            return self.settled(), [Step("", self.plan.sweep.name, does, (), seconds)]
        look = self._look()
        return [found for _, found in look.every], [*self._round(look).steps]

    def news(self) -> list[str]:
        """Lines on what is open, what the round does, and what it costs."""
        return self._lines

    def _grow(self, new: Round, failed: Collection[str]) -> None:
        """Plans the study with the trials of a round, as a command that starts now would."""
        sweep = replace(self.plan.sweep, rows=tuple(new.applied(self.plan.trials)))
        request = replace(self._request, sweep=sweep, trials=identified(sweep))
        before = {trial.identity for trial in self.plan.trials}
        fresh = [trial for trial in request.trials if trial.identity not in before]
        reuse = find_reusable(fresh, self._store, self._results)
        reuse.apply(self._store)
        self.reuse |= reuse
        self._before |= reuse.all
        there = {trial.identity for trial in request.trials}
        self.stored = (self.stored | reuse.all) & there
        done = self._store.identities() & there
        self.gave_up = self.gave_up & there
        self.grown = (*(name for name in self.grown if name in there), *(trial.identity for trial in fresh))
        self.plan = self._planned(request, done, self.gave_up | (frozenset(failed) & there))

    def _planned(self, request: Request, done: frozenset[str], apart: frozenset[str]) -> Plan:
        """As of every grid; the packs of a round come in its order under a limit of core hours."""
        plan = super()._planned(request, done, apart)
        if not self._rounds or math.isinf(self._limit):
            return plan
        place = {config: number for number, config in enumerate(self._rounds[-1].added)}
        return replace(plan, packs=tuple(sorted(plan.packs, key=lambda pack: _first(pack, place))))

    def _look(self) -> _Look:
        study = load_study(self._store.location, self._known)
        configs = {trial.identity: trial.config for trial in self.plan.trials}
        configs |= {name: trial_from_dict(study.records[name]["config"]) for name in study.standing_in}
        look, overall = _Look(study), self._factor(study, study.records) or 1.0
        steps, every = dict[int, tuple[Chosen, Addition]](), list(subjects(analyse(study), configs))
        going = sum(each.is_open and not self._is_tried(each.key) for each in every)
        fare = fare_of(self._shared, max(going, 1))
        for place, subject in enumerate(every):
            seconds = core_seconds(study, subject.finding.condition, subject.trials)
            state, why, needed = DECIDED, "", math.nan
            if subject.is_open:
                factor = self._factor(study, subject.trials) or overall
                chosen, made, (state, why, needed) = self._chosen(subject, factor, fare)
                if state == OPEN and made is not None:
                    steps[place] = chosen, made
            look.every.append((subject, decision(subject, state, seconds, why, needed)))
        self._allot(look, steps)
        return look

    def _chosen(self, subject: Subject, factor: float, fare: float) -> tuple[Chosen, Addition | None, _State]:
        """The addition for an open question, its trials, and how the question stands.

        Args:
            subject: the condition, in one ball.
            factor: its measured core seconds over those of the cost model.
            fare: of a round.
        """
        cells = Cells(subject, self._failed(subject))
        question = question_of(subject, cells.possible)
        tried = [name for step in self._steps_of(subject.key) for name in step.repairs]

        def price(asked: Question, option: Option) -> float:
            return cells.cost(asked, option) * factor

        found = list[tuple[Chosen, Addition | None, _State]]()
        options = choose(question, price, tried, self._limit, fare), longer(question, price, tried)
        for chosen in filter(None, options):
            made = cells.addition(question, chosen.option) if chosen.option is not None else None
            found.append((chosen, made, self._open(chosen, made)))
        can = [each for each in found if each[-1][0] == OPEN] or found[:1]
        # what is wrong, and what the rule lacks, comes before a longer training
        return min(can, key=lambda each: each[0].per_verdict(fare)) if can[0][0].chance is not None else can[0]

    def _open(self, chosen: Chosen, made: Addition | None) -> _State:
        """The state of an open question, why, and the core hours needed."""
        dear = "more than the limit would be needed" if chosen.cost > self._limit else ""
        if made is None:
            return HOPELESS, *hopeless(chosen, dear if math.isfinite(chosen.cost) else "")
        if self._is_tried(chosen.question.key):
            return HOPELESS, *hopeless(chosen, f"{self._most} rounds did not decide it")
        if dear:
            return HOPELESS, *hopeless(chosen, dear)
        return OPEN, "", math.nan

    def _allot(self, look: _Look, steps: Mapping[int, tuple[Chosen, Addition]]) -> None:
        """Chooses the questions of the next round; those that do not fit into what is left are at their limit."""
        found = {place: chosen for place, (chosen, _) in steps.items()}
        left = self._left(look.study)
        taken = allotted(found, left, self._limit)
        look.chosen |= {look.every[place][0].key: steps[place] for place in taken}
        left -= sum(found[place].cost for place in taken)
        for place, chosen in found.items():
            subject, stands = look.every[place]
            if chosen.cost > self._by_clock.whole:
                why, hours = hopeless(chosen, "more than the limit would be needed")
                look.every[place] = subject, replace(stands, state=HOPELESS, why=why, needed=hours)
            elif chosen.cost > left and subject.key not in look.chosen:
                hours = chosen.cost / 3600.0
                why = f"{chosen.words}, about {hours:.2g} core hours, does not fit into what is left of the limit"
                look.every[place] = subject, replace(stands, state=LIMIT, why=why, needed=hours)

    def _steps_of(self, key: str) -> list[Step]:
        return [step for one in self._rounds for step in one.steps if step.key == key]

    def _is_tried(self, key: str) -> bool:
        """Whether a question has had its rounds."""
        return len(self._steps_of(key)) >= self._most

    @property
    def _most(self) -> int:
        return self._rounds[0].most if self._rounds else ROUNDS

    def _failed(self, subject: Subject) -> frozenset[Cell]:
        """The cells of the condition with a trial that has ended without a result."""
        asked = {config for one in self._rounds for config in one.added}
        missing = [trial.config for trial in self.plan.trials if not self._store.has(trial.identity)]
        kinds = {*map(kind_of, subject.trials.values())}
        lost = [each for each in missing if each in asked and kind_of(each) in kinds]
        return frozenset((getattr(each.model, "width", 0), horizon_of(each.task) or 0) for each in lost)

    def _left(self, study: Stored) -> float:
        """Core seconds that are left to this run: of its core hours, or by the clock."""
        return min(self._limit - self._spent(study), self._by_clock.left)

    def _spent(self, study: Stored) -> float:
        """Core seconds of this run so far."""
        every = {**study.records, **study.replaced, **study.waiting}
        return sum(seconds_of(record) for name, record in every.items() if name not in self._before)

    def _factor(self, study: Stored, names: Collection[str]) -> float:
        """Measured core seconds over those of the cost model, of the results among these trials; 0 where there is none.

        Conditions differ in it by several times: the cost model knows the sizes of a model, and not each kernel.
        """
        known = [(study.records[trial.identity], trial) for trial in self.plan.trials if trial.identity in names]
        modelled = sum(cost.seconds([trial.config]) for _, trial in known)
        return sum(seconds_of(record) for record, _ in known) / modelled if modelled > 0.0 else 0.0

    def _round(self, look: _Look) -> Round:
        steps = [
            Step(key, found.question.name, found.words, found.option.repairs, found.cost)
            for key, (found, _) in look.chosen.items()
            if found.option is not None
        ]
        made = [addition for _, addition in look.chosen.values()]
        added = tuple(config for one in made for config in one.added)
        return Round(self._most, tuple(steps), added, tuple(name for one in made for name in one.removed))

    def _told(self, look: _Look) -> Iterator[str]:
        states = [found.state for _, found in look.every]
        open_ = sum(state != DECIDED for state in states)
        if not look.chosen:
            return
        seconds = sum(found.cost for found, _ in look.chosen.values())
        left = self._left(look.study)
        limit = f", {duration(left)} of a core left" if math.isfinite(left) else ""
        later = {subject.key for subject, found in look.every if found.state == OPEN} - look.chosen.keys()
        waits = f"; {counted(len(later), 'condition')} later, after those of this round" if later else ""
        yield (
            f"round {self.rounds + 1}: {open_} of {counted(len(states), 'question')} open, "
            f"about {duration(seconds)} of a core{limit}{waits}"
        )
        for found, _ in look.chosen.values():
            yield f"  {found.question.name}: {found.words}"


def _first(pack: Pack, place: Mapping[TrialConfig, int]) -> int:
    """The first place of a pack's trials; before all others where one of them has none."""
    return min(place.get(trial.config, -1) for trial in pack.trials)
