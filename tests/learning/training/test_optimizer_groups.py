"""Groups of weights with settings of their own, and a model's own penalty: whole trainings against torch's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import task_config, trial
from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.schema.training import GroupConfig, GroupsConfig, TrainingConfig, Turn
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loop import train
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.training.learner import Learner
from memsweep.models.base import Group, Model, Signature
from memsweep.streams import TRAIN, Stream

GROUPS = GroupsConfig(
    orthogonal=GroupConfig(learning_rate=0.001), triangle=GroupConfig(learning_rate=0.004, weight_decay=0.2)
)
TRAINING: dict[str, Any] = {
    "steps": 12,
    "batch_size": 8,
    "validation_size": 16,
    "validate_every": 4,
    "learning_rate": 0.02,
    "weight_decay": 0.03,
    "schedule": "constant",
    "amplitude_penalty": 0.0,
    "clip": 0.0,
    "groups": GROUPS,
}
FIELDS = {"rmsprop": {"alpha": 0.9}, "adam": {"beta1": 0.8}, "adamw": {"beta2": 0.99}}


def config_of(name: str = "nn_rnn", **fields: Any) -> Any:
    given = {"width": 4, "activation": "tanh"} | ({"delta": 0.3} if name == "nn_rnn" else {}) | fields
    return registry.get(registry.MODEL, name).Config(**given)


def started(model: Any, seeds: int = 2) -> tuple[Ensemble, TaskLoss]:
    """As the engine runs a model without pack fields: an ensemble of exactly its seeds, over sequences."""
    task = registry.get(registry.TASK, "linear_functional")(task_config(horizon=6))
    replicas = [Replica(0, model, seed, 0.02) for seed in range(seeds)]
    model_class = registry.get(registry.MODEL, model.name)
    (ensemble,) = build(model_class, replicas, Signature(1, 1, 6), torch.float64, None)
    return ensemble, task_loss_for([task], False, torch.float64)


def penalty_of(model: Model) -> Tensor:
    """delta sum (gamma_i - 1)^2, written out."""
    total: Tensor = model.config.delta * ((model.get_parameter("moduli") - 1.0) ** 2).sum()
    return total


def by_torch(
    model: Model, name: str, training: TrainingConfig, task_loss: TaskLoss, turn: int = 0
) -> dict[str, Tensor]:
    """The weights after a training with torch's optimizer and its parameter groups; settings of the rest turn once."""
    of = {group: [] for group in Group}
    for key, role in model.roles(model.config).items():
        of[role.group].append(model.get_parameter(key))
    own = {"lr": 0.004, "weight_decay": 0.2}
    groups = [
        {"params": of[Group.REST]},
        {"params": of[Group.ORTHOGONAL], "lr": 0.001},
        {"params": of[Group.TRIANGLE], **own},
    ]
    betas = {"betas": (training.beta1, training.beta2)}
    kind = {"rmsprop": torch.optim.RMSprop, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    optimizer = kind(groups, lr=0.02, weight_decay=0.03, **{"alpha": training.alpha} if name == "rmsprop" else betas)
    for step in range(training.steps):
        if turn and step == turn:
            for group in optimizer.param_groups[:2]:
                group["weight_decay"] = training.weight_decay
            optimizer.param_groups[0]["lr"] = training.learning_rate
        batch = task_loss.task.draw(Stream(0, TRAIN), step, training.batch_size)
        optimizer.zero_grad()
        (task_loss.task.loss(model(batch.inputs), batch) + penalty_of(model)).backward()
        optimizer.step()
    return {key: value.detach() for key, value in model.named_parameters()}


@pytest.mark.parametrize("name", FIELDS)
def test_groups_and_penalty_follow_torchs_parameter_groups(name: str) -> None:
    training = TrainingConfig(**TRAINING | {"optimizer": name} | FIELDS[name])
    ensemble, task_loss = started(config_of())
    (learner,) = train([ensemble], task_loss, training)
    found = ensemble.layout.named(learner.weights)
    for row, replica in enumerate(ensemble.replicas):
        rng = Stream(replica.seed, "initial weights").generator()
        model = type(ensemble.model)(replica.model, ensemble.model.signature, rng)
        for key, value in by_torch(model, name, training, task_loss).items():
            torch.testing.assert_close(found[key][row], value, rtol=1e-9, atol=1e-11)


STACK = {"features": 3, "layers": 2}


def stack(**fields: Any) -> Any:
    return registry.get(registry.MODEL, "residual_stack").Config(**{"width": 4} | STACK | fields)


def test_a_factor_follows_the_learning_rate_of_replicas_and_of_turns() -> None:
    """Where a turn has another learning rate, the training with a factor is the one with the rate that it makes."""
    turn = Turn(until=2, learning_rate=0.1, weight_decay=0.03, clip=0.0, amplitude_penalty=0.0, margin_penalty=0.0)
    ensemble, task_loss = started(stack())

    def trained(**settings: Any) -> Learner:
        groups = GroupsConfig(recurrent=GroupConfig(**settings))
        options = {"steps": 4, "until": 2, "validate_every": 2, "groups": groups, "turns": (turn,)}
        (learner,) = train([ensemble], task_loss, TrainingConfig(**TRAINING | options))
        return learner

    by_factor = trained(factor=0.5)
    assert torch.equal(by_factor.weights, trained(learning_rate=0.05).weights)
    assert not torch.equal(by_factor.weights, trained().weights)
    own = torch.tensor([0.02, 0.04])
    assert by_factor.groups.rates(own).tolist() == torch.stack([own, 0.5 * own], -1).tolist()


def test_the_penalty_counts_in_what_is_selected_and_is_differentiated() -> None:
    ensemble, task_loss = started(config_of())
    moduli = torch.tensor([[1.0, 0.5], [2.0, -1.0]], dtype=torch.float64)
    named = ensemble.layout.named(ensemble.initial) | {"moduli": moduli}
    ensemble = dataclasses.replace(ensemble, initial=ensemble.layout.flat(named))
    first = {}
    for delta in (0.0, 0.3):
        model = type(ensemble.model).ensemble_of([config_of(delta=delta)] * 2, ensemble.model.signature)
        options = {"steps": 0, "learning_rate": 0.02}
        (learner,) = train(
            [dataclasses.replace(ensemble, model=model)], task_loss, TrainingConfig(**TRAINING | options)
        )
        first[delta] = learner.best
        torch.testing.assert_close(learner.best_loss, first[0.0], rtol=0.0, atol=0.0)
    torch.testing.assert_close(first[0.3] - first[0.0], 0.3 * torch.tensor([0.25, 5.0], dtype=torch.float64))


def of(model: Any, **training: Any) -> TrialConfig:
    config = trial(task={"horizon": 6}, perturbation={"balls": (), "test_size": 16})
    return dataclasses.replace(config, model=model, training=TrainingConfig(seeds=2, **TRAINING | training))


@pytest.mark.parametrize(
    ("model", "training", "words"),
    [
        ("exp_rnn", {"groups": {"triangle": {"weight_decay": 0.5}}}, "sets weight_decay 0.5, but the model exp_rnn"),
        ("rnn", {"groups": {"orthogonal": {"learning_rate": 0.5}}}, "Models that have some: exp_rnn, nn_rnn, orthogo"),
        ("rnn", {"alpha": 0.9}, "alpha is 0.9, but adamw has none: leave it out, or set optimizer to rmsprop"),
        ("rnn", {"optimizer": "rmsprop", "beta1": 0.5}, "beta1 is 0.5, but rmsprop has none"),
        ("rnn", {"optimizer": "rmsprop", "beta2": 0.5}, "set optimizer to adamw or adam"),
        ("rnn", {"optimizer": "rmsporp"}, "rmsprop"),
        ("rnn", {"groups": {"input": {"factor": 0.5}}}, "input sets factor 0.5, but the model rnn has no weights in"),
        ("rnn", {"groups": {"recurrent": {"factor": 0.5}}}, "Models that have some: residual_stack"),
        (
            "residual_stack",
            {"groups": {"recurrent": {"factor": 0.5, "learning_rate": 0.1}}},
            "learning_rate is 0.1 and factor is 0.5, which is a learning rate, too: leave one of them out",
        ),
        ("residual_stack", {"groups": {"recurrent": {"factor": -0.5}}}, "must be at least 0"),
        ("rnn", {"clip": -1.0}, "must be at least 0"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(model: str, training: dict[str, Any], words: str) -> None:
    data = {"task": "linear_functional", "model": model, "training": training}
    with pytest.raises(ConfigError, match=words):
        config_from(TrialConfig, data, "a trial")
