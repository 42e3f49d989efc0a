"""One search: its members, who trains on, and whom the sampler suggests next. A state machine without storage.

Everything that it does follows from its arguments and the news that it hears, in order: the rounds of an interrupted
search, read back from the ledger, bring it into the state in which it was.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import PBT
from memsweep.search.round_log import Entry, Heard, Round
from memsweep.search.trials import MemberState, Suggestion, Told
from memsweep.search.winners import best

if TYPE_CHECKING:
    from memsweep.config.schema.search import Search
    from memsweep.config.schema.trial import TrainingConfig


@dataclass
class BlockMember:
    """A suggestion in its block.

    Attributes:
        suggestion: as the sampler made it.
        entries: every stretch that it trained, in order; the last one holds its settings of today.
        values: objectives that were heard last; None where nothing was measured.
        steps: optimizer steps that it has trained.
        state: where it stands.
        waits: it has reached a rung, and the scheduler has not decided yet.
    """

    suggestion: Suggestion
    entries: list[Entry] = field(default_factory=list)
    values: tuple[float, ...] | None = None
    steps: int = 0
    state: MemberState = MemberState.RUNNING
    waits: bool = False


class Block:
    """One search.

    Args:
        search: space, settings and first suggestions.
        modes: ``min`` or ``max`` for each objective.
        training: of its cells; steps, validations and, under pbt, the settings at the start of a lineage.
        fixed: dotted path -> value of the cell, for the conditions of the space.
        key: what the sampler's seeds are derived from.
        warm: results of an earlier study, which the sampler hears first.

    Attributes:
        members: by number.
        round: how many rounds have begun.
        ended: number -> how it ended, of the members whom the last news ended.
        closed: when the last news came, nobody was to enter any more.
    """

    def __init__(
        self,
        search: Search,
        modes: Sequence[str],
        training: TrainingConfig,
        fixed: Mapping[str, Any],
        key: str,
        warm: Sequence[tuple[Suggestion, Told]] = (),
    ) -> None:
        from memsweep.search.stopping.schedulers import scheduler

        self.members: dict[int, BlockMember] = {}
        self.round, self.closed = 0, False
        self._search, self._modes, self._training, self._fixed, self._warm = search, modes, training, fixed, warm
        self._key = key
        settings = search.settings
        self._scheduler = (
            scheduler(settings.scheduler, training.steps, training.validate_every)
            if settings.scheduler.by_ray
            else None
        )
        self.ended: dict[int, MemberState] = {}
        self._goes_on: dict[int, int] = {}
        self._looks: dict[int, int] = {}
        self._exhausted = False

    def winners(self, top: int) -> list[int]:
        """Numbers of the best suggestions that were trained to the end."""
        done = {n: m.values for n, m in self.members.items() if m.state is MemberState.DONE and m.values is not None}
        return best(done, self._modes, top)

    def hear(self, heard: Sequence[Heard], closed: bool | None = None) -> None:
        """Take in what the rows of the present round found, and let the scheduler decide.

        Args:
            heard: the news, in order of number.
            closed: whether nobody may enter any more, as the ledger has it; None where it is to be found out.
        """
        full = self._exhausted or len(self.members) >= self._search.settings.trials
        self.closed = full if closed is None else closed
        for news in heard:
            member = self.members[news.number]
            member.values, member.steps, member.waits = news.values, news.steps, True
        self._goes_on, self.ended = {}, {}
        last = self._training.steps
        decided = self._decisions([(h.number, h.steps) for h in heard], closed=self.closed) if heard else {}
        self._settle({**decided, **{news.number: None for news in heard if news.steps >= last}})

    def go_on(self) -> Round:
        """The next round: who trains on, and new suggestions in the places of whoever has ended; without its rows."""
        entries = self._evolved() if self._search.settings.scheduler.name == PBT else self._continued()
        suggestions = self._asked()
        entries += [Entry(s.number, self._first(s.number), s.values) for s in suggestions]
        if not entries and self._waiting:
            self._nobody_enters()
            entries = self._continued()
        return Round(
            suggestions=tuple(suggestions), entries=tuple(entries), closed=self.closed, exhausted=self._exhausted
        )

    def take(self, entry: Round) -> None:
        """Begin a round, fresh from ``go_on`` or read from the ledger."""
        known = self.members.keys()
        if any(one.number in known and one.number not in self._goes_on for one in entry.entries):
            self._nobody_enters()
        for suggestion in entry.suggestions:
            self.members[suggestion.number] = BlockMember(suggestion)
            if suggestion.number not in self._looks:
                self._enter(suggestion.number)
        for one in entry.entries:
            member = self.members[one.number]
            member.entries.append(one)
            member.waits = False
        self._goes_on = {}
        self._exhausted = entry.exhausted
        self.round += 1

    def told(self) -> list[tuple[Suggestion, Told]]:
        """What the sampler knows of suggestions that have ended, in order."""
        return [*self._warm] + [
            (
                member.suggestion,
                Told(number, member.values, member.steps, stopped=member.state is MemberState.STOPPED),
            )
            for number, member in self.members.items()
            if member.state is not MemberState.RUNNING
        ]

    @property
    def _wanted(self) -> int:
        """Suggestions that may be asked for now; members that wait for others take nobody's place."""
        settings = self._search.settings
        training = [member for member in self.members.values() if member.state is MemberState.RUNNING]
        busy = sum(not member.waits for member in training) + len(self._goes_on)
        batch = settings.trials if settings.scheduler.name == PBT else settings.batch
        return 0 if self._exhausted else max(0, min(batch - busy, settings.trials - len(self.members)))

    @property
    def _waiting(self) -> bool:
        return any(member.waits for member in self.members.values() if member.state is MemberState.RUNNING)

    def _asked(self) -> list[Suggestion]:
        from memsweep.search.suggest.sampler import ask

        if not (count := self._wanted):
            return []
        pending = [m.suggestion for m in self.members.values() if m.state is MemberState.RUNNING]
        made = ask(
            self._search.settings,
            self._search.space,
            self._fixed,
            self._modes,
            self.told(),
            pending,
            count,
            derived(self._search.settings.seed, self._key, self.round),
            self._search.first,
        )
        self._exhausted = not made
        start = len(self.members)
        return [Suggestion(start + place, one.values, one.memo) for place, one in enumerate(made)]

    def _first(self, number: int) -> int:
        if self._search.settings.scheduler.name == PBT:
            return self._until(self._next(0))
        self._enter(number)
        return self._until(self._looks[number])

    def _enter(self, number: int) -> None:
        """Bring a new member to the scheduler, once; it says when it will look at it first."""
        self._looks[number] = self._scheduler.first(number) if self._scheduler else self._training.steps

    def _next(self, steps: int) -> int:
        """The step of the next exchange of a population."""
        interval = self._search.settings.scheduler.interval
        return min(steps - steps % interval + interval, self._training.steps)

    def _until(self, steps: int) -> int:
        return 0 if steps >= self._training.steps else steps

    def _decisions(self, reports: Sequence[tuple[int, int]], *, closed: bool) -> Mapping[int, int | None]:
        """Who trains on, and to which step; whoever is stopped has None, and some may have to wait."""
        if self._scheduler is None:
            return {n: None if self.members[n].values is None else self._next(steps) for n, steps in reports}
        from memsweep.search.stopping.schedulers import Report

        told = [Report(number, steps, self._cost(self.members[number].values)) for number, steps in sorted(reports)]
        return self._scheduler.report(told, more=not closed)

    def _nobody_enters(self) -> None:
        """Let the scheduler decide on members that wait for others, who will not come."""
        self._settle(self._decisions([], closed=True))

    def _settle(self, decided: Mapping[int, int | None]) -> None:
        for number, steps in decided.items():
            member = self.members[number]
            if steps is None:
                self.ended[number] = member.state = self._end(member)
                member.waits = False
            else:
                self._goes_on[number] = steps

    def _end(self, member: BlockMember) -> MemberState:
        if member.values is None:
            return MemberState.FAILED
        if not all(map(math.isfinite, member.values)):
            return MemberState.DIVERGED
        return MemberState.STOPPED if member.steps < self._training.steps else MemberState.DONE

    def _continued(self) -> list[Entry]:
        return [
            Entry(number, self._until(steps), self.members[number].entries[-1].values, donor=number)
            for number, steps in sorted(self._goes_on.items())
        ]

    def _evolved(self) -> list[Entry]:
        """The next stretch of a population: the worst take over the best, with other settings."""
        from memsweep.search.stopping.population import PopulationMember, evolve

        if not self._goes_on:
            return []
        step = self.members[next(iter(self._goes_on))].steps
        population = [
            PopulationMember(number, self.members[number].entries[-1].values, self._cost(self.members[number].values))
            for number in sorted(self._goes_on)
        ]
        seed = derived(self._search.settings.seed, self._key, self.round)
        evolved = evolve(population, self._search.space, self._search.settings.scheduler, seed, step)
        if not evolved:  # all have diverged: there is nobody to take over
            self._settle(dict.fromkeys(self._goes_on))
        entries = []
        for one in evolved:
            before = self.members[one.donor].entries[-1]
            turns = before.turns
            if one.values != before.values:
                turns = (*turns, self._turn(step, before.values))
            entries.append(Entry(one.number, self._until(self._next(step)), one.values, turns, one.donor))
        return entries

    def _turn(self, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        from memsweep.config.schema.trial import TURNING

        settings = {name: getattr(self._training, name) for name in TURNING}
        return {"until": step, **settings, **{path.rpartition(".")[2]: value for path, value in values.items()}}

    def _cost(self, values: Sequence[float] | None) -> float:
        """The first objective as something to make small; a scheduler has no more than one."""
        if values is None or math.isnan(values[0]):
            return math.inf
        return -values[0] if self._modes[0] == "max" else values[0]


def derived(seed: int, key: str, round_number: int) -> int:
    """The sampler's seed in a round: a function of the search alone, 0 ... 2^31 - 1."""
    digest = hashlib.sha256(f"{seed}/{key}/{round_number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1
