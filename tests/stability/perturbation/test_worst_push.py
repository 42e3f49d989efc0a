"""The worst push that a search returns: it has the error that was found, lies in the ball, and is the one known."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from engine import model_config, stacked, task_config, trial
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig
from memsweep.models.base import as_linear
from memsweep.stability.evaluation import worst_weights
from memsweep.stability.perturbation.error import perturbation_error, radius_grid
from memsweep.streams import TEST, Stream
from memsweep.trial import train_replicas

GRID = RadiiConfig(from_=1e-3, to=0.5, count=6)
STREAM = Stream(0, TEST)


@pytest.mark.parametrize("reading", ["drift", "excess", "error"])
@pytest.mark.parametrize("method", ["worst_case", "random"])
@pytest.mark.parametrize("ball", ["recurrent", "all"])
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_the_returned_push_changes_as_much_as_is_returned_and_lies_in_the_ball(
    activation: str, ball: str, method: str, reading: str
) -> None:
    config = trial(model={"activation": activation, "width": 3}, training={"steps": 20})
    trained = train_replicas([config])
    ((_, _, pack),) = trained.ensembles
    ensemble, task_loss, weights = pack.ensemble, trained.loss, pack.weights
    data = task_loss.population() if activation == "linear" else task_loss.prepare(task_loss.draw(STREAM, 0, 40))
    targets = ensemble.spread([task_loss.target(0)] * len(ensemble.replicas))
    effort = {"starts": 1, "ascent_steps": 4, "repeats": 4}
    settings = PerturbationConfig(radii=GRID, norm="entrywise", method=method, reading=reading, **effort)
    worst = perturbation_error(ensemble, task_loss, data, weights, targets, ball, settings)
    linear, real = as_linear(ensemble.model), len(ensemble.replicas)
    for index, radius in enumerate([0.0, *radius_grid(GRID).tolist()]):
        own = worst.weights[:, index]
        named = ensemble.layout.named(own.unsqueeze(1))
        if reading == "drift":
            unmoved = ensemble.layout.named(worst.weights[:, :1])
            changes = task_loss.distance(ensemble.model, named, unmoved, data)[:, 0]
        else:
            changes = task_loss.loss(ensemble.model, named, data, targets.unsqueeze(1))[:, 0]
            changes = changes - worst.errors[:, 0] if reading == "excess" else changes
        torch.testing.assert_close(changes[:real], worst.changes[:real, index], rtol=1e-9, atol=1e-14)
        start = weights
        if ball == "all" and linear is not None:
            start = ensemble.layout.flat(linear.balanced(ensemble.layout.named(weights)))
        assert float((own - start)[:real].abs().max()) <= radius * (1.0 + 1e-12)
    assert (worst.changes[:real, -1] > worst.changes[:real, 0]).any()


def test_where_the_response_exceeds_a_positive_target_everywhere_the_worst_push_is_the_corner_that_raises_it() -> None:
    """Each entry of the response c a^k u grows with c, with u, and with a slower decay: the corner is known."""
    task = task_config(horizon=20, kernel="exponential", rate=3.0)
    (ensemble,), task_loss = stacked([model_config("direct", width=2)], task=task, rows=lambda _: 1)
    start = {"recurrent_weight": 0.4, "encoder_weight": 1.0, "readout_weight": 1.0}
    named = ensemble.layout.named(ensemble.initial)
    own = ensemble.layout.named(ensemble.exists)
    weights = ensemble.layout.flat(
        {name: torch.where(own[name], start.get(name, 0.0), value) for name, value in named.items()}
    )
    radius = 0.1
    config = trial(perturbation={"radii": RadiiConfig(from_=radius / 4.0, to=radius, count=2), "starts": 4})
    how = dataclasses.replace(config.perturbation, norm="entrywise", balance=False, ascent_steps=16)
    config = dataclasses.replace(config, perturbation=how)
    targets = ensemble.spread([task_loss.target(0)])
    found = worst_weights(ensemble, task_loss, weights, targets, "all", config) - weights
    moved = ensemble.layout.named(found)
    signs = {"recurrent_weight": -1.0, "encoder_weight": 1.0, "readout_weight": 1.0}
    for name, sign in signs.items():
        torch.testing.assert_close(moved[name][own[name]], torch.full_like(moved[name][own[name]], sign * radius))
