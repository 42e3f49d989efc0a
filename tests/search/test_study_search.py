"""The rounds of a search: what trains, who is stopped, who wins; and that an interruption changes none of it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from search_study import Remembered, finish, loss, study, table

from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.suggestion import config_of
from memsweep.errors import ConfigError, MemsweepError
from memsweep.search.round_log import RoundLog
from memsweep.search.study_search import StudySearch
from memsweep.search.suggestions import SuggestionState
from memsweep.sweep.planning.identity import identity
from memsweep.sweep.store.filesystem import Location

SCHEDULERS = {
    "none": (),
    "asha": ("search.scheduler={name: asha, grace: 100, reduction: 3}",),
    "hyperband": ("search.scheduler={name: hyperband, grace: 100, reduction: 3}",),
    "median": ("search.scheduler={name: median, grace: 200, interval: 200}",),
    "pbt": ("search.scheduler={name: pbt, interval: 300}",),
}
SOME = ["asha", "pbt", *(pytest.param(name, marks=pytest.mark.more) for name in ("none", "hyperband", "median"))]
ALGORITHMS = ("random", "tpe", "gp", "cma_es", "nsga_ii")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_suggestion_ends_and_the_best_is_confirmed_on_seeds_and_data_that_chose_nothing(
    tmp_path: Path, name: str
) -> None:
    sweep = study(tmp_path, *SCHEDULERS[name], "search.trials=9", "search.batch=9")
    study_search = finish(sweep, Remembered(tmp_path / "r"))
    searched = {row.identity: row for row in study_search.searched if not row.rank}
    members = Counter((row.cell, row.number) for row in {(r.cell, r.number): r for r in searched.values()}.values())
    assert set(members) == {(search, number) for search in range(2) for number in range(9)}
    confirmed = [row for row in study_search.searched if row.rank]
    assert [(row.cell, row.rank) for row in confirmed] == [(0, 1), (1, 1)]
    seeds = {seed for row in searched.values() for seed in _seeds(study_search.trials[row.identity].config)}
    for row in confirmed:
        config = study_search.trials[row.identity].config
        assert config.training.until == 0
        assert len(_seeds(config)) == 4
        assert not seeds & set(_seeds(config))
        assert config.training.data_seed != sweep.rows[0].training.data_seed
        whole = [
            study_search.trials[r.identity].config for r in searched.values() if r.cell == row.cell and not r.until
        ]
        best = min(whole, key=loss)
        assert config.training.learning_rate == best.training.learning_rate


def _seeds(config: TrialConfig) -> range:
    return range(config.training.first_seed, config.training.first_seed + config.training.seeds)


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "none"])
def test_early_stopping_spends_fewer_steps_and_whoever_trains_on_goes_on_from_its_own_state(
    tmp_path: Path, name: str
) -> None:
    sweep = study(tmp_path, *SCHEDULERS[name], "search.trials=18", "search.batch=9", "~grid.model.width")
    study_search = finish(sweep, Remembered(tmp_path / "r"))
    rows = [row for row in study_search.searched if not row.rank]
    spent, before = 0, {}
    for row in rows:
        end = row.until or 900
        start = before.get(row.after, 0)
        assert end > start
        spent += end - start
        before[row.identity] = end
        if row.after:
            assert study_search.trials[row.identity].after == row.after
    assert spent <= 18 * 900
    if name in ("asha", "hyperband"):
        assert spent < 0.8 * 18 * 900


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", [pytest.param("none", marks=pytest.mark.more), "asha"])
def test_an_interrupted_search_goes_on_as_if_it_had_not_been(tmp_path: Path, algorithm: str, name: str) -> None:
    words = [*SCHEDULERS[name], f"search.algorithm={algorithm}", "search.trials=10", "search.batch=3"]
    second = "search.training.clip={log_uniform: [0.1, 10]}"  # CMA-ES wants two fields
    sweep = study(tmp_path, *words, second, "~grid.model.width")
    whole = table(finish(sweep, Remembered(tmp_path / "whole")))
    broken = Remembered(tmp_path / "broken")
    rounds = 1
    while table(finish(sweep, broken, rounds=1)) != whole and rounds < 20:
        rounds += 1
    assert 2 < rounds < 19
    assert table(finish(sweep, broken)) == whole


@pytest.mark.parametrize("name", ["hyperband", "median", "pbt"])
def test_schedulers_come_back_into_the_state_in_which_they_were(tmp_path: Path, name: str) -> None:
    sweep = study(tmp_path, *SCHEDULERS[name], "search.trials=8", "search.batch=4", "~grid.model.width")
    whole = table(finish(sweep, Remembered(tmp_path / "whole")))
    broken = Remembered(tmp_path / "broken")
    while table(finish(sweep, broken, rounds=1)) != whole:
        assert len(broken.losses) <= len({row.identity for row, _ in whole})


def test_the_log_rules_over_the_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of a sampler may suggest other things; what has been decided stays."""
    sweep, store = study(tmp_path), Remembered(tmp_path / "r")
    whole = table(finish(sweep, store))
    monkeypatch.setattr("memsweep.search.suggest.sampler.ask", _refuse)
    assert table(finish(sweep, store)) == whole


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("the sampler was asked")


@pytest.mark.parametrize("damage", [b"", b"{}", b"\x00" * 100, b'{"observations": []}'])
def test_a_damaged_round_is_decided_again(tmp_path: Path, damage: bytes) -> None:
    sweep, store = study(tmp_path, "search.algorithm=tpe"), Remembered(tmp_path / "r")
    whole = table(finish(sweep, store))
    for path in sorted((tmp_path / "r" / "search").glob("*/000001.json")):
        path.write_bytes(damage)
    assert table(finish(sweep, store)) == whole


def test_other_results_make_other_rounds(tmp_path: Path) -> None:
    """Changed code changes what was found; what followed from the old numbers is not kept."""
    sweep = study(tmp_path, "search.algorithm=tpe", "search.trials=12", "~grid.model.width")
    first, other = Remembered(tmp_path / "first"), Remembered(tmp_path / "other")
    finish(sweep, first)

    def upside_down(config: TrialConfig) -> float:
        return 1.0 - loss(config)

    expected = table(finish(sweep, other, loss=upside_down))
    first.losses.clear()
    assert table(finish(sweep, first, loss=upside_down)) == expected


def test_other_code_takes_nothing_from_the_log_unless_the_study_is_swept_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, store = study(tmp_path), Remembered(tmp_path / "r")
    finish(sweep, store)
    folder = tmp_path / "r" / "search"
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    monkeypatch.setattr("memsweep.search.study_search.identity", lambda config, arithmetic: f"x{identity(config)}")
    with pytest.raises(MemsweepError, match="that the installed code would make differently"):
        StudySearch(sweep, store, same_code=True).advance(())
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before
    assert finish(sweep, store).ended


@pytest.mark.more
def test_equal_rows_of_two_members_run_once(tmp_path: Path) -> None:
    """Two of a population may take over the same member, and both come to the end of the domain."""
    narrow = "search.training.learning_rate={uniform: [0.01, 0.011]}"
    always = "search.scheduler={name: pbt, interval: 100, quantile: 0.5, resample: 0}"
    sweep = study(tmp_path, narrow, always, "search.trials=8", "~grid.model.width", "~confirm")
    store, twice = Remembered(tmp_path / "r"), 0
    for _ in range(9):
        study_search = finish(sweep, store, rounds=1)
        names = [trial.identity for trial in study_search.current_trials]
        assert len(names) == len(set(names))
        twice += 8 - len(names)
    assert twice > 0
    assert {row.number for row in study_search.searched if not row.until} == set(range(8))


@pytest.mark.parametrize(
    "name", ["asha", *(pytest.param(name, marks=pytest.mark.more) for name in ("none", "hyperband", "median"))]
)
def test_more_suggestions_prolong_a_search(tmp_path: Path, name: str) -> None:
    store = Remembered(tmp_path / "r")
    short = table(finish(study(tmp_path, *SCHEDULERS[name], "~confirm"), store))
    longer = study(tmp_path, *SCHEDULERS[name], "search.trials=12")
    searched = [entry for entry in table(finish(longer, store)) if not entry[0].rank]
    assert [entry for entry in searched if entry[0].number < 6 or entry in short][: len(short)] == short
    assert {entry[0].number for entry in searched} == set(range(12))
    again = [entry for entry in table(finish(longer, store)) if not entry[0].rank]
    for search in range(2):  # a search that was prolonged begins its next round beside others of earlier rounds
        assert [e for e in again if e[0].cell == search] == [e for e in searched if e[0].cell == search]


def test_a_failed_suggestion_is_told_as_failed_and_stays_so(tmp_path: Path) -> None:
    sweep, store = study(tmp_path, "search.algorithm=tpe"), Remembered(tmp_path / "r")
    first = finish(sweep, store, failing={0, 3})
    assert not any(row.number in (0, 3) for row in first.searched if row.rank)
    again = finish(sweep, store)  # now they would have a result
    assert table(again) == table(first)


def test_settings_that_make_no_trial_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that hold only between the ends of a domain show when a suggestion is built."""

    def picky(cell: TrialConfig, values: dict[str, float], **options: Any) -> TrialConfig:
        if values["training.learning_rate"] > 0.01:
            raise ConfigError(["training.learning_rate: is not to be had"], "the suggestion")
        return config_of(cell, values, **options)

    monkeypatch.setattr("memsweep.search.study_search.config_of", picky)
    sweep = study(tmp_path, "search.trials=10")
    study_search = finish(sweep, Remembered(tmp_path / "r"))
    assert study_search.ended
    assert {row.cell for row in study_search.searched if row.rank} == {0, 1}
    assert len({(row.cell, row.number) for row in study_search.searched}) < 20
    assert table(finish(sweep, Remembered(tmp_path / "r"))) == table(study_search)
    (summary,) = study_search.summary()
    tried = {(row.cell, row.number) for row in study_search.searched}
    assert f"20 of 20 suggestions ended, {20 - len(tried)} failed, 2 winners to retrain" in summary


@pytest.mark.parametrize("name", SOME)
def test_a_search_of_which_everything_fails_ends_without_a_winner(tmp_path: Path, name: str) -> None:
    study_search = finish(study(tmp_path, *SCHEDULERS[name]), Remembered(tmp_path / "r"), failing=range(100))
    assert study_search.ended
    assert not any(row.rank for row in study_search.searched)


@pytest.mark.parametrize("name", SOME)
def test_diverged_suggestions_do_not_win(tmp_path: Path, name: str) -> None:
    def diverging(config: TrialConfig) -> float:
        return math.inf if config.training.learning_rate > 0.003 else loss(config)

    sweep = study(tmp_path, *SCHEDULERS[name], "search.trials=12", "search.batch=4")
    study_search = finish(sweep, Remembered(tmp_path / "r"), loss=diverging)
    for row in study_search.searched:
        if row.rank:
            assert study_search.trials[row.identity].config.training.learning_rate <= 0.003


def test_a_finite_space_is_not_tried_twice(tmp_path: Path) -> None:
    text = "{choice: [0.001, 0.01, 0.1]}"
    sweep = study(tmp_path, f"search.training.learning_rate={text}", "search.trials=10")
    study_search = finish(sweep, Remembered(tmp_path / "r"))
    searched = [row for row in study_search.searched if not row.rank]
    assert len(searched) == len({row.identity for row in searched}) == 6


def test_a_population_hands_on_its_lineage(tmp_path: Path) -> None:
    sweep = study(tmp_path, *SCHEDULERS["pbt"], "search.trials=8", "~grid.model.width")
    study_search = finish(sweep, Remembered(tmp_path / "r"))
    configs = {row.identity: study_search.trials[row.identity].config for row in study_search.searched}
    taken = 0
    for row in study_search.searched:
        config = configs[row.identity]
        if not row.after:
            continue
        donor = configs[row.after]
        own = [
            r
            for r in study_search.searched
            if r.number == row.number and not r.rank and r.until and r.until < (row.until or 900)
        ]
        taken += own[-1].identity != row.after
        if config.training.learning_rate == donor.training.learning_rate:
            assert config.training.turns == donor.training.turns
        else:
            *before, last = config.training.turns
            assert tuple(before) == donor.training.turns
            assert (last.until, last.learning_rate) == (donor.training.until, donor.training.learning_rate)
    assert taken > 0
    (winner,) = [row for row in study_search.searched if row.rank]
    assert (
        configs[winner.identity].training.turns
        == max(
            (configs[r.identity] for r in study_search.searched if not r.rank and not r.until), key=lambda c: -loss(c)
        ).training.turns
    )


def test_a_round_in_the_place_of_another_is_decided_again(tmp_path: Path) -> None:
    sweep = study(tmp_path, "search.trials=4", "search.batch=2")
    whole = table(finish(sweep, Remembered(tmp_path / "r")))
    one, other = (path / "000000.json" for path in sorted((tmp_path / "r" / "search").iterdir()))
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1])
    other.write_bytes(texts[0])
    one.with_name("000001.json").write_bytes(texts[0])
    log = RoundLog(Location.at(tmp_path / "r"), one.parent.name)
    assert (log.read(0), log.read(1)) == (None, None)
    assert table(finish(sweep, Remembered(tmp_path / "r"))) == whole
    assert (one.read_bytes(), other.read_bytes()) == texts


def test_states_say_how_suggestions_ended(tmp_path: Path) -> None:
    sweep = study(tmp_path, *SCHEDULERS["asha"], "search.trials=9", "search.batch=9", "~grid.model.width")
    finish(sweep, Remembered(tmp_path / "r"), failing={4})
    (folder,) = (tmp_path / "r" / "search").iterdir()
    rounds = RoundLog(Location.at(tmp_path / "r"), folder.name).read_all()
    states = {number: state for one in rounds for number, state in (one.ended or {}).items()}
    assert states.keys() == set(range(9))
    assert states[4] is SuggestionState.FAILED
    assert {SuggestionState.DONE, SuggestionState.STOPPED} <= set(states.values())
