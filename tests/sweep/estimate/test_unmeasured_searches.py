"""The price of a search that a plan did not measure: by a validation and a step of its training."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from engine import trial
from memsweep.config.load.study import load_study
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run
from memsweep.sweep.estimate.benchmark import Measured, measure_training
from memsweep.sweep.estimate.estimate import Wave, estimate
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.identity import ON_CPU
from memsweep.trial import RunOptions
from paths import ROOT
from runner_work import planned

OWN_UNIT = {
    "name": "module",
    "factory": "torch.nn:GRU",
    "features_argument": "input_size",
    "width_argument": "hidden_size",
}


@pytest.mark.parametrize(
    ("model", "moved", "copies"),
    [
        ({"name": "residual_stack", "unit": {"name": "gru"}}, {"starts": 2}, 3),
        ({"name": "residual_stack", "unit": {"name": "gru"}}, {"method": "random", "repeats": 7}, 7),
        ({"name": "residual_stack", "unit": OWN_UNIT}, {"starts": 2}, 1),
        ({"name": "module", "factory": "torch.nn:GRU", "wrap": True}, {"starts": 2}, 1),
        ({"name": "module", "factory": "torch.nn:GRU", "wrap": True, "replicas": "vmap"}, {"starts": 2}, 3),
    ],
    ids=["stack", "draws", "stack of one's own", "module", "vmap"],
)
def test_what_follows_a_training_is_priced_by_what_was_measured_of_it(
    model: dict[str, Any], moved: dict[str, Any], copies: int
) -> None:
    """Passes by their sequences, and the calls of each pass, which the copies of a search may share."""
    plain = trial(training={"steps": 100, "batch_size": 32}, perturbation=moved)
    config = trial_from_dict({**to_dict(plain), "model": model})
    measured = Measured(0.0, 0.3, None, 0.0, 0.0, 0, sequence=1e-4)
    calls = (0.3 / 3 - 32 * 1e-4) * cost.passes(config) / copies
    sequences = cost.evaluations(config) * config.perturbation.test_size * 1e-4
    assert measured.seconds([config]) == pytest.approx(100 * 0.3 + sequences + calls + cost.TABLES)
    assert cost.passes(config) >= cost.evaluations(config)
    unknown = dataclasses.replace(measured, sequence=0.0).seconds([config])  # as measured by an earlier version
    assert unknown == pytest.approx(30 + cost.seconds([config]) * (1.0 - cost.training_share([config])))


def test_a_validation_of_a_small_data_set_is_no_larger_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 images: 800 were asked for, and what 250 more than a batch took was divided by 750."""
    (config, *_) = load_study("permuted_digits_small", (), ROOT).rows
    asked = list[int]()

    def took(configs: Any, options: RunOptions) -> None:
        asked.append(configs[0].training.validation_size)
        with options.phase("training"):
            clock[0] += 1.0 + 2 * 0.01 * min(300, asked[-1])

    clock = [0.0]
    monkeypatch.setattr("memsweep.trial.train_replicas", took)
    measured = next(iter(measure_training([config], ON_CPU, 1, 1e9, lambda: clock[0])))
    assert max(asked) <= 300
    assert measured.sequence == pytest.approx(0.01)
    assert measured.validation == pytest.approx(0.01 * min(300, config.training.validation_size))


@pytest.mark.long
@pytest.mark.parametrize("unit", ["gru", "lru", "gla"])
def test_a_plan_of_a_stack_is_right_within_its_factor(unit: str, tmp_path: Path) -> None:
    """Of a stack whose search takes longer than a plan measures: by what it measured of its training."""
    model = {"name": "residual_stack", "width": 8, "features": 8, "unit": {"name": unit}}
    plain = trial(
        task={"horizon": 60},
        training={"seeds": 2, "steps": 300, "batch_size": 32},
        perturbation={"balls": ["recurrent"], "starts": 2, "ascent_steps": 8},
    )
    config = trial_from_dict({**to_dict(plain), "model": model})
    plan = planned([[config]])
    made = estimate([Wave(plan.packs)], ResourcesConfig(max_concurrent=1), ROOT)
    began = time.process_time()
    run(plan, workspace=ROOT, results=tmp_path, launch=Launch(inline=True))
    assert 1 / made.factor < (time.process_time() - began) / made.work < made.factor
