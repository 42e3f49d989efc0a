"""Perturbed copies and seeds of a module, computed together: the numbers of one by one, where that is faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from memsweep import registry
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.learning.memory import live_bytes
from memsweep.models.base import Signature
from memsweep.models.module.model import Module
from memsweep.sweep.planning.fingerprint import code_closure
from memsweep.trial import run_pack
from paths import ROOT

HERE, NETS = "tests/models/test_copies.py", "tests/support/nets"
TOGETHER: dict[str, dict[str, Any]] = {
    "min_gru": {"factory": f"{NETS}/min_gru.py:MinGRU", "arguments": {"layers": 2}},
    "selective_ssm": {"factory": f"{NETS}/selective_ssm.py:SelectiveSSM", "width_argument": "d_model"},
}
ALONE: dict[str, dict[str, Any]] = {
    "copy by copy in torch": {"factory": f"{NETS}/transformer.py:Transformer"},
    "compiled": {"factory": f"{NETS}/torch_rnn.py:lstm"},
    "by numbers": {"factory": f"{HERE}:ByNumbers"},
    "in place": {"factory": f"{HERE}:InPlace"},
    "gradients looked at": {"factory": f"{HERE}:Clipped"},
    "as the study says": {**TOGETHER["min_gru"], "replicas": "sequential"},
}
HORIZON = 12


class Loop(nn.Module):
    """A leaky integrator that counts how often it is called."""

    calls = 0

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.drive, self.readout = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.decay = nn.Parameter(torch.linspace(-1.0, 2.0, width))

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        driven, states = self.drive(x), []
        h = torch.zeros_like(driven[:, 0])
        for t in range(x.shape[1]):
            h = self.next(h, driven, t)
            states.append(h)
        return self.readout(torch.stack(states, 1))

    def next(self, h: Tensor, driven: Tensor, t: int) -> Tensor:
        return torch.sigmoid(self.decay) * h + driven[:, t]


class ByNumbers(Loop):
    """vmap has no number of all copies that Python could compare."""

    def next(self, h: Tensor, driven: Tensor, t: int) -> Tensor:
        return super().next(h, driven, t) if float(self.decay.detach().max()) < 50 else h


class InPlace(Loop):
    """vmap refuses to write what differs between copies into a tensor of all of them."""

    def next(self, h: Tensor, driven: Tensor, t: int) -> Tensor:
        kept = torch.zeros(h.shape, dtype=h.dtype)
        kept += super().next(h, driven, t)
        return kept


class Later(Loop):
    """As ``ByNumbers``, beyond the steps that are tried before a study."""

    def next(self, h: Tensor, driven: Tensor, t: int) -> Tensor:
        float(self.decay.detach().max() if t > 64 else t)
        return super().next(h, driven, t)


class Clipped(Loop):
    """It looks whether there is a gradient, and changes it where it is large."""

    def next(self, h: Tensor, driven: Tensor, t: int) -> Tensor:
        after = super().next(h, driven, t)
        if after.requires_grad:
            after.register_hook(lambda gradient: gradient.clamp(-1e3, 1e3))
        return after


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    registry.discover(ROOT)


def model_of(fields: dict[str, Any], horizon: int = HORIZON) -> Module:
    return Module(trial_of(fields).model, Signature(1, 1, horizon)).double().eval()


def copies_of(model: Module, count: int, sequences: int) -> tuple[dict[str, Tensor], Tensor]:
    """Weights ``[1, K, ...]`` that differ from copy to copy, and inputs ``[B, T, 1]``."""
    draw = np.random.default_rng(0)
    made = {
        name: torch.from_numpy(np.stack([value + 0.1 * draw.standard_normal(value.shape) for _ in range(count)]))
        for name, value in Module.initial(model.config, model.signature, draw).items()
    }
    inputs = torch.from_numpy(draw.standard_normal((sequences, model.signature.horizon, 1)))
    return {name: value.unsqueeze(0).requires_grad_() for name, value in made.items()}, inputs


def seeds_of(model: Module, count: int, sequences: int) -> tuple[dict[str, Tensor], Tensor]:
    """Weights ``[P, ...]`` of so many seeds, and inputs ``[B, T, 1]``."""
    weights, inputs = copies_of(model, count, sequences)
    return {name: value.detach()[0].requires_grad_() for name, value in weights.items()}, inputs


def results(model: Module, weights: dict[str, Tensor], inputs: Tensor) -> list[Tensor]:
    outputs = model.outputs(weights, inputs)
    gradients = torch.autograd.grad(outputs.square().sum(), [*weights.values()], materialize_grads=True)
    return [outputs.detach(), *gradients]


@pytest.mark.parametrize("name", TOGETHER)
def test_copies_together_have_the_numbers_of_one_after_the_other(name: str) -> None:
    both = [model_of({**TOGETHER[name], "replicas": how}) for how in ("auto", "sequential")]
    weights, inputs = copies_of(both[0], 5, 16)
    together, alone = (results(model, weights, inputs) for model in both)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ALONE)
def test_what_torch_cannot_compute_together_goes_one_after_the_other(name: str) -> None:
    assert model_of(ALONE[name]).own_copies is None


def test_a_module_that_fails_together_at_a_length_goes_one_after_the_other_there() -> None:
    model = model_of({"factory": f"{HERE}:Later"}, horizon=80)
    assert model.own_copies is not None
    weights, inputs = copies_of(model, 3, 8)
    found = results(model, weights, inputs)
    expected = results(model_of({"factory": f"{HERE}:Loop"}, horizon=80), weights, inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("copies", "sequences", "width", "gradient", "calls"),
    [
        (6, 16, 4, True, 1),
        (1, 16, 4, True, 1),
        (6, 16, 4, False, 6),  # vmap gains nothing
        (6, 512, 32, True, 6),  # copies leave the cache
    ],
)
def test_copies_go_together_where_operations_are_small_and_gradients_followed(
    copies: int, sequences: int, width: int, gradient: bool, calls: int
) -> None:
    model = model_of({"factory": f"{HERE}:Loop", "width": width})
    weights, inputs = copies_of(model, copies, sequences)
    with torch.set_grad_enabled(gradient):
        model.outputs(weights, inputs)  # the first call looks how large operations are
        before = type(model.module).calls
        model.outputs(weights, inputs)
    assert type(model.module).calls - before == calls


def test_how_large_operations_are_is_looked_up_outside_of_a_count_of_bytes() -> None:
    """A slice of copies is so large as its bytes allow, and last bits may depend on it."""

    def moments() -> list[list[int]]:
        model = model_of({"factory": f"{HERE}:Loop"})
        weights, inputs = copies_of(model, 4, 16)
        assert model.own_copies is not None
        return [live_bytes(lambda: results(model, weights, inputs)).moments for _ in range(2)]

    first, second = moments()
    assert first == second == moments()[0]


def trial_of(fields: dict[str, Any], seeds: int = 1, **perturbation: Any) -> Any:
    return trial_from_dict(
        {
            "task": {"name": "linear_functional", "kernel": "exponential", "horizon": HORIZON},
            "model": {"name": "module", "width": 4, **fields},
            "training": {"seeds": seeds, "steps": 4, "batch_size": 8, "validation_size": 16, "validate_every": 4},
            "perturbation": {
                "balls": ["recurrent"],
                "radii": {"from": 0.05, "to": 1.0, "count": 2},
                **{"starts": 2, "ascent_steps": 2, "test_size": 80, "stronger_every": 0, **perturbation},
            },
        }
    )


class Dropping(Loop):
    """It draws random numbers in training alone, so its seeds go one after the other, and its copies do not."""

    def next(self, h: Tensor, driven: Tensor, t: int) -> Tensor:
        return super().next(h, nn.functional.dropout(driven, 0.1, self.training), t)


@pytest.mark.parametrize("name", TOGETHER)
def test_seeds_together_have_the_numbers_of_one_after_the_other(name: str) -> None:
    both = [model_of({**TOGETHER[name], "replicas": how}).train() for how in ("auto", "sequential")]
    weights, inputs = seeds_of(both[0], 5, 16)
    together, alone = (results(model, weights, inputs) for model in both)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


def test_seeds_of_a_module_that_draws_go_one_after_the_other_and_its_copies_together() -> None:
    model = model_of({"factory": f"{HERE}:Dropping"})
    assert model.own_seeds is None
    assert model.own_copies is not None


@pytest.mark.parametrize(
    ("seeds", "width", "training", "calls"),
    [
        (5, 4, True, 1),
        (1, 4, True, 1),
        (5, 4, False, 5),  # a measurement takes its seeds one after the other
        (5, 1024, True, 5),  # larger operations
    ],
)
def test_seeds_go_together_in_training_where_operations_are_small(
    seeds: int, width: int, training: bool, calls: int
) -> None:
    model = model_of({"factory": f"{HERE}:Loop", "width": width}).train(training)
    model.start_step(range(seeds), 0)
    weights, inputs = seeds_of(model, seeds, 16)
    model.outputs(weights, inputs)  # the first call looks how large operations are
    before = type(model.module).calls
    model.outputs(weights, inputs)
    assert type(model.module).calls - before == calls


def test_a_training_is_that_of_seeds_one_after_the_other() -> None:
    weights = [
        run_pack([trial_of({**TOGETHER["min_gru"], "replicas": how}, seeds=3)])[0].weights
        for how in ("auto", "sequential")
    ]
    torch.testing.assert_close(*weights, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("reference", ["target", "self"])
def test_a_measurement_is_that_of_copies_one_after_the_other(reference: str) -> None:
    fields = TOGETHER["min_gru"]
    together, alone = (
        run_pack([trial_of({**fields, "replicas": how}, reference=reference)])[0].tables
        for how in ("auto", "sequential")
    )
    assert together.keys() == alone.keys()
    for name, table in together.items():
        pd.testing.assert_frame_equal(table, alone[name], rtol=1e-6)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_trial_of_copies_together_has_their_code_and_its_training_where_seeds_are(seeds: int) -> None:
    together, alone = (trial_of(fields, seeds) for fields in (TOGETHER["min_gru"], ALONE["as the study says"]))
    assert has_code(together)
    assert has_code(together, training=True) == (seeds > 1)
    assert not has_code(alone)


def has_code(trial: Any, *, training: bool = False) -> bool:
    return any(module == "memsweep.models.copies" for module, _ in code_closure(trial, training=training))
