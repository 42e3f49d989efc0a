"""A plain study of a plain module trains as a loop with torch.optim does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.task import as_ids
from memsweep.models.base import Signature
from memsweep.models.module.anatomy import build_module
from memsweep.report.naming.objective import objective
from memsweep.streams import TEST, TRAIN, Stream
from memsweep.trial import run_trial
from paths import ROOT

NETS = "tests/support/nets"
MODELS: dict[str, dict[str, Any]] = {
    "min_gru": {"factory": f"{NETS}/min_gru.py:MinGRU", "arguments": {"layers": 2}},
    "selective_ssm": {"factory": f"{NETS}/selective_ssm.py:SelectiveSSM", "width_argument": "d_model"},
    "transformer": {"factory": f"{NETS}/transformer.py:Transformer"},
    "gru": {"factory": f"{NETS}/torch_rnn.py:gru"},
    "lstm": {"factory": f"{NETS}/torch_rnn.py:lstm"},
    "tokens": {"factory": f"{NETS}/torch_rnn.py:TokenGRU", "tokens": True},
    "batch_norm": {"factory": f"{NETS}/normalized.py:Normalized"},
    "frozen": {"factory": f"{NETS}/frozen.py:Net"},
}
TASK = {"name": "copying_memory", "encoding": "one_hot", "delay": 6, "length": 4, "symbols": 3}


@pytest.mark.parametrize("name", [n if n == "min_gru" else pytest.param(n, marks=pytest.mark.more) for n in MODELS])
def test_a_study_without_settings_trains_as_torch_does(name: str) -> None:
    config = trial(name)
    assert objective(to_dict(config)) == "task loss, adamw, constant rate, no clip"
    replicas = run_trial(config).tables["replicas"].set_index("seed")["error"]
    for seed in range(2):
        assert replicas[seed] == pytest.approx(loss_of_a_plain_loop(config, seed)[0], rel=1e-9)


DECAYING = {"learning_rate": 0.02, "weight_decay": 0.05}


@pytest.mark.parametrize(
    ("training", "optimizer"),
    [
        (DECAYING, lambda weights: torch.optim.AdamW(weights, lr=0.02, weight_decay=0.05)),
        pytest.param(
            DECAYING | {"optimizer": "adam"},
            lambda weights: torch.optim.Adam(weights, lr=0.02, weight_decay=0.05),
            marks=pytest.mark.more,
        ),
        pytest.param(
            DECAYING | {"optimizer": "rmsprop"},
            lambda weights: torch.optim.RMSprop(weights, lr=0.02, weight_decay=0.05),
            marks=pytest.mark.more,
        ),
    ],
)
def test_frozen_parameters_stay_to_the_bit_under_decay_and_penalty(
    training: dict[str, Any], optimizer: Callable[[Any], torch.optim.Optimizer]
) -> None:
    training |= {"steps": 6, "validate_every": 6}
    config = trial("frozen", balls=[], clip=0.05, **training)
    trained = run_trial(config)
    replicas = trained.tables["replicas"].set_index("seed")["error"]
    for seed in range(2):
        error, module = loss_of_a_plain_loop(config, seed, optimizer, clip=0.05)
        assert replicas[seed] == pytest.approx(error, rel=1e-9)
        for name, weight in module.named_parameters():
            assert torch.equal(trained.weights[seed][name], weight) == (not weight.requires_grad), name
    penalized = run_trial(trial("frozen", balls=[], amplitude_penalty=0.1, **training))
    for seed in range(2):
        for name in ("encoder.weight", "encoder.bias"):
            assert torch.equal(penalized.weights[seed][name], trained.weights[seed][name])
        assert not torch.equal(penalized.weights[seed]["readout.weight"], trained.weights[seed]["readout.weight"])


def trial(name: str, balls: Sequence[str] = ("recurrent",), **training: Any) -> TrialConfig:
    registry.discover(ROOT)
    return trial_from_dict(
        {
            "task": TASK,
            "model": {"name": "module", "width": 6, **MODELS[name]},
            "training": {"seeds": 2, "steps": 20, "batch_size": 8, "validate_every": 20, "validation_size": 16}
            | training,
            "perturbation": {
                "balls": list(balls),
                "radii": {"count": 2},
                "starts": 0,
                "ascent_steps": 0,
                "test_size": 16,
            },
        }
    )


def plain_optimizer(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(weights, lr=0.01, weight_decay=0.0)


def loss_of_a_plain_loop(
    config: Any,
    seed: int,
    optimizer_of: Callable[[Any], torch.optim.Optimizer] = plain_optimizer,
    clip: float = math.inf,
) -> tuple[float, nn.Module]:
    """The test loss after training as any script does it: a module, torch.optim, backward, step; and the module."""
    task = registry.get(registry.TASK, config.task.name)(config.task)
    draw = Stream(seed, "initial weights").generator().integers(2**31)
    module = build_module(config.model, Signature(task.inputs, task.outputs, task.horizon), int(draw)).double()
    optimizer = optimizer_of(module.parameters())

    def loss(stream: str, index: int, size: int, of: int) -> torch.Tensor:
        batch = task.draw(Stream(of, stream), index, size)
        inputs = as_ids(batch.inputs, task.inputs) if config.model.tokens else batch.inputs
        return task.loss(module(inputs).unsqueeze(0), batch).squeeze()

    module.train()
    for step in range(config.training.steps):
        optimizer.zero_grad()
        loss(TRAIN, step, 8, config.training.data_seed).backward()
        gradients = [weight.grad for weight in module.parameters() if weight.grad is not None]
        factor = min(1.0, clip / float(nn.utils.get_total_norm(gradients)))
        torch._foreach_mul_(gradients, factor)
        optimizer.step()
    module.eval()
    with torch.no_grad():
        return float(loss(TEST, seed, 16, config.training.data_seed)), module
