"""The algorithm ``grid``: every combination once, in order, whatever the rounds; and what has no end is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_study import Remembered, finish, loss, study

from memsweep.config.schema.search import Domain, SearchConfig
from memsweep.errors import ConfigError
from memsweep.search.history import searches_of
from memsweep.search.round_log import Round
from memsweep.search.suggest.sampler import ask
from memsweep.search.suggestions import Result, SearchTrial, Suggestion

RATES = (1e-3, 1e-2, 0.1)
SPACE = {
    "training.learning_rate": Domain("choice", values=RATES),
    "training.seeds": Domain("int", 2, 3),
    "training.clip": Domain("choice", values=(0.5, 1.0), when={"training.seeds": (3,)}),
}
GRID = ("search={training.learning_rate: {choice: [1e-3, 1e-2, 0.1]}, algorithm: grid, trials: 3, batch: 2}",)


@pytest.mark.parametrize("batch", [1, 2, 20])
def test_every_combination_comes_once_and_rounds_do_not_change_the_order(batch: int) -> None:
    search = SearchConfig(algorithm="grid", batch=batch)
    told: list[tuple[Suggestion, Result]] = []
    while new := ask(search, SPACE, {}, ["min"], told, [], batch, seed=len(told)):
        told += [(one, Result(one.number, (1.0,), 10)) for one in new]
    found = [tuple(suggestion.values.get(path) for path in SPACE) for suggestion, _ in told]
    conditional = {(rate, 3, clip) for rate in RATES for clip in (0.5, 1.0)}
    assert set(found) == conditional | {(rate, 2, None) for rate in RATES}
    assert len(found) == 9
    whole = ask(SearchConfig(algorithm="grid"), SPACE, {}, ["min"], [], [], 20, seed=5)
    assert [suggestion.values for suggestion, _ in told] == [suggestion.values for suggestion in whole]


def test_a_grid_study_tries_each_rate_in_each_cell_and_confirms_the_best(tmp_path: Path) -> None:
    study_search = finish(study(tmp_path, *GRID), Remembered(tmp_path / "r"))
    tried = [(row.cell, study_search.trials[row.identity].config) for row in study_search.searched if not row.rank]
    assert sorted((cell, config.training.learning_rate) for cell, config in tried) == [
        (cell, rate) for cell in (0, 1) for rate in RATES
    ]
    for row in (row for row in study_search.searched if row.rank):
        best = min((config for cell, config in tried if cell == row.cell), key=loss)
        assert study_search.trials[row.identity].config.training.learning_rate == best.training.learning_rate


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("search.trials=2", r"search.trials: must be at least 3 for the grid, which has so many combinations.* got 2"),
        ("search.training.clip={uniform: [0, 1]}", r"grid tries every value, and training.clip has no end of them"),
        ("search.training.batch_size={int: [1, 200000]}", r"600,000, more than 100,000"),
    ],
)
def test_a_grid_that_cannot_be_gone_through_is_refused(tmp_path: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        study(tmp_path, *GRID, override)


def test_an_earlier_search_of_the_same_cell_among_fewer_values_is_not_counted() -> None:
    """Its log stays in the folder, and began with trials that the later plan has, too."""

    def log(cell: int, *identities: str) -> list[Round]:
        return [Round(trials=tuple(SearchTrial(name, cell, at) for at, name in enumerate(identities)), cell=cell)]

    earlier, later, other = log(5, "a", "b"), log(0, "a", "b", "c", "d"), log(1, "e", "gone")
    foreign = log(2, "gone", "lost")
    found = list(searches_of({"a", "b", "c", "d", "e"}, [earlier, foreign, other, later]))
    assert found == [later, other]
