"""What is wrong with a study's ``search`` and ``confirm`` over its cells: all that is known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memsweep.config.core.problems import sentence
from memsweep.config.schema.axes import Axes
from memsweep.config.schema.search import ConfirmConfig, Search
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.conditions import condition_problems
from memsweep.config.search.paths import path_problems
from memsweep.config.search.sections import confirm_data_seed, confirm_first_seed
from memsweep.config.search.settings import settings_problems
from memsweep.config.search.space import tried

_MOST_SEED = 2**31


def search_problems(
    search: Search, cells: Sequence[TrialConfig], axes: Axes, base: Mapping[str, Any], resources: Any, study: str
) -> list[str]:
    """One sentence for everything that is wrong with a search.

    Args:
        search: as it was read.
        cells: the rows of the study's grid, as far as they are valid.
        axes: of the grid.
        base: plain data of the study's base trial.
        resources: ResourcesConfig, or something else where it is wrong.
        study: its name.
    """
    problems = [*path_problems(search.space, axes), *condition_problems(search, cells)]
    trials = [] if problems else tried(search.space, cells, axes, base, problems)
    problems += settings_problems(search, cells, trials, resources, study)
    return problems


def confirm_problems(
    confirm: ConfirmConfig, search: Search | None, cells: Sequence[TrialConfig], *, searches: bool
) -> Iterator[str]:
    """One sentence for everything that is wrong with a confirmation.

    Args:
        confirm: as it was read.
        search: the study's search; None where it is wrong or there is none.
        cells: the rows of the study's grid, as far as they are valid.
        searches: whether the study has a search at all.
    """
    if not searches:
        rule = "measures anew what a search has found, and the study has no search. Take it out (~confirm)"
        yield sentence("confirm", rule)
        return
    if search is not None and confirm.top > search.settings.trials:
        rule = f"must be at most search.trials, {search.settings.trials}: there are no more suggestions"
        yield sentence("confirm.top", rule, str(confirm.top))
    if cells:
        yield from _seed_problems(confirm, cells)
        yield from _data_problems(confirm, cells)


def _seed_problems(confirm: ConfirmConfig, cells: Sequence[TrialConfig]) -> Iterator[str]:
    first = confirm_first_seed(cells, confirm)
    end = first + confirm.seeds
    taken = [(cell.training.first_seed, cell.training.first_seed + cell.training.seeds) for cell in cells]
    met = [(start, stop) for start, stop in dict.fromkeys(taken) if start < end and first < stop]
    if met:
        start, stop = met[0]
        rule = f"seeds {first} to {end - 1} are not fresh: the search has {start} to {stop - 1}"
        free = max(stop for _, stop in taken)
        yield sentence("confirm.first_seed", f"{rule}. Leave it out, or begin at {free} or later")
    if first > _MOST_SEED:
        yield sentence("confirm.first_seed", f"must be at most {_MOST_SEED}. Let the search begin lower", str(first))


def _data_problems(confirm: ConfirmConfig, cells: Sequence[TrialConfig]) -> Iterator[str]:
    taken = {cell.training.data_seed for cell in cells}
    met = sorted(taken & {confirm_data_seed(cell, confirm) for cell in cells})
    if met:
        rule = f"{met[0]} is not fresh: the search has data of training.data_seed {met[0]}"
        yield sentence("confirm.data_seed", f"{rule}. Give another one, {max(taken) + 1} say")
    elif confirm.data_seed is None and max(taken) >= _MOST_SEED:
        yield sentence("confirm.data_seed", "must be given where training.data_seed is the largest that there is")
