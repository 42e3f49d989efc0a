"""A plain study of a plain module trains as a loop with torch.optim does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.objective import objective
from memsweep.data.task import as_ids
from memsweep.models.base import Signature
from memsweep.models.module.anatomy import build_module
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
}
TASK = {"name": "copying_memory", "encoding": "one_hot", "delay": 6, "length": 4, "symbols": 3}


@pytest.mark.parametrize("name", [n if n == "min_gru" else pytest.param(n, marks=pytest.mark.more) for n in MODELS])
def test_a_study_without_settings_trains_as_torch_does(name: str) -> None:
    registry.discover(ROOT)
    config = trial_from_dict(
        {
            "task": TASK,
            "model": {"name": "module", "width": 6, **MODELS[name]},
            "training": {"seeds": 2, "steps": 20, "batch_size": 8, "validate_every": 20, "validation_size": 16},
            "perturbation": {
                "balls": ["recurrent"],
                "radii": {"count": 2},
                "starts": 0,
                "ascent_steps": 0,
                "test_size": 16,
            },
        }
    )
    assert objective(to_dict(config)) == "task loss, adamw, constant rate, no clip"
    replicas = run_trial(config).tables["replicas"].set_index("seed")["error"]
    for seed in range(2):
        assert replicas[seed] == pytest.approx(loss_of_a_plain_loop(config, seed), rel=1e-9)


def loss_of_a_plain_loop(config: Any, seed: int) -> float:
    """The test loss after training as any script does it: a module, torch.optim.AdamW, backward, step."""
    task = registry.get(registry.TASK, config.task.name)(config.task)
    draw = Stream(seed, "initial weights").generator().integers(2**31)
    module = build_module(config.model, Signature(task.inputs, task.outputs, task.horizon), int(draw)).double()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.0)

    def loss(stream: str, index: int, size: int, of: int) -> torch.Tensor:
        batch = task.draw(Stream(of, stream), index, size)
        inputs = as_ids(batch.inputs, task.inputs) if config.model.tokens else batch.inputs
        return task.loss(module(inputs).unsqueeze(0), batch).squeeze()

    module.train()
    for step in range(config.training.steps):
        optimizer.zero_grad()
        loss(TRAIN, step, 8, config.training.data_seed).backward()
        optimizer.step()
    module.eval()
    with torch.no_grad():
        return float(loss(TEST, seed, 16, config.training.data_seed))
