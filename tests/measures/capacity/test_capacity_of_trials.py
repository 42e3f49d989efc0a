"""Capacity as a measurement of trials: what a trial stores, what a report says of it, and whose identity it moves."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from engine import model_config, stacked, trial
from memsweep import registry, report
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.state.trained import TrainedEnsemble
from memsweep.measures.capacity import Capacity
from memsweep.measures.capacity.maps import capacity_of, lowest
from memsweep.measures.capacity.moved import pushed_weights, rounded_weights, worst_push
from memsweep.measures.capacity.sizes import sizes_of
from memsweep.models.base import Signature
from memsweep.report.rows.report import tables_of
from memsweep.report.tracked import verdicts_of
from memsweep.report.values.table import TERMINAL
from memsweep.stability.block import steps_of
from memsweep.streams import TEST, Stream
from memsweep.sweep.planning.identity import identifying, identity, training_of
from memsweep.trial import run_pack, train_replicas
from report_study import Condition, exported, write_study

CAPACITY = Capacity.Config(sequences=3)
SLOPE = 0.5
WIDTHS = [4, 8, 16, 32]


def measured(config: TrialConfig) -> TrialConfig:
    perturbation = dataclasses.replace(config.perturbation, balls=(), asked_measures=(CAPACITY,))
    return dataclasses.replace(config, perturbation=perturbation)


def test_a_trial_stores_the_singular_values_of_its_trained_weights() -> None:
    config = measured(trial(model={"width": 3}))
    result = run_pack([config])[0]
    values = result.tables["singular_values"]
    model = registry.get(registry.MODEL, "diagonal_rnn")(config.model, Signature(1, 1, 20), np.random.default_rng(0))
    lags = torch.arange(400)
    for seed, weights in result.weights.items():
        kernel = model.response({name: value.unsqueeze(0) for name, value in weights.items()}, 800).kernel[0, 0, 0]
        expected = torch.linalg.svdvals(kernel[1 + lags.unsqueeze(1) + lags].detach())[:3].numpy()
        own = values[(values["seed"] == seed) & (values["map"] == "hankel")]["value"].to_numpy()
        assert len(own) >= 2
        np.testing.assert_allclose(own, expected[: len(own)], rtol=1e-5, atol=1e-8)
    assert set(values["map"]) == {"block", "hankel", "truncation"}
    assert set(values["width"]) == {3}


def test_a_replica_has_the_same_capacity_alone_and_in_a_pack() -> None:
    configs = [measured(trial(model={"width": width, "activation": "tanh"})) for width in (3, 2)]
    together, alone = run_pack(configs)[1], run_pack(configs[1:])[0]
    pd.testing.assert_frame_equal(together.tables["singular_values"], alone.tables["singular_values"])
    assert together.tables["singular_values"].groupby("seed")["value"].max().eq(1.0).all()


def test_capacity_moves_the_identity_of_trials_that_measure_it_and_no_other() -> None:
    plain = trial()
    assert "capacity" not in identifying(plain)["perturbation"]
    other = dataclasses.replace(plain, perturbation=dataclasses.replace(plain.perturbation, asked_measures=(CAPACITY,)))
    assert identity(other) != identity(plain)
    assert training_of(identity(other)) == training_of(identity(plain))


def moved(**model: object) -> TrialConfig:
    config = measured(trial(model=model))
    capacity = dataclasses.replace(CAPACITY, bits=(3, 12), radii=(1e-6, 0.3))
    return dataclasses.replace(
        config, perturbation=dataclasses.replace(config.perturbation, asked_measures=(capacity,))
    )


def test_the_block_again_is_that_of_the_moved_weights() -> None:
    config = moved(width=3)
    result = run_pack([config])[0]
    model = registry.get(registry.MODEL, "diagonal_rnn")(config.model, Signature(1, 1, 20), np.random.default_rng(0))
    before, after = steps_of(20)
    found = result.tables["singular_values"].set_index(["map", "seed"])["value"]

    def block(weights: dict[str, torch.Tensor]) -> np.ndarray:
        kernel = model.response({name: value.unsqueeze(0) for name, value in weights.items()}, 20).kernel[0, 0, 0]
        return torch.linalg.svdvals(kernel[after.unsqueeze(1) - before].detach())[:3].numpy()

    for seed, weights in result.weights.items():
        for bits in (3, 12):
            steps = {name: value.abs().max() / (2 ** (bits - 1) - 1) for name, value in weights.items()}
            rounded = {name: torch.round(value / steps[name]) * steps[name] for name, value in weights.items()}
            own = found.loc[(f"block_{bits}_bits", seed)].to_numpy()
            np.testing.assert_allclose(own, block(rounded)[: len(own)], rtol=1e-6, atol=1e-9)
        plain = found.loc[("block", seed)].to_numpy()
        np.testing.assert_allclose(found.loc[("block_radius_1e-06", seed)].to_numpy()[0], plain[0], rtol=1e-4)
        assert found.loc[("block_radius_0.3", seed)].to_numpy()[0] != pytest.approx(plain[0], rel=1e-3)


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_robust_capacity_exceeds_neither_that_of_a_point_of_the_ball_nor_the_number_of_states(activation: str) -> None:
    config = moved(width=3, activation=activation)
    values = run_pack([config])[0].tables["singular_values"].assign(identity="")
    for tolerance in (0.1, 0.01, 1e-4, 1e-8):
        sizes = {name: sizes_of(part, tolerance).set_index("seed")["size"] for name, part in values.groupby("map")}
        for radius in ("1e-06", "0.3"):
            robust = sizes[f"block_robust_{radius}"]
            assert (robust <= sizes["block"]).all()
            assert (robust <= sizes[f"block_radius_{radius}"]).all()
            assert ((robust >= 1) & (robust <= 3)).all()


def test_robust_capacity_counts_the_worst_push_that_the_search_finds() -> None:
    config, radius = moved(width=3), 0.3
    trained = train_replicas([config])
    ((_, _, pack),) = trained.ensembles
    worst = worst_push(pack, trained.loss, radius, config)
    values = run_pack([config])[0].tables["singular_values"].set_index(["map", "seed"])["value"]
    for row, replica in pack.replicas.items():
        weights = pack.ensemble.layout.named(worst[row : row + 1])
        pushed = capacity_of(pack.ensemble.model, weights, torch.empty(0))["block"].numpy()
        points = [values.loc[(name, replica.seed)].to_numpy() for name in ("block", f"block_radius_{radius}")]
        expected = np.min([each[:2] / each[0] for each in (pushed, *points)], axis=0)
        np.testing.assert_allclose(values.loc[(f"block_robust_{radius}", replica.seed)].to_numpy()[:2], expected)


def test_the_tasks_metric_is_measured_again_with_rounded_and_with_pushed_weights() -> None:
    task = registry.get(registry.TASK, "memory_capacity").Config(horizon=24, delays=6)
    config, capacity = trial(model={"width": 3}), dataclasses.replace(CAPACITY, bits=(3, 20), radii=(1e-7, 0.3))
    perturbation = dataclasses.replace(config.perturbation, balls=(), asked_measures=(capacity,), test_size=64)
    config = dataclasses.replace(config, task=task, perturbation=perturbation)
    result, trained = run_pack([config])[0], train_replicas([config])
    plain = result.tables["replicas"].set_index("seed")["test_metric"]
    again = result.tables["metrics"].set_index(["metric", "seed"])["value"]
    ((_, _, pack),) = trained.ensembles
    for row, replica in pack.replicas.items():
        data = trained.loss.data(Stream(config.training.data_seed, TEST), replica.seed, 64)
        moved = {"3_bits": rounded_weights(pack, 3), "radius_0.3": worst_push(pack, trained.loss, 0.3, config)}
        for how, weights in moved.items():
            named = pack.ensemble.layout.named(weights[row : row + 1])
            metric = float(trained.loss.metrics(pack.ensemble.model, named, data)["capacity"][0])
            assert again[(f"capacity_{how}", replica.seed)] == pytest.approx(metric, rel=1e-6)
            assert metric != pytest.approx(plain[replica.seed], rel=1e-3)
        assert again[("capacity_20_bits", replica.seed)] == pytest.approx(plain[replica.seed], rel=1e-3)
        assert again[("capacity_radius_1e-07", replica.seed)] == pytest.approx(plain[replica.seed], rel=1e-3)


def test_the_least_shares_give_the_least_size_at_any_share() -> None:
    blocks = [torch.tensor([4.0, 2.0, 0.1]), torch.tensor([9.0, 0.9, 0.8]), torch.tensor([math.inf, 1.0, 1.0])]
    found = lowest(*blocks)
    for share in (0.3, 0.15, 0.05, 0.01):
        assert int((found > share).sum()) == min(int((each > share * each[0]).sum()) for each in blocks[:2])


def test_pushes_have_the_radius_in_every_weight_and_leave_padding() -> None:
    (ensemble,), _ = stacked([model_config(width=width) for width in (4, 2)])
    pack = TrainedEnsemble(ensemble, ensemble.initial, None, {})
    shifts = [pushed_weights(pack, radius, 5) - ensemble.initial for radius in (0.25, 0.5)]
    assert torch.equal(2.0 * shifts[0].round(decimals=9), shifts[1].round(decimals=9))
    assert set(shifts[1][ensemble.exists].abs().round(decimals=9).tolist()) == {0.5}
    assert not shifts[1][~ensemble.exists].any()
    assert not torch.equal(shifts[1][0, :4], shifts[1][1, :4]) or not torch.equal(shifts[1][0], shifts[1][1])


def test_rounded_and_moved_blocks_do_not_depend_on_company_and_move_their_own_identity_alone() -> None:
    configs = [moved(width=width, activation="tanh") for width in (3, 2)]
    together, alone = run_pack(configs)[1], run_pack(configs[1:])[0]
    pd.testing.assert_frame_equal(together.tables["singular_values"], alone.tables["singular_values"])
    plain, with_bits = measured(trial()), moved()
    assert "bits" not in identifying(plain)["perturbation"]["capacity"]
    assert identity(with_bits) != identity(plain)
    assert training_of(identity(with_bits)) == training_of(identity(plain))


def test_a_model_that_reads_ids_is_refused() -> None:
    unit = registry.get(registry.MODEL, "module").Config
    config = dataclasses.replace(measured(trial()), model=unit(factory="torch.nn:GRU", tokens=True))
    assert any("perturbation.capacity is set, but the model reads ids" in problem for problem in config.problems())
    assert not any("capacity" in problem for problem in measured(trial()).problems())


def test_sizes_count_what_exceeds_a_share_of_the_largest() -> None:
    values = pd.DataFrame(
        [
            {"identity": "a", "seed": seed, "width": 4, "value": value}
            for seed, own in enumerate([[5.0, 0.06, 0.04], [0.0], [math.nan]])
            for value in own
        ]
    )
    sizes = sizes_of(values, 0.01).set_index("seed")["size"]
    assert (sizes[0], sizes[1]) == (2, 0)
    assert math.isnan(sizes[2])


def test_a_report_has_the_sizes_and_their_slope_with_the_width(tmp_path: Path) -> None:
    def add(index: int, tables: dict[str, pd.DataFrame]) -> None:
        replicas = tables["replicas"][["identity", "horizon", "width", "seed"]]
        rows = []
        for row in replicas.to_dict("records"):
            size = round(2 * row["width"] ** SLOPE)
            rows += [row | {"map": "block", "index": at + 1, "value": 1.0 if at < size else 1e-6} for at in range(33)]
        tables["singular_values"] = pd.DataFrame(rows)

    condition = Condition(kernel="exponential", parameterization="exp", base=0.5)
    write_study(tmp_path, (condition,), widths=WIDTHS, horizons=[50], memory=False, complete=add)
    paths = report.build(tmp_path)
    table = exported(paths, "capacity")
    assert set(table["tolerance"]) == {0.01, 1e-4}
    for row in table.to_dict("records"):
        assert row["size"] == round(2 * row["width"] ** SLOPE)
        assert row["slope"] == pytest.approx(SLOPE, abs=0.05)
    text = paths.text(width=200)
    assert "Effective state size" in text
    assert 'id="capacity"' in paths.page.read_text()
    named = verdicts_of(paths.contents)
    assert {v.metrics["capacity_block_0.01/size"] for v in named.values()} == set(map(float, set(table["size"])))


def test_models_of_one_width_each_have_one_column_of_sizes(tmp_path: Path) -> None:
    def add(index: int, tables: dict[str, pd.DataFrame]) -> None:
        replicas = tables["replicas"][["identity", "horizon", "width", "seed"]]
        rows = [row | {"map": "block", "index": 1, "value": 1.0} for row in replicas.to_dict("records")]
        tables["singular_values"] = pd.DataFrame(rows)

    conditions = (Condition(parameterization="exp"), Condition(parameterization="direct"))
    write_study(tmp_path, conditions, widths=[4], horizons=[50], memory=False, complete=add)
    sections = tables_of(report.build(tmp_path).contents).sections
    section = next(one for one in sections if one.anchor == "capacity")
    assert section.table is not None
    shown = section.table.view(TERMINAL)
    assert [column.name for column in shown.columns] == ["under", "size"]
    assert shown.throughout == {"memory": "polynomial", "horizon": "50", "width": "4"}
