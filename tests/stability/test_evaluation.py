"""Test data belong to the seed."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import torch

from engine import trial
from memsweep import registry
from memsweep.config.schema.trial import RadiiConfig
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


@pytest.mark.more
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


@pytest.mark.parametrize("activation", [pytest.param("linear", marks=pytest.mark.more), "tanh"])
def test_a_stronger_search_measures_three_of_five_seeds_whoever_is_beside_it(activation: str) -> None:
    search = {"balls": ("recurrent", "all"), "test_size": 8, "starts": 0, "ascent_steps": 0}
    radii = RadiiConfig(from_=0.01, to=3.0, count=6)
    config = trial(
        model={"activation": activation, "width": 3, "normalize": True},
        training={"steps": 400, "seeds": 5, "first_seed": 4},
        perturbation=search | {"radii": radii},
    )
    curves = run_trial(config).tables["curves"]
    measured = curves.dropna(subset="stronger")
    assert set(measured["seed"]) == {5, 6, 7}
    assert (measured["stronger"] >= measured["change"]).all()
    assert (measured["stronger"] > 1.01 * measured["change"]).any()  # pushes without an ascent are poor
    # at the radii of 1 % of the zero predictor's loss, and of 10 %
    assert (measured.groupby(["seed", "ball"])["threshold"].unique().map(list) == [[0.01, 0.1]] * 6).all()
    assert measured["change"].to_numpy() == pytest.approx((measured["threshold"] * measured["zero_loss"]).to_numpy())
    alone = run_trial(replace(config, training=replace(config.training, first_seed=5, seeds=1))).tables["curves"]
    pd.testing.assert_frame_equal(
        alone.reset_index(drop=True), curves[curves["seed"] == 5].reset_index(drop=True), check_exact=True
    )
