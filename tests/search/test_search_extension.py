"""An extension of a search adds, and takes nothing out: neither fresh seeds nor winners, neither cells nor trials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from search_study import Remembered, finish, study

from memsweep.config.schema.search import ConfirmConfig
from memsweep.config.schema.study import SweepConfig
from memsweep.errors import MemsweepError
from memsweep.studies.extension import extend_search

POPULATION = "search.scheduler={name: pbt, grace: 300, interval: 300}"


def extended(folder: Path, *steps: Sequence[str], words: Sequence[str] = ()) -> SweepConfig:
    """The study after one extension after the other, each by words that name what it adds alone."""
    found = study(folder, *words)
    for step in steps:
        found = extend_search(found, study(folder, *words, *step), extended=True)
    return found


@pytest.mark.parametrize("later", ["search.trials=8", "model.width=2,4,8"])
def test_an_extension_keeps_the_confirmations_of_an_earlier_one(tmp_path: Path, later: str) -> None:
    more = {"confirm.seeds=7": (7, 1), "confirm.top=2": (4, 2)}
    for word, (seeds, top) in more.items():
        for less in ("confirm.seeds=3", "~confirm"):
            found = extended(tmp_path, [word], [later, less]).confirm
            assert found == ConfirmConfig(seeds=seeds, top=top)


def test_trials_of_an_extended_search_are_all_planned_still(tmp_path: Path) -> None:
    """But for the confirmation of a winner that a new one beats: here the first suggestions are the best."""
    first = extended(tmp_path, ["confirm.seeds=7"])
    store = Remembered(tmp_path)
    before = finish(first, store).trials
    later = extend_search(first, study(tmp_path, "model.width=2,4,8"), extended=True)
    assert before.keys() < finish(later, store).trials.keys()


@pytest.mark.parametrize("asked", [(), ("confirm.seeds=3",), ("search.trials=6", "confirm.seeds=5")])
def test_an_extension_that_asks_for_less_adds_nothing_and_says_what_is_there(
    tmp_path: Path, asked: tuple[str, ...]
) -> None:
    with pytest.raises(MemsweepError, match=r"6 suggestions .*, confirmed with 7 fresh seeds.*\(confirm.seeds=14\)"):
        extended(tmp_path, ["confirm.seeds=7"], asked)
    assert extended(tmp_path, ["confirm.seeds=7"], ["confirm.seeds=7"]).confirm  # after a stop: it goes on


@pytest.mark.parametrize("word", ["training.seeds=3", "training.first_seed=4", "training.seeds=1"])
def test_an_extension_by_other_seeds_is_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(MemsweepError, match="would choose and confirm anew, and leave trials of 'found' out"):
        extended(tmp_path, ["model.width=2,4,8", word])


def test_a_population_gets_no_more_members(tmp_path: Path) -> None:
    words = [POPULATION, "search.trials=6"]
    with pytest.raises(MemsweepError, match=r"size of a population \(6\): another one would train anew"):
        extended(tmp_path, ["search.trials=8"], words=words)
    with pytest.raises(MemsweepError, match="Name more values of an axis"):
        extended(tmp_path, ["search.trials=5"], words=words)
    assert len(extended(tmp_path, ["model.width=2,4,8"], words=words).rows) == 3
