"""The compiled residual stack is torch's: outputs, gradients, loss, for every model by itself."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import noise
from memsweep import registry
from memsweep.models.base import Signature, StackedModel
from memsweep.models.deep.around_unit import MIXINGS
from memsweep.models.deep.fused_stack import LARGEST, CompiledStack, knows
from memsweep.models.deep.no_encoder.compiled import CompiledStackOfInputs
from memsweep.recurrence.compiled.library import KERNELS

MODELS, BATCH, HORIZON, INPUTS, OUTPUTS = 3, 37, 11, 3, 2
FEW = 3  # sequences, in a block of one vector
CLOSE = {torch.float64: 1e-10, torch.float32: 1e-4}
UNITS: list[dict[str, Any]] = [
    *({"name": "rnn", "activation": activation} for activation in ("linear", "tanh", "relu")),
    {"name": "gru"},
    *({"name": "lru", "normalize": normalize} for normalize in (True, False)),
]
PLAIN: dict[str, Any] = {"mixing": "full_glu", "norm": "layer", "residual": True}
NO_ENCODER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "gru"}, PLAIN | {"encoder__": "none", "layers": layers, "mixing": mixing})
    for layers, mixing in ((1, "none"), (3, "full_glu"), (2, "half_glu2"))
]
ALONE = [(unit, PLAIN) for unit in UNITS] + NO_ENCODER
CASES = ALONE + [
    (UNITS[1], {"mixing": mixing, "norm": norm, "residual": residual})
    for mixing, norm, residual in product(MIXINGS, ("layer", "none"), (True, False))
]


def config_of(unit: dict[str, Any], **fields: Any) -> Any:
    name, *_ = unit.values()
    chosen = registry.get(registry.UNIT, name).Config(**{key: value for key, value in unit.items() if key != "name"})
    sizes = {"width": 7 if name == "gru" else 5, "features": 7, "layers": 2}
    return registry.get(registry.MODEL, "residual_stack").Config(**{**sizes, **fields, "unit": chosen})


def model_of(config: Any, dtype: torch.dtype = torch.float64) -> StackedModel:
    model_class = registry.get(registry.MODEL, "residual_stack")
    model: StackedModel = model_class(config, Signature(INPUTS, OUTPUTS, HORIZON)).to(dtype).eval()
    return model


def weights_of(model: StackedModel, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Of several models, each name's tensor a leaf."""
    own = model.named_parameters()
    drawn = {name: 0.2 * noise(MODELS, *value.shape, seed=seed) for seed, (name, value) in enumerate(own)}
    start = {name: value.detach() for name, value in model.named_parameters()}
    return {name: (start[name] + value).to(dtype).requires_grad_() for name, value in drawn.items()}


def flat(model: StackedModel, named: dict[str, Tensor]) -> Tensor:
    return torch.cat([named[name].detach().flatten(1) for name in model.weight_axes], 1)


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("batch", [BATCH, FEW])
@pytest.mark.parametrize(("unit", "fields"), CASES, ids=str)
def test_outputs_and_gradients_are_torchs(
    unit: dict[str, Any], fields: dict[str, Any], batch: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(unit, **fields)
    model, inputs = model_of(config, dtype), noise(batch, HORIZON, INPUTS).to(dtype)
    weights, pull = weights_of(model, dtype), noise(MODELS, batch, HORIZON, OUTPUTS, seed=9).to(dtype)
    assert knows(config, HORIZON)
    assert model._compiled(inputs) is not None  # type: ignore[operator]
    found = []
    for way in ("compiled", "plain"):
        monkeypatch.setenv(KERNELS, way)
        outputs = model.outputs(weights, inputs)
        found.append([outputs.detach(), *torch.autograd.grad(outputs, list(weights.values()), pull)])
    for name, mine, theirs in zip(("outputs", *weights), *found, strict=True):
        assert relative(mine, theirs) <= CLOSE[dtype], name


@pytest.mark.parametrize("batch", [BATCH, FEW])
@pytest.mark.parametrize(("unit", "fields"), ALONE, ids=str)
def test_loss_and_gradient_of_live_models_come_from_one_call(
    unit: dict[str, Any], fields: dict[str, Any], batch: int
) -> None:
    model = model_of(config_of(unit, **fields))
    weights, inputs = weights_of(model), noise(batch, HORIZON, INPUTS)
    targets, squares = noise(batch, HORIZON, OUTPUTS, seed=5), noise(HORIZON, seed=6).square()
    live = torch.tensor([True, False, True])
    loss = (squares.unsqueeze(-1) * (model.outputs(weights, inputs) - targets).square()).sum((1, 2, 3))
    named = dict(zip(weights, torch.autograd.grad(loss[live].sum(), list(weights.values())), strict=True))
    found = model.squared_gradient(flat(model, weights), inputs, targets, squares, live)
    assert found is not None
    torch.testing.assert_close(found[0][live], loss[live].detach(), rtol=1e-12, atol=0.0)
    expected = flat(model, named)
    torch.testing.assert_close(found[1], expected, rtol=0.0, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.parametrize(("unit", "fields"), ALONE, ids=str)
def test_bits_depend_neither_on_company_nor_on_threads(unit: dict[str, Any], fields: dict[str, Any]) -> None:
    model = model_of(config_of(unit, **fields))
    data = (noise(BATCH, HORIZON, INPUTS), noise(BATCH, HORIZON, OUTPUTS, seed=5), noise(HORIZON, seed=6).square())
    weights, threads = flat(model, weights_of(model)), torch.get_num_threads()
    together = model.squared_gradient(weights, *data, torch.ones(MODELS, dtype=torch.bool))
    assert together is not None
    try:
        torch.set_num_threads(2)
        for order in ([1], [2, 0], [2, 1, 0]):
            found = model.squared_gradient(weights[order], *data, torch.ones(len(order), dtype=torch.bool))
            assert found is not None
            assert torch.equal(found[0], together[0][order])
            assert torch.equal(found[1], together[1][order])
    finally:
        torch.set_num_threads(threads)


SHARE = 0.3
DROPPED = [(unit, PLAIN) for unit in UNITS] + [(UNITS[1], PLAIN | {"mixing": mixing}) for mixing in MIXINGS[1:-1]]
DROPPED += NO_ENCODER[1:]


def in_step(model: StackedModel, step: int = 3) -> StackedModel:
    """The model in training, at a step, and not at the first sequence of a batch."""
    model.train()
    model.start_step([5, 8, 2], step)
    model.first_row = 4
    return model


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("batch", [BATCH, FEW])
@pytest.mark.parametrize(("unit", "fields"), DROPPED, ids=str)
def test_a_stack_with_dropout_has_torchs_outputs_gradients_and_loss(
    unit: dict[str, Any], fields: dict[str, Any], batch: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = in_step(model_of(config_of(unit, **fields, dropout=SHARE), dtype))
    inputs, targets = (noise(batch, HORIZON, size, seed=size).to(dtype) for size in (INPUTS, OUTPUTS))
    weights, squares = weights_of(model, dtype), noise(HORIZON, seed=6).square().to(dtype)
    live = torch.tensor([True, False, True])
    fused = model.squared_gradient(flat(model, weights), inputs, targets, squares, live)
    assert fused is not None
    found = []
    for way in ("compiled", "plain"):
        monkeypatch.setenv(KERNELS, way)
        outputs = model.outputs(weights, inputs)
        loss_N = (squares.unsqueeze(-1) * (outputs - targets).square()).sum((1, 2, 3))
        gradients = torch.autograd.grad(loss_N[live].sum(), list(weights.values()))
        found.append([outputs.detach(), loss_N.detach(), *gradients])
    for name, mine, theirs in zip(("outputs", "loss", *weights), *found, strict=True):
        assert relative(mine, theirs) <= CLOSE[dtype], name
    expected = flat(model, dict(zip(weights, found[1][2:], strict=True)))
    assert relative(fused[0][live], found[1][1][live]) <= CLOSE[dtype]
    assert relative(fused[1], expected) <= CLOSE[dtype]


def test_dropout_drops_other_features_at_each_step_and_none_in_evaluation() -> None:
    config, inputs = config_of(UNITS[1], dropout=SHARE), noise(BATCH, HORIZON, INPUTS)
    model = model_of(config)
    weights = weights_of(model)
    plain = model.outputs(weights, inputs)
    first, second = (in_step(model, step).outputs(weights, inputs) for step in (1, 2))
    assert not torch.equal(first, second)
    assert not torch.equal(first, plain)
    model.eval()
    whole = model_of(dataclasses.replace(config, dropout=0.0)).outputs(weights, inputs)
    assert torch.equal(model.outputs(weights, inputs), whole)
    assert torch.equal(plain, whole)


@pytest.mark.parametrize(("unit", "fields"), [(UNITS[1], PLAIN), NO_ENCODER[1]], ids=str)
def test_bits_of_dropout_depend_neither_on_company_nor_on_threads_nor_on_copies(
    unit: dict[str, Any], fields: dict[str, Any]
) -> None:
    model = model_of(config_of(unit, **fields, dropout=SHARE))
    data = (noise(BATCH, HORIZON, INPUTS), noise(BATCH, HORIZON, OUTPUTS, seed=5), noise(HORIZON, seed=6).square())
    weights, threads, seeds = flat(model, weights_of(model)), torch.get_num_threads(), [5, 8, 2]
    found = []
    try:
        for count, order in ((1, [0, 1, 2]), (2, [1]), (2, [2, 0])):
            torch.set_num_threads(count)
            model.train()
            model.start_step([seeds[row] for row in order], 3)
            found.append(model.squared_gradient(weights[order], *data, torch.ones(len(order), dtype=torch.bool)))
        model.start_step(seeds[1:2], 3)
        found.append(model.squared_gradient(weights[[1, 1]], *data, torch.ones(2, dtype=torch.bool)))
    finally:
        torch.set_num_threads(threads)
    together, *others = [[part.clone() for part in each] for each in found if each is not None]
    for order, other in zip(([1], [2, 0], [1, 1]), others, strict=True):
        assert all(torch.equal(mine, theirs[order]) for mine, theirs in zip(other, together, strict=True))


@pytest.mark.parametrize(
    ("unit", "fields"),
    [
        ({"name": "lstm"}, {"width": 7}),
        ({"name": "lru", "gamma": "exact"}, {}),
        ({"name": "rnn"}, {"dropout": 0.1}),
        ({"name": "rnn"}, {"norm": "batch"}),
        ({"name": "rnn"}, {"prenorm": False}),
        ({"name": "rnn"}, {"pooling": "mean"}),
        ({"name": "rnn"}, {"readout_width": 4}),
        ({"name": "rnn"}, {"width": LARGEST // HORIZON}),
    ],
    ids=str,
)
def test_other_stacks_are_torchs(unit: dict[str, Any], fields: dict[str, Any]) -> None:
    assert not knows(config_of(unit, **fields), HORIZON)


@pytest.mark.parametrize(
    ("kind", "unit", "fields"),
    [
        (CompiledStack, UNITS[0], PLAIN),
        (CompiledStackOfInputs, *NO_ENCODER[1]),
        (CompiledStackOfInputs, UNITS[0], PLAIN),
    ],
    ids=str,
)
def test_weights_of_another_size_are_refused(
    kind: type[CompiledStack], unit: dict[str, Any], fields: dict[str, Any]
) -> None:
    model = model_of(config_of(unit, **fields))
    kernel, weights = kind.load(torch.float64), flat(model, weights_of(model))
    assert kernel is not None
    with pytest.raises(ValueError, match="does not know"):
        kernel.outputs(model.config, OUTPUTS, weights[:, 1:].contiguous(), noise(2, HORIZON, INPUTS))
