"""Writes folders of searched studies with known answers: which suggestion is best, and what fresh seeds make of it.

The error of a suggestion is least at its cell's best learning rate, and grows with the distance from it in decades:
``LEAST * (1 + decades^2)`` at weight decay 0. Under ``direct`` the best rate falls as 1 / width; under ``exp`` it is
the same at every width. Confirmed errors are ``OPTIMISM`` times the search's, seed by seed. Under ``direct`` the radius
falls with the width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from memsweep.config.schema.search import LOG_UNIFORM, UNIFORM, Domain
from memsweep.search.history import SearchHistory
from memsweep.search.suggestions import SearchTrial, Suggestion, SuggestionRecord, SuggestionState
from memsweep.search.winners import best
from memsweep.sweep.store.results import Store
from report_study import Condition, config_of, tables_of, write_planned, write_trial

RATE, DECAY = "training.learning_rate", "training.weight_decay"
SPACE = {RATE: Domain(LOG_UNIFORM, 1e-4, 1.0), DECAY: Domain(UNIFORM, 0.0, 0.1)}
STEPS, RUNG, SEEDS, FRESH = 2500, 500, 3, 6
LEAST, OPTIMISM = 0.005, 1.25
HORIZON = 100
Values = Mapping[str, Any]


def best_rate(parameterization: str, width: int) -> float:
    """Where the error of a cell is least."""
    return 0.03 * (2 / width if parameterization == "direct" else 1.0)


@dataclass
class SearchedFolder:
    """A searched study to be written.

    Attributes:
        scheduler: ``none``; ``asha`` (two thirds of the suggestions stop at a rung); ``pbt`` (all turn there).
        objective: ``error``, and with ``radius`` beside it a second one, which grows with the weight decay.
        confirm: winners of each cell that are measured anew.
        diverging, failing, running: suggestions that diverge, failed, or have not ended, by number.
        found: share of the largest change that the search for worst pushes found; nan: no stronger one ran.
    """

    scheduler: str = "none"
    objective: tuple[str, ...] = ("error",)
    parameterizations: Sequence[str] = ("direct", "exp")
    widths: Sequence[int] = (2, 4, 8)
    suggestions: int = 9
    confirm: int = 1
    diverging: Sequence[int] = ()
    failing: Sequence[int] = ()
    running: Sequence[int] = ()
    claims: Values | None = None
    found: float = math.nan
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Parameterization and width of each cell."""
        return list(product(self.parameterizations, self.widths))

    @property
    def modes(self) -> tuple[str, ...]:
        """A radius is to be large, everything else small."""
        return tuple("max" if name == "radius" else "min" for name in self.objective)

    def write(self, folder: Path) -> SearchHistory:
        """Write the study's folder, and give its history as the search would."""
        count = len(self.cells)
        members = [member for cell in range(count) for member in self._block(folder, cell)]
        confirmed = self._confirm(folder, members)
        write_planned(folder, {"study": "searched", "description": "", "trials": self.trials, "claims": self.claims})
        return SearchHistory(
            suggestions=tuple(members),
            objective=self.objective,
            modes=self.modes,
            space=SPACE,
            cells=tuple(self._config(cell, {}) for cell in range(count)),
            scheduler=self.scheduler,
            algorithm="tpe",
            steps=STEPS,
            confirmed=confirmed,
            rounds=math.ceil(self.suggestions / 4),
        )

    def truth(self, cell: int, values: Values, *, until: int = 0, lost: bool = False) -> tuple[float, ...]:
        """The objectives of a suggestion, medians over the search's seeds."""
        if lost:
            return tuple(0.0 if name == "radius" else math.inf for name in self.objective)
        condition = self._condition(cell, values, until=until)
        reach = condition.base * (self.cells[cell][1] / 2) ** condition.slope_width
        found = {"error": float(condition.loss or 0) * (1 + 0.1 * (SEEDS - 1) / 2), "radius": 0.0949 * reach}
        return tuple(found[name] for name in self.objective)

    def _block(self, folder: Path, cell: int) -> list[SuggestionRecord]:
        rates = np.geomspace(1e-4, 1.0, self.suggestions)
        made = []
        for number, place in enumerate(np.random.default_rng(cell).permutation(self.suggestions)):
            values = {RATE: float(rates[place]), DECAY: round(0.1 * number / self.suggestions, 4)}
            made.append(self._member(folder, cell, Suggestion(number, values)))
        done = {m.suggestion.number: m.values for m in made if m.state is SuggestionState.DONE and m.values is not None}
        ranked = best(done, self.modes, self.confirm) if self.confirm else []
        return [
            replace(member, rank=ranked.index(member.suggestion.number) + 1)
            if member.suggestion.number in ranked
            else member
            for member in made
        ]

    def _member(self, folder: Path, cell: int, suggestion: Suggestion) -> SuggestionRecord:
        number = suggestion.number
        if number in (*self.running, *self.failing):
            row = SearchTrial(self._planned(cell, suggestion.values), cell, number)
            failed = number in self.failing
            state = SuggestionState.FAILED if failed else SuggestionState.RUNNING
            return SuggestionRecord(cell, suggestion, (row,), None, STEPS if failed else 0, state)
        stopped, lost = self.scheduler == "asha" and number % 3 > 0, number in self.diverging
        stretches = [0] if self.scheduler == "none" else [RUNG] if stopped else [RUNG, 0]
        rows = self._stretches(folder, (cell, number), stretches, suggestion.values, lost=lost)
        values = self.truth(cell, suggestion.values, until=stretches[-1], lost=lost)
        state = SuggestionState.STOPPED if stopped else SuggestionState.DIVERGED if lost else SuggestionState.DONE
        return SuggestionRecord(cell, suggestion, tuple(rows), values, RUNG if stopped else STEPS, state)

    def _stretches(
        self, folder: Path, place: tuple[int, int], stretches: Sequence[int], values: Values, *, lost: bool
    ) -> list[SearchTrial]:
        """The rows of a member in one cell."""
        cell, number = place
        rows: list[SearchTrial] = []
        for until in stretches:
            identity = self._planned(cell, values, until=until, **({} if until else self._turns()))
            self._result(folder, identity, cell, self._condition(cell, values, until=until), SEEDS if lost else 0)
            rows.append(SearchTrial(identity, cell, number, until, rows[-1].identity if rows else ""))
        return rows

    def _condition(self, cell: int, values: Values, *, until: int = 0, fresh: bool = False) -> Condition:
        parameterization, width = self.cells[cell]
        decades = math.log10(values[RATE] / best_rate(parameterization, width))
        loss = LEAST * (1 + decades**2) * (1 + 10 * values[DECAY]) * (2.0 if until else 1.0)
        return Condition(
            parameterization=parameterization,
            loss=loss * (OPTIMISM if fresh else 1.0),
            base=0.05 + values[DECAY],
            slope_width=-1.5 if parameterization == "direct" else 0.0,
            found=self.found,
        )

    def _config(self, cell: int, values: Values, **training: Any) -> dict[str, Any]:
        parameterization, width = self.cells[cell]
        config = config_of(Condition(parameterization=parameterization), HORIZON, width, SEEDS)
        config["training"] |= {"steps": STEPS, "data_seed": 0, "weight_decay": 0.01, "until": 0}
        config["training"] |= {path.removeprefix("training."): value for path, value in values.items()} | training
        return config

    def _planned(self, cell: int, values: Values, **training: Any) -> str:
        identity = f"{len(self.trials):032x}"
        self.trials.append({"identity": identity, "config": self._config(cell, values, **training)})
        return identity

    def _result(self, folder: Path, identity: str, cell: int, condition: Condition, lost: int = 0) -> None:
        config = self.trials[-1]["config"]
        seeds, first, end = (config["training"][name] for name in ("seeds", "first_seed", "until"))
        size = (HORIZON, self.cells[cell][1], seeds)
        tables = tables_of(identity, config, replace(condition, diverged=lost), size, ("recurrent",))
        steps = np.arange(0, (end or STEPS) + 1, 100)
        history = [
            pd.DataFrame(
                {"identity": identity, "seed": first + seed, "step": steps, "train_loss": 1.0}
                | {"validation_loss": float(condition.loss or 1) * (1 + 9 * np.exp(-steps / 600)) * (1 + 0.1 * seed)}
            )
            for seed in range(seeds)
        ]
        tables |= {"history": pd.concat(history), "memory": tables["memory"][:0]}
        write_trial(Store(folder), "searched", identity, config, tables, {})

    def _turns(self) -> dict[str, Any]:
        return (
            {"turns": [{"until": RUNG, "learning_rate": 0.5, "weight_decay": 0.25}]} if self.scheduler == "pbt" else {}
        )

    def _confirm(self, folder: Path, members: Sequence[SuggestionRecord]) -> dict[tuple[int, int], str]:
        confirmed = {}
        for member in sorted(members, key=lambda one: one.rank):
            if member.rank:
                cell, fresh = member.cell, {"seeds": FRESH, "first_seed": SEEDS, "data_seed": 1, **self._turns()}
                identity = self._planned(cell, member.suggestion.values, **fresh)
                self._result(folder, identity, cell, self._condition(cell, member.suggestion.values, fresh=True))
                confirmed[cell, member.rank] = identity
        return confirmed
