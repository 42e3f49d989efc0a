"""A user's layer in a residual stack: equal to the same stack as a plain module, in all that a stack can do."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine import noise
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.models.base import Part, Signature
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.module.factory import resolve
from memsweep.models.module_unit.config import ModuleUnitConfig
from memsweep.streams import TEST, TRAIN, Stream
from memsweep.sweep.planning.fingerprint import code_fingerprint
from memsweep.trial import run_trial
from memsweep.trust.calls import calls_of
from paths import ROOT

FILE = "tests/support/nets/mixer.py"
SIGNATURE = Signature(inputs=2, outputs=3, horizon=7)
TASK = {"name": "copying_memory", "encoding": "one_hot", "delay": 4, "length": 2, "symbols": 3}


class Plain(nn.Module):
    """The stack as anybody would write it, with the layer inside."""

    def __init__(self, config: Any, sizes: Signature, name: str) -> None:
        super().__init__()
        features = config.features
        self.encoder, self.readout = nn.Linear(sizes.inputs, features), nn.Linear(features, sizes.outputs)
        make, layers = resolve(f"{FILE}:{name}").make, range(config.layers)
        given = {"d_model": features} if name == "Mixer" else {"inputs": features, "outputs": features}
        given |= {} if name == "Mixer" else {"width": config.width}
        self.units = nn.ModuleList(make(**given) for _ in layers)
        self.norms = nn.ModuleList(nn.LayerNorm(features, eps=1e-6) for _ in layers)
        self.mix, self.gate = (nn.ModuleList(nn.Linear(features, features) for _ in layers) for _ in range(2))
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.encoder(inputs)
        for unit, norm, mix, gate in zip(self.units, self.norms, self.mix, self.gate, strict=True):
            a = nn.functional.gelu(unit(norm(x)), approximate="tanh")
            x = x + mix(a) * torch.sigmoid(gate(a))
        return self.readout(x)

    def by_names(self, engines: Mapping[str, Any]) -> dict[str, Tensor]:
        """Its tensors under the engine's names."""
        own = dict(self.named_parameters()) | dict(self.named_buffers())
        return {name: own[self._own(name)] for name in engines}

    def _own(self, name: str) -> str:
        if "_l" not in name:
            return name.replace("_", ".")
        inside, _, layer = name.rpartition("_l")
        part, _, kind = inside.partition("_")
        around = {"norm": "norms", "mix": "mix", "gate": "gate"}
        if part in around and "/" not in inside:
            return f"{around[part]}.{layer}.{kind}"
        return f"units.{layer}.{inside.replace('/', '.')}"

    @torch.no_grad()
    def load(self, weights: Mapping[str, Any]) -> Plain:
        for name, tensor in self.by_names(weights).items():
            tensor.copy_(torch.as_tensor(weights[name]))
        return self


def model_of(name: str = "Mixer", **fields: Any) -> dict[str, Any]:
    sizes = {"width": 5, "features": 4, "layers": 2}
    return {"name": "residual_stack", **sizes, **fields, "unit": {"factory": f"{FILE}:{name}"}}


def trial(name: str = "Mixer", training: Mapping[str, Any] | None = None, **fields: Any) -> TrialConfig:
    registry.discover(ROOT)
    usual = {"seeds": 2, "steps": 12, "batch_size": 8, "validate_every": 12, "validation_size": 16}
    usual |= {"learning_rate": 0.01, "weight_decay": 0.0, "clip": 0.0, "schedule": "constant"}
    usual |= {"amplitude_penalty": 0.0, "dtype": "float64"}
    return trial_from_dict(
        {
            "task": TASK,
            "model": model_of(name, **fields),
            "training": usual | dict(training or {}),
            "perturbation": {"balls": [], "test_size": 16},
        }
    )


@pytest.mark.parametrize("name", ["Mixer", "Noisy"])
def test_outputs_and_gradients_are_those_of_the_plain_stack(name: str) -> None:
    config = trial(name).model
    model = ResidualStack(config, SIGNATURE).eval()
    drawn = [ResidualStack.initial(config, SIGNATURE, np.random.default_rng(seed)) for seed in range(2)]
    live = {key: torch.from_numpy(np.stack([each[key] for each in drawn])).requires_grad_() for key in drawn[0]}
    inputs = noise(4, 7, 2)
    outputs = model.outputs(live, inputs)
    outputs.square().sum().backward()
    for row, own in enumerate(drawn):
        plain = Plain(config, SIGNATURE, name).load(own).eval()
        expected = plain(inputs)
        torch.testing.assert_close(outputs[row], expected, rtol=1e-12, atol=1e-12)
        expected.square().sum().backward()
        for key, tensor in plain.by_names(own).items():
            if tensor.requires_grad:
                assert live[key].grad is not None
                torch.testing.assert_close(live[key].grad[row], tensor.grad, rtol=1e-11, atol=1e-12)


def test_training_is_that_of_a_plain_loop() -> None:
    config = trial()
    task = registry.get(registry.TASK, config.task.name)(config.task)
    sizes = Signature(task.inputs, task.outputs, task.horizon)
    errors = run_trial(config).tables["replicas"].set_index("seed")["error"]
    for seed in range(2):
        drawn = ResidualStack.initial(config.model, sizes, Stream(seed, "initial weights").generator())
        plain = Plain(config.model, sizes, "Mixer").load(drawn)
        optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)

        def loss(stream: str, index: int, size: int, of: int, net: nn.Module = plain) -> Tensor:
            batch = task.draw(Stream(of, stream), index, size)
            return task.loss(net(batch.inputs).unsqueeze(0), batch).squeeze()

        for step in range(config.training.steps):
            optimizer.zero_grad()
            loss(TRAIN, step, 8, config.training.data_seed).backward()
            optimizer.step()
        with torch.no_grad():
            assert errors[seed] == pytest.approx(float(loss(TEST, seed, 16, config.training.data_seed)), rel=1e-9)


def test_each_seed_has_its_own_dropout_and_running_statistics() -> None:
    """A seed has the same numbers alone as beside another; what is frozen stays to the bit."""
    both, alone = run_trial(trial("Noisy")), run_trial(trial("Noisy", {"seeds": 1}))
    for name, value in alone.weights[0].items():
        assert torch.equal(both.weights[0][name], value), name
        if name.startswith("scale"):
            assert bool((value == 0.5).all())
    means = [both.weights[seed]["norm/running_mean_l1"] for seed in range(2)]
    assert not torch.equal(*means)
    assert bool((means[0] != 0).any())


def test_roles_are_the_layers_own() -> None:
    roles = ResidualStack.roles(trial("Noisy").model)
    assert roles["rnn/weight_hh_l0_l1"].part is Part.RECURRENT
    assert roles["rnn/weight_hh_l0_l1"].layer == 1
    assert roles["scale_l0"].part is Part.STATISTIC
    assert roles["norm/running_var_l0"].part is Part.STATISTIC


def study(folder: Path, text: str, *overrides: str) -> Any:
    file = folder / "study.yaml"
    file.write_text(f"task: {{name: parity, horizon: 6}}\ntraining: {{seeds: 1, steps: 1}}\n{text}")
    return load_study(str(file), overrides, folder)


def test_a_budget_finds_sizes_that_the_layers_heads_share_out(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text((ROOT / FILE).read_text())
    text = 'model: {name: residual_stack, unit: {factory: "own.py:Heads"}}\nperturbation: {balls: []}\n'
    (row,) = study(tmp_path, text, "model.parameters=900").rows
    assert row.model.features == row.model.width
    assert row.model.features % 4 == 0
    with pytest.raises(ConfigError, match=r"1 problem in .*\n.* model: .*divisible"):
        study(tmp_path, text, "model.parameters=900", "model.features=6")


BAD = {
    "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self, dim): super().__init__(dim, dim + 1)\n": (
        r"A layer must answer as many features as it reads, here [18]\."
    ),
    "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self, dim): super().__init__(dim, dim)\n"
    "    def forward(self, x): return super().forward(x.flip(1))\n": r"is not causal.*model\.unit\.causal: false",
    "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, one, other): super().__init__()\n": (
        r"needs the arguments one, other: give them under model\.unit\.arguments, or say which size it takes: "
        r"model\.unit\.features_argument or model\.unit\.width_argument"
    ),
    "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self, dim): super().__init__(dim, dim)\n"
    "    def forward(self, x): return super().forward(x)[:, -1]\n": r"Give an output at each step, not at the last one",
    "from torch import nn\nclass Net(nn.Linear):\n    def __init__(self, dim): super().__init__(dim, dim)\n"
    "    def forward(self, x): raise ValueError\n": r"A layer must read \[batch, time, features\]",
    "import not_there\n": r"the import of net_\d failed: .*not_there",
}


@pytest.mark.parametrize("code", BAD)
def test_a_layer_that_cannot_run_is_one_sentence(tmp_path: Path, code: str) -> None:
    name = f"net_{[*BAD].index(code)}"
    (tmp_path / f"{name}.py").write_text(code)
    text = f'model: {{name: residual_stack, unit: {{factory: "{name}:Net"}}}}\nperturbation: {{balls: []}}\n'
    for more in ((), ("model.parameters=900",)):  # sizes are sought before the code's problems are
        with pytest.raises(ConfigError, match=BAD[code]) as refused:
            study(tmp_path, text, *more)
        advised = set(re.findall(r"\bmodel\.[\w.]*\w", str(refused.value))) - {"model.unit"}
        known = {f"model.unit.{each.name}" for each in fields(ModuleUnitConfig)}
        assert advised <= known, advised - known


def test_its_source_counts_and_a_stored_trial_is_read_without_it(tmp_path: Path) -> None:
    usual, net = trial(), tmp_path / "own_layer.py"
    net.write_text((ROOT / FILE).read_text())
    registry.discover(tmp_path)
    try:
        config = replace(usual, model=config_of("own_layer:Mixer"))
        before = code_fingerprint(config)
        assert code_fingerprint(config) == before
        net.write_text(net.read_text().replace("1 - forget", "2 - forget"))
        ResidualStack.roles(config.model)
        assert code_fingerprint(config) != before
        net.unlink()
        assert trial_from_dict(to_dict(config)) == config
    finally:
        registry.discover(ROOT)


def config_of(factory: str) -> Any:
    return ResidualStack.Config(unit=registry.get(registry.UNIT, "module").Config(factory=factory))


def test_a_factory_of_a_unit_is_a_call_that_trust_knows() -> None:
    given = {"units": [{"factory": "os:system", "arguments": {"command": "true"}}, "attention"]}
    assert [call.target for call in calls_of({"model": given}).values()] == ["os:system"]
    assert math.isfinite(len(calls_of({"grid": {"model.unit": [{"factory": "os:system"}]}})))
