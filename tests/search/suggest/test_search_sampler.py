"""Suggestions are a function of what was told: rebuilt at any moment, in any process, a search goes on the same way."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import cmaes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsweep.config.schema.search import Domain, SearchConfig
from memsweep.search.suggest import space as spaces
from memsweep.search.suggest.sampler import ask
from memsweep.search.suggestions import Result, Suggestion

DEAR = [pytest.param("gp", marks=pytest.mark.drill)]
SINGLE = ["random", "tpe", "cma_es", "nsga_ii", *DEAR]
SEVERAL = ["random", "tpe", "nsga_ii", *DEAR]
MIXED = {
    "training.learning_rate": Domain("log_uniform", 1e-4, 1.0),
    "training.weight_decay": Domain("uniform", 0.0, 0.5),
    "model.width": Domain("int", 1, 16),
    "training.batch_size": Domain("log_int", 8, 512),
    "model.parameterization": Domain("choice", values=("exp", {"name": "best", "a": 1}, 3)),
    "model.depth": Domain("uniform", 0.0, 1.0, when={"model.parameterization": (3, {"name": "best", "a": 1})}),
}

OTHER_PROCESS = """
import json, sys
import test_search_sampler as work
algorithm, cut = sys.argv[1], int(sys.argv[2])
state = json.load(sys.stdin)
print(json.dumps(work.searched(algorithm, 4, state, cut)))
"""


def loss(values: Mapping[str, Any]) -> float:
    """Smallest at rate 1e-2 and width 5; diverges at large rates."""
    rate = values["training.learning_rate"]
    if rate > 0.3:
        return math.inf if rate > 0.5 else math.nan
    return math.log10(rate / 1e-2) ** 2 + abs(values["model.width"] - 5) / 5 + float(values.get("model.depth", 0.3))


def searched(algorithm: str, rounds: int, state: Sequence[Any] = (), start: int = 0, batch: int = 4) -> list[Any]:
    """Rounds of a search, its state a JSON text in between; some of it stopped early, some failed."""
    search = SearchConfig(algorithm=algorithm, startup=6, batch=batch)
    text = json.dumps(list(state))
    for number in range(start, rounds):
        known = [(Suggestion(**one), Result(**two)) for one, two in json.loads(text)]
        # one suggestion is always a round late
        late, known = (known[-1:], known[:-1]) if number else ([], known)
        new = ask(search, MIXED, {}, ["min"], known, [one for one, _ in late], batch, seed=1000 + number)
        for one in new:
            value = loss(one.values)
            values = None if one.number % 11 == 10 else (value,)
            late.append((one, Result(one.number, values, 100 if one.number % 3 else 40, stopped=one.number % 3 == 0)))
        text = json.dumps([(asdict(one), asdict(two)) for one, two in [*known, *late]])
    return json.loads(text)


@pytest.mark.parametrize("algorithm", SINGLE)
def test_rebuilt_at_every_round_it_is_the_uninterrupted_search(algorithm: str) -> None:
    rounds = 4 if algorithm == "gp" else 6
    whole = searched(algorithm, rounds)
    for cut in {1, rounds - 2}:
        assert searched(algorithm, rounds, searched(algorithm, cut), cut) == whole
    numbers = [suggestion["number"] for suggestion, _ in whole]
    assert sorted(numbers) == list(range(4 * rounds))


@pytest.mark.more
@pytest.mark.parametrize(
    "algorithms", [pytest.param(("tpe", "cma_es", "nsga_ii", "random", "gp"), marks=pytest.mark.drill), ("tpe",)]
)
def test_another_process_with_other_hashes_suggests_the_same(algorithms: tuple[str, ...]) -> None:
    for algorithm in algorithms:
        state = searched(algorithm, 2)
        env = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run(
            [sys.executable, "-c", OTHER_PROCESS, algorithm, "2"],
            input=json.dumps(state),
            env=env,
            cwd=os.path.dirname(__file__),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == searched(algorithm, 4)


def test_the_order_in_which_results_are_listed_decides_nothing() -> None:
    known = [(Suggestion(**one), Result(**two)) for one, two in searched("tpe", 5)]
    search = SearchConfig(algorithm="tpe", startup=6)
    turned = ask(search, dict(reversed(MIXED.items())), {}, ["min"], known[::-1], [], 3, 5)
    assert turned == ask(search, MIXED, {}, ["min"], known, [], 3, 5)
    assert turned != ask(search, MIXED, {}, ["min"], known, [], 3, 6)


def test_the_rebuilt_optimizer_is_the_one_that_was_never_discarded() -> None:
    """After five generations, the sampler's next points are those of one optimizer that was kept throughout."""
    space = {"x": Domain("uniform", -5.0, 10.0), "y": Domain("int", 0, 15)}
    search = SearchConfig(algorithm="cma_es", batch=6)
    told: list[tuple[Suggestion, Result]] = []
    kept = cmaes.CMAwM(
        np.full(2, 0.5), 1 / 6, np.tile([0.0, 1.0], (2, 1)), np.array([0.0, 1 / 15]), 20, seed=5, population_size=6
    )
    for _ in range(5):
        new = ask(search, space, {}, ["min"], told, [], 6, 5)
        points = [one.memo["x"] for one in new]
        if not told:
            np.testing.assert_array_equal(points, [kept.ask()[1] for _ in new])
        values = [(one.values["x"] - 2) ** 2 + (one.values["y"] - 4) ** 2 for one in new]
        kept.tell([(np.array(point), value) for point, value in zip(points, values, strict=True)])
        told += [(one, Result(one.number, (value,), 10)) for one, value in zip(new, values, strict=True)]
    assert {one.memo["generation"] for one, _ in told} == set(range(5))
    assert kept.generation == 5
    # the distribution is the same, whatever random numbers are drawn from it
    ours = [ask(search, space, {}, ["min"], told, [], 6, seed) for seed in range(40)]
    theirs = np.array([kept.ask()[1] for _ in range(240)])
    mine = np.array([one.memo["x"] for each in ours for one in each])
    assert np.abs(mine.mean(axis=0) - theirs.mean(axis=0)).max() < 0.03
    assert np.abs(np.log(mine.std(axis=0) / theirs.std(axis=0))).max() < 0.3


def test_no_pickle_is_kept() -> None:
    notes = {key for suggestion, _ in searched("cma_es", 6) for key in suggestion["memo"]}
    assert notes == {"generation", "x"}


@pytest.mark.parametrize("algorithm", SINGLE)
def test_a_space_that_is_exhausted_gives_every_suggestion_once(algorithm: str) -> None:
    space = {
        "a": Domain("choice", values=("p", "q")),
        "b": Domain("int", 1, 3),
        "c": Domain("choice", values=(0, 1), when={"a": ("q",)}),
    }
    search = SearchConfig(algorithm=algorithm, startup=2, batch=2)
    told: list[tuple[Suggestion, Result]] = []
    for number in range(3):
        pending = [one for one, _ in told[-2:]]
        new = ask(search, space, {}, ["min"], told[:-2], pending, 4, number)
        told += [(one, Result(one.number, (float(one.values["b"]),), 10)) for one in new]
    assert len(told) == 9
    assert len({spaces.suggestion_key(one.values) for one, _ in told}) == 9
    assert ask(search, space, {}, ["min"], told, [], 4, 9) == []


@pytest.mark.parametrize("algorithm", SINGLE)
def test_diverged_trials_drive_the_search_away(algorithm: str) -> None:
    """Above x = 0 everything diverges; what is told of it is finite, and no sampler but chance goes back often."""
    space = {"x": Domain("uniform", -1.0, 1.0), "y": Domain("uniform", -1.0, 1.0)}
    search = SearchConfig(algorithm=algorithm, startup=4, batch=4)
    told: list[tuple[Suggestion, Result]] = []
    for number in range(12):
        for one in ask(search, space, {}, ["min"], told, [], 4, number):
            x, y = one.values["x"], one.values["y"]
            value = (x + 0.5) ** 2 + y * y if x < 0.0 else (math.inf if y > 0.0 else math.nan)
            told.append((one, Result(one.number, (value,), 10)))
    late = sum(one.values["x"] >= 0.0 for one, _ in told[24:])
    # of 24; half of NSGA-II's fields are mutated
    assert late >= 8 if algorithm == "random" else late <= (9 if algorithm == "nsga_ii" else 6), late


@pytest.mark.parametrize("algorithm", SEVERAL)
def test_several_objectives_with_infinite_ones(algorithm: str) -> None:
    """Loss down, radius up; a radius is infinite where nothing breaks, which is good, and a diverged loss is bad."""
    space = {"x": Domain("uniform", 0.0, 1.0), "y": Domain("uniform", 0.0, 1.0)}
    search = SearchConfig(algorithm=algorithm, startup=5, batch=5, objective=("validation_loss", "radius"))
    late = []
    for seed in (0, 1):  # one search of few suggestions may explore by chance, on one processor and not on another
        told: list[tuple[Suggestion, Result]] = []
        for number in range(rounds := 6 if algorithm == "gp" else 12):
            for one in ask(search, space, {}, ["min", "max"], told, [], 5, number + 100 * seed):
                x, y = one.values["x"], one.values["y"]
                values = (math.nan if x > 0.9 else x + y, math.inf if x > 0.8 else x - y)
                told.append((one, Result(one.number, values, 10, stopped=one.number == 7)))
        assert len(told) == 5 * rounds
        late += [one.values["y"] for one, _ in told[len(told) // 2 :]]
    if algorithm != "random":
        assert np.mean(late) < 0.4  # y is bad for both objectives; chance would give a half


def test_what_was_told_is_used() -> None:
    """With the same chance, twenty results move tpe's and cma_es's suggestions to where losses are small."""
    space = {"x": Domain("log_uniform", 1e-4, 1.0)}
    known = [(Suggestion(n, {"x": 10 ** (-4 + n / 5)}, {}), (n - 10.0) ** 2) for n in range(20)]
    told = [(one, Result(one.number, (value,), 5)) for one, value in known]
    search = SearchConfig(algorithm="tpe", startup=5)
    new = [math.log10(ask(search, space, {}, ["min"], told, [], 1, seed)[0].values["x"]) for seed in range(12)]
    turned = [(one, Result(one.number, (-value,), 5)) for one, value in known]
    far = [math.log10(ask(search, space, {}, ["min"], turned, [], 1, seed)[0].values["x"]) for seed in range(12)]
    up = [math.log10(ask(search, space, {}, ["max"], turned, [], 1, seed)[0].values["x"]) for seed in range(12)]
    assert np.mean(np.abs(np.array(new) + 2.0)) < 0.5 < 1.0 < np.mean(np.abs(np.array(far) + 2.0))
    assert up == new, "max of the negative is min"


@st.composite
def some_space(draw: st.DrawFn) -> dict[str, Domain]:
    """Up to five fields, some of which depend on the one before."""
    space: dict[str, Domain] = {}
    for index in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["uniform", "log_uniform", "int", "log_int", "choice"]))
        when = {}
        before = f"f{index - 1}"
        if before in space and space[before].kind == "choice" and draw(st.booleans()):
            when = {before: space[before].values[:1]}
        if kind == "choice":
            values = draw(st.permutations(["a", None, True, 2, 2.5, [1, 2], {"k": 1}]))
            space[f"f{index}"] = Domain("choice", values=tuple(values[: draw(st.integers(1, 4))]), when=when)
        else:
            low = draw(st.integers(1, 20))
            high = low + draw(st.integers(0, 30))
            space[f"f{index}"] = Domain(kind, low, high, when=when)
    return space


@settings(max_examples=25, deadline=None)
@given(space=some_space(), seed=st.integers(0, 2**40), algorithm=st.sampled_from(["random", "tpe"]))
def test_suggestions_lie_in_their_domains(space: dict[str, Domain], seed: int, algorithm: str) -> None:
    search = SearchConfig(algorithm=algorithm, startup=2)
    told: list[tuple[Suggestion, Result]] = []
    for turn in range(2):
        new = ask(search, space, {}, ["min"], told, [], 3, seed + turn)
        told += [(one, Result(one.number, (float(one.number),), 5)) for one in new]
    for one, _ in told:
        assert json.loads(json.dumps(one.values)) == one.values
        for path, domain in space.items():
            assert (path in one.values) == domain.applies(one.values)
            if path in one.values:
                assert domain.contains(one.values[path])
                assert not isinstance(one.values[path], np.generic)
    texts = [spaces.suggestion_key(one.values) for one, _ in told]
    assert len(set(texts)) == len(texts)
    random = np.random.default_rng(seed)
    for domain in space.values():
        assert all(domain.contains(spaces.draw(domain, random)) for _ in range(20))


def test_fields_depend_on_the_cell_too() -> None:
    space = {
        "b": Domain("uniform", 0, 1, when={"model.name": ("lru", "ssm")}),
        "a": Domain("uniform", 0, 1, when={"b": (0.5,)}),
    }
    assert set(spaces.distributions(space, {"model.name": "ssm"})) == {"a", "b"}
    assert spaces.distributions(space, {"model.name": "rnn"}) == {}


@pytest.mark.drill
def test_evidence_decides_whether_a_process_sees_logarithms() -> None:
    """Losses over decades are heard as logarithms, a smooth function that nearly touches zero as it is."""
    from memsweep.search.suggest.gaussian import logarithmic

    space = {
        "rate": Domain("log_uniform", 1e-5, 1.0),
        "x": Domain("uniform", 0.0, 1.0),
        "c": Domain("choice", values=(1, 2)),
    }
    drawn = [one.values for one in ask(SearchConfig(algorithm="random"), space, {}, ["min"], [], [], 30, 4)]
    rates = [math.log10(one["rate"]) for one in drawn]
    assert logarithmic(space, drawn, [10 ** (1.2 * abs(rate + 2.3) - 4) for rate in rates])
    assert not logarithmic(
        space, drawn, [(rate + 2.3) ** 2 + 0.01 + one["x"] for rate, one in zip(rates, drawn, strict=True)]
    )
    assert not logarithmic(space, drawn, [rate + 2.3 for rate in rates]), "there are no logarithms"
    assert not logarithmic(space, drawn, [1.0] * 30)
    assert logarithmic(space, drawn, [10.0 ** (300 * one["x"]) for one in drawn])
