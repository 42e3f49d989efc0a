"""Test data belong to the seed."""

from __future__ import annotations

from dataclasses import replace

import torch

from engine import trial
from memsweep import registry
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.stability.results import TrialResult
from memsweep.streams import TEST, Stream
from memsweep.trial import run_pack, run_trial
from paths import ROOT

registry.discover(ROOT)
SAMPLED = {"balls": ("recurrent",), "error": "sampled", "test_size": 4, "starts": 0, "ascent_steps": 2}


def errors(result: TrialResult, seed: int) -> list[float]:
    """The curve of one seed, radius 0 first."""
    curves = result.tables["curves"]
    return curves[curves["seed"] == seed]["error"].tolist()


def test_every_seed_has_test_sequences_of_its_own_whoever_is_beside_it() -> None:
    config = trial(model={"activation": "tanh"}, training={"steps": 3, "seeds": 3}, perturbation=SAMPLED)
    together = run_trial(config)
    alone = run_trial(replace(config, training=replace(config.training, first_seed=1, seeds=1)))
    assert errors(together, 1) == errors(alone, 1)
    wider = replace(config, model=replace(config.model, width=config.model.width + 1))
    assert errors(run_pack([wider, config])[1], 1) == errors(alone, 1)


def test_the_error_of_a_seed_is_that_of_its_sequences() -> None:
    config = trial(model={"activation": "tanh"}, training={"steps": 3, "seeds": 2}, perturbation=SAMPLED)
    task = registry.get(registry.TASK, config.task.name)(config.task)
    loss = SampledLoss(task, torch.float64)
    first, second = (loss.data(Stream(config.training.data_seed, TEST), seed, 4) for seed in (0, 1))
    assert not torch.equal(first.inputs, second.inputs)
    found = run_trial(config).tables["replicas"].set_index("seed")["error"]
    assert found[0] != found[1]
