"""A warm start hears of an earlier study what belongs to a cell, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from search_study import loss, study

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import SweepConfig
from memsweep.search.suggest.sampler import ask
from memsweep.search.warm_start import EarlierStudy
from memsweep.sweep.planning.identity import Arithmetic, identity
from memsweep.sweep.store.record import SCHEMA
from memsweep.sweep.store.results import Store

RATE = "training.learning_rate"
NO_CURVES = pd.DataFrame({name: [] for name in ("seed", "ball", "radius", "error", "zero_loss")})


def earlier(folder: Path, sweep: SweepConfig, rows: list[Mapping[str, Any]]) -> Store:
    """A study's results: a row of each of the settings of training and model."""
    store = Store(folder)
    for row in rows:
        config = sweep.rows[0]
        model = dataclasses.replace(config.model, width=row.get("width", 2))
        training = dataclasses.replace(config.training, **{k: v for k, v in row.items() if k != "width"})
        config = dataclasses.replace(config, model=model, training=training)
        name = identity(config, Arithmetic.of(sweep.resources))
        record = {"schema": SCHEMA, "identity": name, "study": "early", "outcome": "done", "config": to_dict(config)}
        store.write(
            name, record | {"summary": {"validation_loss": loss(config)}, "provenance": {}}, {"curves": NO_CURVES}
        )
    return store


def test_each_cell_hears_its_own_rows(tmp_path: Path) -> None:
    sweep = study(tmp_path)
    rows = [
        {"learning_rate": 0.01},
        {"learning_rate": 0.02, "width": 4, "seeds": 7, "first_seed": 100, "data_seed": 3},
        {"learning_rate": 0.03, "steps": 1800},
        {"learning_rate": 0.04, "width": 8},  # of no cell
        {"learning_rate": 5.0},  # outside of the domain
        {"learning_rate": 0.05, "batch_size": 64},  # another training
        {"learning_rate": 0.06, "until": 300},
        {"learning_rate": 0.06, "until": 100},
    ]
    assert sweep.search is not None
    start = EarlierStudy(earlier(tmp_path / "early", sweep, rows), sweep.search)
    narrow, wide = start(sweep.rows[0]), start(sweep.rows[1])
    assert {one.values[RATE] for one, _ in narrow} == {0.01, 0.03, 0.06}
    assert [one.values for one, _ in wide] == [{RATE: 0.02}]
    assert [one.number for one, _ in narrow] == [-3, -2, -1]
    told = {one.values[RATE]: result for one, result in narrow}
    assert [one.number for one, _ in narrow] == [result.number for _, result in narrow]
    assert told[0.06].stopped
    assert told[0.06].steps == 300, "of rows with the same settings the longest counts"
    assert told[0.03].steps == 1800
    assert not told[0.03].stopped
    assert told[0.01].values == pytest.approx((1 / 900 + 0.01 * math.log10(2.0) ** 2,))
    assert start(sweep.rows[0]) == narrow
    assert start.summary() == "5 earlier trials start the search; 3 lie outside of its cells or domains"


def test_the_sampler_makes_use_of_them(tmp_path: Path) -> None:
    """With thirty earlier rows a tpe search begins near the best of them, and counts its own suggestions from 0."""
    sweep = study(tmp_path, "search.algorithm=tpe")
    assert sweep.search is not None
    rows = [{"learning_rate": 10 ** (-4 + 4 * place / 30)} for place in range(30)]
    start = EarlierStudy(earlier(tmp_path / "early", sweep, rows), sweep.search)(sweep.rows[0])
    search = sweep.search
    new = ask(search.settings, search.space, {}, ["min"], start, [], 8, 1)
    assert [one.number for one in new] == list(range(8))
    cold = ask(search.settings, search.space, {}, ["min"], [], [], 8, 1)

    def distance(found: list[Any]) -> float:
        return sum(abs(math.log10(one.values[RATE] / 0.005)) for one in found) / len(found)

    assert distance(new) < 0.6 < distance(cold)


def test_an_objective_that_was_not_measured_is_a_failure_to_the_sampler(tmp_path: Path) -> None:
    sweep = study(tmp_path, "search.objective=radius")
    assert sweep.search is not None
    start = EarlierStudy(earlier(tmp_path / "early", sweep, [{"learning_rate": 0.01}]), sweep.search)
    ((_, told),) = start(sweep.rows[0])
    assert told.values is None
