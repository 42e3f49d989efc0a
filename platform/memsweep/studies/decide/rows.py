"""The trials that an option adds to a condition, what they replace, and what they cost."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memsweep.config.load.code import code_problems
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.sizes import at_horizon
from memsweep.errors import ConfigError
from memsweep.report.read.fields import fields_of_width
from memsweep.stability.verdict.judgement import SMALLEST_SEEDS
from memsweep.studies.decide.choice import NEAR
from memsweep.studies.decide.options import ABOVE, BELOW, EFFORT, LONGER, STEPS, Option
from memsweep.studies.decide.question import Question
from memsweep.studies.decide.reading import Cell, Subject
from memsweep.sweep.planning import cost

_STARTS, _ASCENT = 4, 16
"""The effort of a search that leaves it out."""
_BEYOND = 10.0
"""Factor by which a repair moves an end of the radii."""


@dataclass(frozen=True)
class Addition:
    """The trials of an option.

    Attributes:
        added: new ones.
        removed: identities of those that they stand in the place of.
        trained: whether the new ones are trained, and not only measured from stored weights.
    """

    added: tuple[TrialConfig, ...] = ()
    removed: tuple[str, ...] = ()
    trained: bool = True

    @property
    def cost(self) -> float:
        """Core seconds by the cost model."""
        return sum(_seconds(config if self.trained else _untrained(config)) for config in self.added)


@dataclass
class Cells:
    """The trials of one condition by cell.

    Args:
        subject: the condition.
        failed: cells with a trial that has no result, and will get none.
    """

    subject: Subject
    failed: frozenset[Cell] = frozenset()
    seeds: dict[Cell, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, cell in self.subject.cells.items():
            training = self.subject.trials[name].training
            self.seeds.setdefault(cell, set()).update(range(training.first_seed, training.first_seed + training.seeds))
        self._first = min(map(min, self.seeds.values()))
        # thousands of designs are compared, of the same few cells
        self._new: dict[tuple[Cell, int], tuple[TrialConfig, ...]] = {}
        self._cost: dict[tuple[Cell, int], float] = {}
        self._sized: dict[Cell, TrialConfig] = {}
        self._possible: dict[Cell, bool] = dict.fromkeys(self.seeds, True)
        self._of_width = fields_of_width(map(to_dict, self.subject.trials.values()))

    def possible(self, width: int, horizon: int) -> bool:
        """Whether the settings allow these sizes, and the model's and the task's own code runs at them."""
        cell = width, horizon
        if cell not in self._possible:
            try:
                self._possible[cell] = not code_problems([self._like(cell, 0, 1)])
            except (ConfigError, ValueError):
                self._possible[cell] = False
        return self._possible[cell]

    def addition(self, question: Question, option: Option) -> Addition | None:
        """The trials of an option; None where a cell of it has failed, or cannot be."""
        try:
            if option.repairs:
                return self._repaired(question, option)
            if self.failed.intersection(option.design.cells):
                return None
            wanted = option.design.seeds
            return Addition(tuple(config for cell in option.design.cells for config in self._missing(cell, wanted)))
        except (ConfigError, ValueError):  # settings that are not allowed, a length that the task cannot have
            return None

    def cost(self, question: Question, option: Option) -> float:
        """Core seconds of the trials of an option by the cost model; infinite where ``addition`` has none."""
        if option.repairs:
            made = self.addition(question, option)
            return math.inf if made is None else made.cost
        cells = option.design.cells
        return (
            math.inf if self.failed.intersection(cells) else sum(self._cost_of(c, option.design.seeds) for c in cells)
        )

    def _cost_of(self, cell: Cell, wanted: int) -> float:
        """Core seconds of the trials with which a cell has so many seeds; infinite where it cannot be."""
        if (cell, wanted) not in self._cost:
            try:
                self._cost[cell, wanted] = Addition(self._missing(cell, wanted)).cost
            except (ConfigError, ValueError):
                self._cost[cell, wanted] = math.inf
        return self._cost[cell, wanted]

    def _missing(self, cell: Cell, wanted: int) -> tuple[TrialConfig, ...]:
        """The trials with which a cell has so many seeds."""
        if (cell, wanted) not in self._new:
            lacks = sorted({*range(self._first, self._first + wanted)} - self.seeds.get(cell, set()))
            apart = SMALLEST_SEEDS if self._first and cell not in self.seeds else 0  # a stronger search runs on these
            blocks = (*_blocks(lacks[:apart]), *_blocks(lacks[apart:]))
            self._new[cell, wanted] = tuple(self._like(cell, begin, count) for begin, count in blocks)
        return self._new[cell, wanted]

    def _like(self, cell: Cell, first: int, count: int) -> TrialConfig:
        """A trial of a cell with the settings of the nearest one: of the same width, where there is one."""
        if cell not in self._sized:
            self._sized[cell] = self._of_size(cell)
        sized = self._sized[cell]
        moved = replace(sized.perturbation, stronger_every=self._checked_every(cell, first, count))
        return replace(sized, perturbation=moved, training=replace(sized.training, first_seed=first, seeds=count))

    def _checked_every(self, cell: Cell, first: int, count: int) -> int:
        """``stronger_every`` of these seeds: a stronger search runs on the first seeds of a cell.

        It tells what the usual search misses, and costs up to seven times as much (docs/verdict.md). The reasons of a
        verdict say on how many seeds it ran. So seeds that join others have none.
        """
        asked = [trial.perturbation.stronger_every for trial in self.subject.trials.values()]
        every = min(filter(None, asked), default=0)
        begins = first == self._first and cell not in self.seeds
        return every if not every or (begins and first) else max(every, first + count)

    def _of_size(self, cell: Cell) -> TrialConfig:
        names = self.subject.cells
        near = min(names, key=lambda name: (_far(names[name][0], cell[0]), _far(names[name][1], cell[1])))
        data = to_dict(self.subject.trials[near])
        if names[near][0] != cell[0]:
            data["model"] |= dict.fromkeys(self._of_width, cell[0])
        if names[near][1] != cell[1]:
            data["task"] = to_dict(at_horizon(self.subject.trials[near].task, cell[1]))
        return trial_from_dict(data)

    def _repaired(self, question: Question, option: Option) -> Addition:
        (repair,) = option.repairs
        near = {cell for cell, times in question.misfit.items() if times <= NEAR}
        chosen = [name for name, cell in self.subject.cells.items() if repair != STEPS or cell in near]
        made = [trial_from_dict(_REPAIR[repair](to_dict(self.subject.trials[name]))) for name in chosen]
        return Addition(tuple(made), tuple(chosen), trained=repair in (STEPS, LONGER))


def _far(one: int, other: int) -> float:
    return abs(math.log(one / other))


def _blocks(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of neighbouring numbers: the first, and how many."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield numbers[start], place - start
            start = place


def _smaller(data: dict[str, Any]) -> dict[str, Any]:
    return _moved(data, "from", 1.0 / _BEYOND)


def _larger(data: dict[str, Any]) -> dict[str, Any]:
    return _moved(data, "to", _BEYOND)


def _moved(data: dict[str, Any], end: str, factor: float) -> dict[str, Any]:
    """The radii with another end, as dense as they were."""
    radii = data["perturbation"]["radii"]
    steps = (radii["count"] - 1) / math.log(radii["to"] / radii["from"])
    radii[end] *= factor
    radii["count"] = 1 + math.ceil(steps * math.log(radii["to"] / radii["from"]) - 1e-9)
    return data


def _stronger(data: dict[str, Any]) -> dict[str, Any]:
    """The usual effort where it was less, and twice the effort where it was not."""
    search = data["perturbation"]
    usual = search["starts"] >= _STARTS and search["ascent_steps"] >= _ASCENT
    new = {name: 2 * search[name] if usual else max(search[name], least) for name, least in _EFFORT.items()}
    search |= new
    return data


_EFFORT = {"starts": _STARTS, "ascent_steps": _ASCENT}


def _longer(data: dict[str, Any]) -> dict[str, Any]:
    data["training"]["steps"] *= 2
    return data


def _longer_of_all(data: dict[str, Any]) -> dict[str, Any]:
    training = data["training"]
    if training["until"] or training["smallest_rate"] or not training["steps"]:
        raise ValueError("its training does not end by the number of its steps")
    return _longer(data)


_REPAIR: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    BELOW: _smaller,
    ABOVE: _larger,
    EFFORT: _stronger,
    STEPS: _longer,
    LONGER: _longer_of_all,
}


def _untrained(config: TrialConfig) -> TrialConfig:
    return replace(config, training=replace(config.training, steps=1, until=0, warmup=0))


@functools.lru_cache(maxsize=100_000)
def _seconds(config: TrialConfig) -> float:
    return cost.seconds([config])
