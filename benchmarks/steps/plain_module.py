"""A module of a user: its training step in memsweep, against a plain loop and against the same cell as a model.

Four tables, a row of ``plain_module.json`` each:

- ``loop``: a training step of the model ``module`` over that of a loop with torch.optim over the same seeds.
- ``unit``: a training step of ``residual_stack`` with a user's layer over that of the same stack, written by hand, in
  a loop with torch.optim. Their outputs, gradients and training are equal (tests/models/module_unit).
- ``model``: the same step over that of a registered model with the same cell, which computes all seeds at once.
- ``measured``: the measurement of a trained module over a loop that runs the same numbers of sequences through it, with
  gradients and without, in batches of 256.

Weights, batch and precision are the same on both sides; no sequences are drawn in what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.steps.product import ENDLESS, Pack
from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.models.base import Signature, Weights
from memsweep.models.module.anatomy import build_module
from memsweep.models.module.factory import resolve
from memsweep.models.module.model import Module
from memsweep.trial import RunOptions, run_trial, train_replicas

NETS: Final = "tests/support/nets"
MODULES: Final[dict[str, dict[str, Any]]] = {
    "minGRU": {"factory": f"{NETS}/min_gru.py:MinGRU"},
    "selective SSM": {"factory": f"{NETS}/selective_ssm.py:SelectiveSSM", "width_argument": "d_model"},
    "transformer": {"factory": f"{NETS}/transformer.py:Transformer"},
    "nn.RNN": {"factory": f"{NETS}/torch_rnn.py:rnn"},
    "nn.GRU": {"factory": f"{NETS}/torch_rnn.py:gru"},
    "nn.LSTM": {"factory": f"{NETS}/torch_rnn.py:lstm"},
}
LAYERS: Final[dict[str, dict[str, Any]]] = {
    "gated leaky integrator": {"factory": f"{NETS}/mixer.py:Mixer"},
    "attention of 4 heads": {"factory": f"{NETS}/mixer.py:Heads"},
}
BATCH: Final = 256
DEPTH: Final = 2
PLAIN_STACK: Final = {"mixing": "none", "norm": "none", "residual": False}
CELLS: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "nn.RNN": ({"factory": f"{NETS}/torch_rnn.py:rnn"}, {"name": "vanilla_rnn", "initialization": "published"}),
    "nn.GRU": (MODULES["nn.GRU"], {"name": "residual_stack", "unit": {"name": "gru"}, **PLAIN_STACK}),
}


def trial(model: dict[str, Any], seeds: int, quick: bool) -> TrialConfig:
    """A trial that is only timed: 64 steps, batches of 64, float32."""
    training = {"seeds": seeds, "steps": ENDLESS, "batch_size": 4 if quick else 64, "dtype": "float32"}
    return trial_from_dict(
        {
            "task": {"name": "linear_functional", "horizon": 6 if quick else 64},
            "model": model,
            "training": training | {"clip": 0.0, "schedule": "constant", "amplitude_penalty": 0.0},
            "perturbation": {"balls": []},
        }
    )


class Stack(nn.Module):
    """The residual stack around a user's layers, as one writes it by hand."""

    def __init__(self, make: Callable[[int], nn.Module], features: int, sizes: Signature) -> None:
        super().__init__()
        self.encoder, self.readout = nn.Linear(sizes.inputs, features), nn.Linear(features, sizes.outputs)
        self.layers = nn.ModuleList(make(features) for _ in range(DEPTH))
        self.norms = nn.ModuleList(nn.LayerNorm(features, eps=1e-6) for _ in range(DEPTH))
        self.mix, self.gate = (nn.ModuleList(nn.Linear(features, features) for _ in range(DEPTH)) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.encoder(inputs)
        for layer, norm, mix, gate in zip(self.layers, self.norms, self.mix, self.gate, strict=True):
            answer = layer(norm(x))
            a = nn.functional.gelu(answer[0] if isinstance(answer, tuple) else answer, approximate="tanh")
            x = x + mix(a) * torch.sigmoid(gate(a))
        outputs: Tensor = self.readout(x)
        return outputs


def plain_loop(pack: Pack, make: Callable[[Signature, int], nn.Module] | None = None) -> Callable[[], None]:
    """One step of torch.optim for each seed, one after the other, as a script does it."""
    config, task, batch = pack.config, pack.task, pack.drawn
    sizes = Signature(task.inputs, task.outputs, task.horizon)
    made = make or (lambda sizes, seed: build_module(config.model, sizes, seed))
    modules = [made(sizes, seed).float() for seed in range(config.training.seeds)]
    optimizers = [torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.0) for module in modules]
    inputs = batch.inputs.float()
    kept = type(batch)(inputs, batch.targets.float())

    def step() -> None:
        for module, optimizer in zip(modules, optimizers, strict=True):
            optimizer.zero_grad()
            task.loss(module(inputs).unsqueeze(0), kept).sum().backward()
            optimizer.step()

    return step


def measured(fields: dict[str, Any], width: int, quick: bool) -> Row:
    """Processor seconds of one measurement, over those of a loop through as many sequences."""
    moved = {"balls": ["recurrent"], "test_size": 256, "ascent_steps": 1 if quick else 16}
    data = to_dict(trial({"name": "module", "width": width, **fields}, 1, quick))
    data["training"] |= {"steps": 2, "dtype": "float64"}
    config = trial_from_dict(data | {"perturbation": moved})
    pack = train_replicas([config])
    trained = {one.seed: one for _, _, ensemble in pack.ensembles for one in ensemble.replicas.values()}
    counted = {True: 0, False: 0}
    task = pack.tasks[0]
    sizes = Signature(task.inputs, task.outputs, task.horizon)
    module = build_module(config.model, sizes, 0).double()
    inputs = torch.randn(BATCH, task.horizon, task.inputs, dtype=torch.float64)

    def counting(model: Module, weights: Weights, inputs: Tensor) -> Tensor:
        answers = plainly(model, weights, inputs)
        counted[torch.is_grad_enabled()] += answers.shape[:-2].numel()  # of all copies
        return answers

    def measure() -> None:
        run_trial(config, RunOptions(trained=[trained]))

    def loop() -> None:
        for _ in range(-(-counted[True] // BATCH)):
            torch.autograd.grad(module(inputs).square().sum(), list(module.parameters()))
        with torch.no_grad():
            for _ in range(-(-counted[False] // BATCH)):
                module(inputs)

    plainly = Module.outputs
    with mock.patch.object(Module, "outputs", counting):
        measure()
    times = harness.alternate({"module": measure, "other": loop}, pairs=1 if quick else 3, shortest=0.0)
    return {
        "sequences_with_gradient": counted[True],
        "sequences": counted[False],
        "milliseconds": 1e3 * harness.median(times["module"]),
        "other": 1e3 * harness.median(times["other"]),
        "ratio": harness.ratio(times["module"], times["other"]),
    }


def run(options: Options) -> None:
    harness.one_thread()
    registry.discover(harness.ROOT)
    pairs, shortest = (2, 0.002) if options.quick else (harness.PAIRS, harness.SHORTEST)
    width = 4 if options.quick else 32
    rows: list[Row] = []
    for name, fields in MODULES.items():
        pack = Pack.of(trial({"name": "module", "width": width, **fields}, 3, options.quick))
        row = {"table": "loop", "module": name, "width": width, "seeds": 3}
        if options.wants(row):
            sides = {"module": pack.step, "other": plain_loop(pack)}
            rows.append(row | _compared(sides, pairs, shortest))
    for name, fields in MODULES.items():
        row = {"table": "measured", "module": name, "width": width // 2, "seeds": 1}
        if options.wants(row):
            rows.append(row | measured(fields, width // 2, options.quick))
    for name, unit in LAYERS.items():
        stack = {"name": "residual_stack", "layers": DEPTH, "features": width, "width": width, "unit": unit}
        row = {"table": "unit", "module": name, "width": width, "seeds": 3}
        if options.wants(row):
            pack, layer = Pack.of(trial(stack, 3, options.quick)), resolve(unit["factory"]).make
            by_hand = plain_loop(pack, lambda sizes, seed, make=layer: Stack(make, width, sizes))  # type: ignore[misc]
            rows.append(row | _compared({"module": pack.step, "other": by_hand}, pairs, shortest))
    for name, (fields, model) in CELLS.items():
        for wide, seeds in ((width, 1), (width, 5), (width // 4, 5)):
            row = {"table": "model", "module": name, "width": wide, "seeds": seeds}
            if not options.wants(row):
                continue
            same = {"features": wide} if model["name"] == "residual_stack" else {}
            packs = [
                Pack.of(trial({"width": wide, **each}, seeds, options.quick))
                for each in ({"name": "module", **fields}, {**model, **same})
            ]
            sides = {"module": packs[0].step, "other": packs[1].step}
            rows.append(row | _compared(sides, pairs, shortest))
    harness.publish("plain_module", {"horizon": 6 if options.quick else 64, "dtype": "float32"}, rows, options)


def _compared(sides: dict[str, Callable[[], None]], pairs: int, shortest: float) -> Row:
    times = harness.alternate(sides, pairs=pairs, shortest=shortest)
    return {
        "milliseconds": 1e3 * harness.median(times["module"]),
        "other": 1e3 * harness.median(times["other"]),
        "ratio": harness.ratio(times["module"], times["other"]),
        "pairs": pairs,
    }
