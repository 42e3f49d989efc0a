"""The cost model counts the work that a search for the worst push does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from engine import trial, usual_model
from memsweep.config.load.study import load_study
from memsweep.config.schema.trial import RadiiConfig
from memsweep.learning.loss.exact import ExactLoss
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.studies.decide.smallest import smallest
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.plan import identified, programs
from memsweep.trial import RunOptions, run_trial
from paths import ROOT


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_the_evaluations_of_a_search_are_counted(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As share of the test sequences, with gradients as three; the measurement of memory has no live row.

    The distance of two sums of modes counts as two evaluations, because it has twice the modes.
    """
    loss_class, counted = ExactLoss if activation == "linear" else SampledLoss, [0.0]
    config = trial(
        model={"activation": activation, "width": 2},
        training={"steps": 2, "seeds": 5, "first_seed": 1},
        perturbation={"radii": RadiiConfig(from_=1e-3, to=1.0, count=11), "test_size": 1024, "starts": 2},
    )

    def counting(original: Any, times: float) -> Any:
        def call(
            self: Any, model: Any, weights: Any, other: Any, data: Any, live: Any = None, **own: Any
        ) -> torch.Tensor:
            encoder, drawn = weights["encoder_weight"], data if times > 0 else other
            if encoder.ndim == 4 and live is not None and live.any():  # replicas, copies, width, inputs
                share = drawn.inputs.shape[0] / 1024 if activation == "tanh" else 1.0
                gradient = torch.is_grad_enabled() and encoder.requires_grad
                counted[0] += encoder.shape[0] * encoder.shape[1] * share * abs(times) * (3 if gradient else 1)
            found: torch.Tensor = original(self, model, weights, other, data, live, **own)
            return found

        return call

    monkeypatch.setattr(loss_class, "loss", counting(loss_class.loss, -1.0))
    monkeypatch.setattr(loss_class, "distance", counting(loss_class.distance, 2.0 if activation == "linear" else 1.0))
    run_trial(config, RunOptions(padded=False))
    assert counted[0] / 5 == pytest.approx(cost.evaluations(config), rel=0.02)


def test_a_stronger_search_costs_where_a_seed_has_one() -> None:
    config = trial(training={"steps": 2, "seeds": 8, "first_seed": 5}, perturbation={"stronger_every": 13})
    unchecked = replace(config, perturbation=replace(config.perturbation, stronger_every=0))
    assert cost.evaluations(config) == cost.evaluations(unchecked)
    first = replace(config, training=replace(config.training, first_seed=0))
    assert cost.evaluations(first) > cost.evaluations(unchecked)


@pytest.mark.parametrize(("steps", "least", "most"), [(2500, 0.6, 0.95), (300, 0.1, 0.6)])
def test_training_takes_its_measured_share_of_quickstart(steps: int, least: float, most: float) -> None:
    """At width 2: 82 % of 2,500 steps by the phases of a run, and about half of 300."""
    study = load_study("quickstart", ["model.width=2", f"training.steps={steps}"], ROOT)
    groups = programs(identified(study))
    trained = sum(cost.training_share(own) * cost.seconds(own) for own in ([t.config for t in g] for g in groups))
    whole = sum(cost.seconds([trial.config for trial in group]) for group in groups)
    assert least < trained / whole < most


@pytest.mark.parametrize(("width", "seconds"), [(8, 0.27)])
def test_a_state_space_layer_takes_what_was_measured_within_three(width: int, seconds: float) -> None:
    """Processor seconds of one loss over 12,800 sequences of 100 steps in float64, in the mean of 630."""
    config = trial(task={"horizon": 100}, perturbation={"method": "random", "test_size": 12_800})
    config = replace(config, model=usual_model("stable_ssm", width=width))
    measured = cost.seconds([config]) * (1.0 - cost.training_share([config]))
    assert 1 / 3 < seconds / (measured / cost.evaluations(config)) < 3.0


CLOSED_FORMS = [  # width, horizon, seeds; processor seconds of training, and of the measurement
    ("diagonal_rnn", 8, 128, 5, 1.26, 0.99),
    ("diagonal_rnn", 8, 128, 58, 1.99, 2.44),
    ("diagonal_rnn", 2, 16, 58, 1.31, 2.46),
    ("diagonal_rnn", 64, 128, 20, 2.37, 6.62),
    ("lru", 8, 128, 58, 3.11, 5.33),
    ("lru", 64, 128, 20, 4.63, 19.05),
    ("lru skip", 8, 128, 5, 4.42, 10.24),
    ("lru skip", 64, 128, 20, 16.72, 85.46),
    ("dense_rnn", 8, 128, 5, 9.94, 16.54),
    ("dense_rnn", 8, 128, 58, 10.85, 36.08),
    ("vanilla_rnn", 8, 128, 5, 4.28, 3.49),
    ("vanilla_rnn", 8, 128, 58, 5.33, 20.51),
    ("vanilla_rnn", 32, 128, 20, 11.43, 78.71),
    ("stable_ssm", 8, 128, 5, 4.47, 3.64),
    ("stable_ssm", 8, 128, 58, 8.45, 31.81),
    ("stable_ssm", 2, 16, 58, 5.33, 4.67),
]


@pytest.mark.parametrize(("name", "width", "horizon", "seeds", "trained", "measured"), CLOSED_FORMS)
def test_a_closed_form_takes_what_was_measured_within_four(
    name: str, width: int, horizon: int, seeds: int, trained: float, measured: float
) -> None:
    """Linear models of curse_of_memory on exponential memory: a search grows with the seeds, a training hardly.

    A skip connection is no mode: its model costs what the response does.
    """
    rows = (row for row in load_study("curse_of_memory", (), ROOT).rows if row.model.name == name.split()[0])
    first: Any = next(row for row in rows if row.has_closed_form and not getattr(row.model, "skip", False))
    skip = {"skip": True} if "skip" in name else {}
    task, model = replace(first.task, horizon=horizon), replace(first.model, width=width, **skip)
    config = replace(first, task=task, model=model, training=replace(first.training, seeds=seeds))
    whole = cost.seconds([config])
    assert 0.25 < (trained + measured) / whole < 4.0
    assert 0.25 < measured / ((1.0 - cost.training_share([config])) * whole) < 4.0


PACKS = [(50, 9.6, 7.5), (100, 15.3, 7.1), (400, 37.0, 12.9)]
"""Horizon; processor seconds of training, and of the measurement, of 30 trials of 5 seeds in one pack."""


@pytest.mark.parametrize(("horizon", "trained", "measured"), PACKS)
def test_a_pack_of_quickstart_takes_what_was_measured_within_two(horizon: int, trained: float, measured: float) -> None:
    """Three ensembles of 64 rows: each has its own calls and optimizer, and they share the batch's statistics."""
    trials = identified(load_study("quickstart", [f"task.horizon={horizon}"], ROOT))
    configs = [each.config for each in trials]
    assert len(configs) == len(next(iter(programs(trials)))) == 30
    whole, share = cost.seconds(configs), cost.training_share(configs)
    assert 0.5 < trained / (share * whole) < 2.0
    assert 0.5 < measured / ((1.0 - share) * whole) < 2.0


LONG = [(2, 1, 10.6), (2, 60, 120.1), (8, 1, 8.2), (8, 8, 25.0), (8, 60, 105.7), (32, 8, 8.7), (64, 60, 14.1)]
"""Width, seeds; processor milliseconds of a training step at horizon 512, on AVX2."""


@pytest.mark.parametrize(("width", "seeds", "milliseconds"), LONG)
def test_a_training_at_a_long_horizon_takes_what_was_measured_within_four(
    width: int, seeds: int, milliseconds: float
) -> None:
    """Few modes run over the sequences, which costs each seed; many share the batch's statistics."""
    config = load_study("quickstart", ["task.horizon=512", f"model.width={width}"], ROOT).rows[0]
    config = replace(config, training=replace(config.training, seeds=seeds))
    seconds = cost.training_share([config]) * cost.seconds([config])
    assert 0.25 < milliseconds / 1e3 * config.training.end / seconds < 4.0


MEASURED = [  # horizon, width, seeds; processor seconds of 60 steps, and of what follows with little effort
    ("minGRU", 3, 12, 2, 0.28, 1.89),
    ("minGRU", 12, 12, 2, 0.42, 4.13),
    ("minGRU", 24, 4, 2, 0.47, 5.36),
    ("minGRU", 24, 12, 2, 0.57, 6.68),
    ("nn.GRU", 12, 12, 2, 0.46, 6.40),
    ("nn.GRU", 24, 12, 2, 0.76, 11.63),
    ("a selective state-space layer", 12, 12, 2, 0.64, 9.76),
    ("transformer, 2 layers", 12, 12, 1, 0.57, 8.44),
]


def of_module(horizon: int, width: int, seeds: int) -> Any:
    factory = str(ROOT / "tests/support/nets/min_gru.py:MinGRU")
    asked = smallest(factory, "exponential", [f"task.horizon={horizon}", f"model.width={width}"], ROOT).rows[0]
    return replace(asked, training=replace(asked.training, seeds=seeds, steps=60))


@pytest.mark.parametrize(("name", "horizon", "width", "seeds", "trained", "measured"), MEASURED)
def test_a_module_of_a_user_takes_what_was_measured_within_four(
    name: str, horizon: int, width: int, seeds: int, trained: float, measured: float
) -> None:
    config = of_module(horizon, width, seeds)
    whole, share = cost.seconds([config]), cost.training_share([config])
    for found, forecast in ((trained, share * whole), (measured, (1.0 - share) * whole)):
        assert 0.25 < found / forecast < 4.0, name


def test_the_seeds_of_a_module_are_computed_one_after_the_other() -> None:
    one, five = (cost.seconds([of_module(12, 12, seeds)]) for seeds in (1, 5))
    assert five == pytest.approx(5 * one, rel=0.05)
