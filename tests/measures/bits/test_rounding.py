"""Rounding against torch's own formats, against the laws of a single mode, and against the plain models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import model_config, stacked, task_config, trial
from memsweep import registry
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.measures.bits.kinds import (
    DRAWS,
    FEEDBACK,
    FIXED,
    FORMATS,
    NEAREST,
    ROUNDINGS,
    STOCHASTIC,
    Rounding,
)
from memsweep.measures.bits.numbers import as_format, significant
from memsweep.measures.bits.rounded import rounded_states_error, rounded_weights_error
from memsweep.measures.bits.states import Largest, Rounded
from memsweep.models.base import Signature
from memsweep.recurrence.layer import Layer
from memsweep.recurrence.layer_outputs import plain_outputs
from memsweep.stability.fixed_point import fixed
from memsweep.stability.states import layer_outputs
from memsweep.streams import TEST, Stream
from memsweep.sweep.planning.fingerprint import code_closure

VALUES = torch.from_numpy(np.random.default_rng(0).standard_normal(4000))


def rounded_outputs(layer: Layer, inputs: Tensor, bits: Tensor, rounding: Rounding) -> Tensor:
    """``[N, K, B, T, O]``, with the sizes of the states on the same sequences."""
    seen = Largest()
    layer_outputs(layer, inputs, seen, 1)
    return layer_outputs(layer, inputs, Rounded(rounding, bits, seen.sizes, np.random.default_rng(3)), len(bits))


def one_mode(rate: float) -> Layer:
    """h_t = rate h_{t-1} + x_t, y = h."""
    ones = {name: torch.ones(1, 1, 1, dtype=torch.float64) for name in ("encoder", "readout")}
    zeros = {name: torch.zeros(1, 1, dtype=torch.float64) for name in ("bias", "offset")}
    return Layer(matrix=torch.full((1, 1), rate, dtype=torch.float64), **ones, **zeros)


TORCHS = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_torchs_their_subnormal_numbers_and_their_ends_too(name: str) -> None:
    """Over all powers of two that the format has, and some beyond."""
    dtype, each = TORCHS[name], FORMATS[name]
    assert each.largest == torch.finfo(dtype).max
    low, high = each.exponent - each.significant - 2, math.log2(each.largest)
    sizes = torch.exp2(torch.linspace(low, high, len(VALUES), dtype=torch.float64)).clamp(max=each.largest)
    values = (VALUES.sign() * sizes).float()
    few = as_format(values, each.significant, values.abs().max())  # no scale, or 1
    assert torch.equal(few, values.to(dtype).float())
    assert (few[:20] == 0).any()
    assert (few.abs() < 2.0**each.exponent).sum() > 50
    normal = values.abs() >= 2.0**each.exponent
    assert torch.equal(significant(values[normal], each.significant), few[normal])


def test_a_number_beyond_float16_is_infinite_and_one_of_float8_has_a_scale() -> None:
    values = torch.tensor([1.0, 1e6])
    assert as_format(values, FORMATS["float16"].significant, values.max()).tolist() == [1.0, math.inf]
    assert as_format(values, FORMATS["float8_e4m3"].significant, values.max()).tolist()[1] == 1e6
    assert as_format(values, FORMATS["float8_e4m3"].significant, values.max()).tolist()[0] == 0.0  # below the range
    beyond = as_format(-3 * values, FORMATS["float8_e4m3"].significant, values.max())
    assert beyond.tolist()[1] == -1e6  # the largest there is
    assert torch.equal(as_format(values, 5, values.max()), values)


def test_eight_bits_are_torchs_symmetric_int8() -> None:
    """Bit for bit, ties to even among them; by a scale that is a power of two, whose inverse torch has exactly."""
    numbers = torch.arange(-300, 301, dtype=torch.float32) / 2  # ties, and values beyond both ends
    random = VALUES.float()
    for values, largest in ((numbers / 1024, torch.tensor(127 / 1024)), (random, random.abs().max())):
        scale = float(largest / 127)
        few = fixed(values, 8, largest)
        assert torch.equal(few, torch.fake_quantize_per_tensor_affine(values, scale, 0, -127, 127))
        assert few.unique().numel() <= 2**8 - 1


@pytest.mark.parametrize("bits", [2, 3, 8, 24])
def test_integers_of_some_bits_have_one_value_less_than_the_bits_store(bits: int) -> None:
    last = 2 ** (bits - 1) - 1
    every = torch.arange(-last - 1, last + 2, max(1, last // 500), dtype=torch.float64)
    few = fixed(3.0 * every, bits, torch.tensor(3.0 * last, dtype=torch.float64))
    assert torch.equal(few, 3.0 * every.clamp(-last, last))
    if bits < 24:
        fine = torch.linspace(-1, 1, 100_001, dtype=torch.float64)
        assert fixed(fine, bits, torch.tensor(1.0, dtype=torch.float64)).unique().numel() == 2**bits - 1
    rounding = ROUNDINGS["fixed_states"]
    assert rounding.bits_at(rounding.radius_of(bits)) == pytest.approx(bits, abs=1e-12)


@pytest.mark.parametrize("bits", [2, 5, 11])
def test_a_rounding_moves_a_number_by_no_more_than_its_radius(bits: int) -> None:
    largest = VALUES.abs().max()
    steps = fixed(VALUES, bits, largest) / (largest / (2 ** (bits - 1) - 1))
    assert torch.allclose(steps, steps.round(), atol=1e-9)
    moved = (fixed(VALUES, bits, largest) - VALUES).abs().max() / largest
    radius = ROUNDINGS["fixed_weights"].radius_of(bits)
    assert 0.95 * radius < moved <= radius * (1 + 1e-12)  # half a step, of 2^bits - 2 steps over 2 * largest
    assert (significant(VALUES, bits) / VALUES - 1).abs().max() <= ROUNDINGS["float_weights"].radius_of(bits)
    assert torch.equal(fixed(torch.zeros(3), bits, torch.tensor(0.0)), torch.zeros(3))
    assert fixed(2 * VALUES, bits, largest).abs().max() == largest  # beyond the grid, its ends


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_the_mean_of_stochastic_roundings_is_the_number(bits: int) -> None:
    values, largest = VALUES[:50], VALUES[:50].abs().max()
    draws = torch.from_numpy(np.random.default_rng(1).random((20_000, 50)))
    few = fixed(values.expand_as(draws), bits, largest, draws)
    step = largest / (2 ** (bits - 1) - 1)
    assert (few - values).abs().max() <= step
    # a share p of the draws goes up, whose variance p (1 - p) is at most 1/4
    assert ((few.mean(0) - values).abs() <= 5 * step / math.sqrt(4 * len(draws))).all()


def bits_of_a_mode(scale: int, how: str) -> int:
    """The least bits that keep the impulse response of a mode of this time scale within 0.05, there and with more."""
    horizon, rate = 10 * scale, math.exp(-1.0 / scale)
    impulse = torch.zeros(1, horizon, 1, dtype=torch.float64)
    impulse[0, 0] = 1.0
    layer, bits = one_mode(rate), torch.arange(20, 1, -1, dtype=torch.float64)
    answers = rounded_outputs(layer, impulse, bits, Rounding(FIXED, how=how))[0, :, 0, :, 0]
    wrong = (answers - rate ** torch.arange(horizon, dtype=torch.float64)).abs().amax(1)
    return int(bits[int((wrong <= 0.05).int().cumprod(0).sum()) - 1])


@pytest.mark.parametrize(
    ("scale", "nearest"), [(8, 8), (32, 10), (128, 12), pytest.param(512, 14, marks=pytest.mark.more)]
)
def test_a_state_rounded_to_nearest_needs_a_bit_for_each_doubling_of_its_time_scale(scale: int, nearest: int) -> None:
    """Decay ends in the dead band, where a step is smaller than half a cell; with error feedback it goes on."""
    assert bits_of_a_mode(scale, NEAREST) == nearest
    assert bits_of_a_mode(scale, FEEDBACK) == 5


def test_bfloat16_keeps_a_slow_mode_that_is_stored_as_a_rate_and_not_one_that_is_stored_as_itself() -> None:
    bits = FORMATS["bfloat16"].significant
    directly = torch.tensor([math.exp(-1 / 256), math.exp(-1 / 512)], dtype=torch.float64)
    assert significant(directly, bits)[0] < 1.0
    assert significant(directly, bits)[1] == 1.0  # it never forgets
    weight = torch.tensor([math.log(1 / 65_536)], dtype=torch.float64)  # of the eigenvalue exp(-exp(weight))
    assert abs(float(torch.exp(significant(weight, bits) - weight)) - 1.0) < 0.03


def test_states_that_are_not_rounded_are_those_of_the_layer() -> None:
    draws = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 6, 6))) / 4
    layer = Layer(
        encoder=draws[:, :, :2].contiguous(),
        bias=draws[:, :, 2],
        matrix=draws,
        readout=draws[:, :3].contiguous(),
        offset=draws[:, 0, :3].contiguous(),
        activation="tanh",
        leak=1.0,
        gain=0.1,
    )
    inputs = torch.from_numpy(np.random.default_rng(2).standard_normal((5, 9, 2)))
    none = torch.tensor([math.inf], dtype=torch.float64)
    for rounding in ROUNDINGS.values():
        answers = rounded_outputs(layer, inputs, none, rounding)
        assert torch.allclose(answers[:, 0], plain_outputs(layer, inputs), atol=1e-12)


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_the_error_of_rounded_states_begins_at_that_of_the_model(activation: str) -> None:
    """In closed form on the same sequences, and by the kernels of a sampled loss."""
    task = task_config(horizon=20, kernel="polynomial")
    (ensemble,), task_loss = stacked([model_config("exp", width=3, activation=activation)], task=task)
    if activation == "tanh":
        task_loss = SampledLoss(registry.get(registry.TASK, task.name)(task), torch.float64)
    stream, targets = Stream(0, TEST), ensemble.spread([task_loss.target(r.trial) for r in ensemble.replicas])
    batch = task_loss.draw(stream, 0, 16)
    own = task_loss.loss(ensemble.model, ensemble.layout.named(ensemble.initial), task_loss.prepare(batch), targets)
    errors = rounded_states_error(
        ensemble,
        task_loss,
        batch,
        ensemble.initial,
        targets,
        ROUNDINGS["fixed_states"],
        [5, 20],
        np.random.default_rng(0),
    )
    assert torch.allclose(errors[:1, 0], own[:1].double(), rtol=1e-9)
    assert torch.allclose(errors[:1, 1], own[:1].double(), rtol=1e-4)
    assert errors[0, 2] > 1.001 * errors[0, 0]


def test_the_error_of_rounded_weights_is_that_of_a_model_with_these_weights() -> None:
    (ensemble,), task_loss = stacked([model_config("exp", width=3), model_config("direct", width=5)])
    data, targets = task_loss.population(), ensemble.spread([task_loss.target(r.trial) for r in ensemble.replicas])
    bits = [3, 6]
    for name in ("fixed_recurrent", "float_weights"):
        rounding = ROUNDINGS[name]
        errors = rounded_weights_error(ensemble, task_loss, data, ensemble.initial, targets, rounding, bits, 0)
        assert errors.shape[1] == len(rounding.radii_of(bits))
        for row in range(2):
            state = ensemble.weights_of(ensemble.initial, row)  # without padding: no padding decides a scale
            for place, count in ((1, 6), (2, 3)):
                moved = {
                    key: (
                        fixed(value, count, value.abs().max())
                        if rounding.number == FIXED
                        else significant(value, count)
                    )
                    if name == "float_weights" or key == "recurrent_weight"
                    else value
                    for key, value in state.items()
                }
                flat = ensemble.initial.clone()
                flat[row] = ensemble.with_weights(flat[row], row, moved)
                alone = task_loss.loss(ensemble.model, ensemble.layout.named(flat), data, targets)[row]
                assert errors[row, place] == pytest.approx(
                    float(torch.maximum(alone, errors[row, place - 1])), rel=1e-9
                )


def test_the_error_in_a_format_is_that_of_weights_which_torch_casts() -> None:
    """Each by itself: no format stands for another one, as more bits do for fewer."""
    (ensemble,), task_loss = stacked([model_config("exp", width=3)])
    data, targets = task_loss.population(), ensemble.spread([task_loss.target(0)])
    rounding = ROUNDINGS["formats_recurrent"]
    bits = rounding.bits_of([3, 6])
    state, trained = ensemble.weights_of(ensemble.initial, 0), ensemble.initial.clone()
    weight = torch.tensor([-4.1, 1e-6, 7.01], dtype=torch.float64)
    trained[0] = ensemble.with_weights(trained[0], 0, state | {"recurrent_weight": weight})
    errors = rounded_weights_error(ensemble, task_loss, data, trained, targets, rounding, bits, 0)
    assert errors.shape[1] == 1 + len(TORCHS)
    for place, name in enumerate(FORMATS, start=1):
        scale = weight.abs().max() / torch.finfo(TORCHS[name]).max if FORMATS[name].scaled else 1.0
        cast, moved = (weight / scale).to(TORCHS[name]).double() * scale, trained.clone()
        moved[0] = ensemble.with_weights(trained[0], 0, state | {"recurrent_weight": cast})
        alone = task_loss.loss(ensemble.model, ensemble.layout.named(moved), data, targets)[0]
        assert errors[0, place] == pytest.approx(float(alone), rel=1e-9)


def test_a_channel_has_a_scale_of_its_own() -> None:
    """Two modes of very different sizes: one scale loses the small one, two do not."""
    layer = one_mode(0.5)
    pair = {name: torch.cat([getattr(layer, name)] * 2, 1) for name in ("encoder", "bias", "matrix")}
    pair["encoder"] = pair["encoder"] * torch.tensor([1.0, 1e-3]).double().view(1, 2, 1)
    wide = Layer(**pair, readout=torch.tensor([[[0.0, 1.0]]]).double(), offset=layer.offset)
    inputs = torch.from_numpy(np.random.default_rng(2).standard_normal((4, 30, 1)))
    bits = torch.tensor([math.inf, 6.0], dtype=torch.float64)
    shared, own = (
        rounded_outputs(wide, inputs, bits, ROUNDINGS[name])[0] for name in ("fixed_states", "channel_states")
    )
    assert shared[1].abs().max() == 0.0
    assert 0 < (own[1] - own[0]).square().mean() < 0.01 * own[0].square().mean()


def test_a_row_of_a_weight_matrix_has_a_scale_of_its_own() -> None:
    config = registry.get(registry.MODEL, "vanilla_rnn").Config(width=4, activation="linear")
    task = task_config(horizon=10, kernel="exponential")
    model_class = registry.get(registry.MODEL, "vanilla_rnn")
    (ensemble,) = build(model_class, [Replica(0, config, 0, 0.01)], Signature(1, 1, 10), torch.float64, None)
    task_loss = task_loss_for([registry.get(registry.TASK, task.name)(task)], True, torch.float64)
    targets = ensemble.spread([task_loss.target(0)])
    state = ensemble.weights_of(ensemble.initial, 0)
    data = task_loss.population()
    errors = rounded_weights_error(
        ensemble, task_loss, data, ensemble.initial, targets, ROUNDINGS["channel_recurrent"], [5, 4], 0
    )
    matrix = state["weight_hh_l0"]
    assert matrix.ndim == 2
    moved = state | {"weight_hh_l0": fixed(matrix, 5, matrix.abs().amax(1, keepdim=True))}
    flat = ensemble.with_weights(ensemble.initial[0], 0, moved)[None]
    alone = task_loss.loss(ensemble.model, ensemble.layout.named(flat), data, targets)[0]
    assert errors[0, 1] == pytest.approx(max(float(alone), float(errors[0, 0])), rel=1e-9)


def test_draws_are_of_a_replica_and_its_seed_alone() -> None:
    """The same alone and beside others; another seed has other draws; the error is the mean over them."""
    models = [model_config("exp", width=3), model_config("exp", width=3)]
    (ensemble,), task_loss = stacked(models, seeds=[0, 7])
    (alone,), _ = stacked(models[1:], seeds=[7])
    rounding, data = ROUNDINGS["stochastic_weights"], task_loss.population()

    def errors(of: Ensemble, seed: int) -> Tensor:
        targets = of.spread([task_loss.target(0) for _ in of.replicas])
        same = ensemble.initial[1].expand_as(of.initial).clone()
        return rounded_weights_error(of, task_loss, data, same, targets, rounding, [4], seed)

    both = errors(ensemble, 0)
    assert torch.equal(both[1], errors(alone, 0)[0])
    assert both[0, 1] != both[1, 1]
    assert errors(alone, 1)[0, 1] != both[1, 1]
    state, losses = ensemble.weights_of(ensemble.initial, 1), []
    exists = ensemble.layout.named(ensemble.exists[1])
    for draw in range(DRAWS):
        uniform = torch.from_numpy(
            Stream(0, "rounding of weights").generator(7 * DRAWS + draw).random(ensemble.layout.size)
        )
        own = ensemble.layout.named(uniform)
        moved = {
            name: fixed(value, 4, value.abs().max(), own[name][exists[name]].view(value.shape))
            for name, value in state.items()
        }
        flat = ensemble.initial.clone()
        flat[1] = ensemble.with_weights(flat[1], 1, moved)
        targets = ensemble.spread([task_loss.target(0)] * 2)
        losses.append(task_loss.loss(ensemble.model, ensemble.layout.named(flat), data, targets)[1])
    assert both[1, 1] == pytest.approx(max(float(torch.stack(losses).mean()), float(both[1, 0])), rel=1e-9)


@pytest.mark.parametrize("scale", [8, 64])
def test_stochastic_rounding_of_states_has_no_dead_band(scale: int) -> None:
    """The mean over draws forgets as the mode does, with bits of which rounding to nearest ends the decay early."""
    rate, horizon, draws = math.exp(-1.0 / scale), 6 * scale, 4000
    impulses = torch.zeros(draws, horizon, 1, dtype=torch.float64)
    impulses[:, 0] = 1.0
    layer, bits = one_mode(rate), torch.tensor([5.0], dtype=torch.float64)
    exact = rate ** torch.arange(horizon, dtype=torch.float64)
    by_chance, nearest = (
        rounded_outputs(layer, impulses, bits, Rounding(FIXED, how=how))[0, 0, :, :, 0].mean(0)
        for how in (STOCHASTIC, NEAREST)
    )
    assert (by_chance - exact).abs().max() < 0.02
    assert (nearest - exact).abs().max() > 0.15


@pytest.mark.parametrize("scale", [24, pytest.param(100, marks=pytest.mark.more)])
def test_under_noise_a_mode_adds_up_its_rounding_errors(scale: int) -> None:
    """With steps of size D: D^2 / 12 a step to nearest and D^2 / 6 by chance, which the mode adds up over
    1 / (1 - rate^2) steps; with feedback their differences alone, D^2 / 12 times 2 / (1 + rate) in all."""
    rate, count = math.exp(-1.0 / scale), 9
    inputs = torch.from_numpy(np.random.default_rng(4).standard_normal((200, 8 * scale, 1)))
    layer, bits = one_mode(rate), torch.tensor([math.inf, count], dtype=torch.float64)
    seen = Largest()
    layer_outputs(layer, inputs, seen, 1)
    cell = float(seen.sizes["states"] / (2 ** (count - 1) - 1))
    expected = {
        NEAREST: cell**2 / 12 / (1 - rate**2),
        STOCHASTIC: cell**2 / 6 / (1 - rate**2),
        FEEDBACK: cell**2 / 12 * 2 / (1 + rate),
    }
    for how, variance in expected.items():
        exact, few = rounded_outputs(layer, inputs, bits, Rounding(FIXED, how=how))[0, :, :, 4 * scale :]
        assert float((few - exact).square().mean()) == pytest.approx(variance, rel=0.1), how


def test_roundings_are_in_the_identity_of_the_trials_that_round_alone() -> None:
    plain, rounding = trial(), trial(perturbation={"roundings": tuple(ROUNDINGS)})
    room = "memsweep.measures.bits."
    assert not {module for module, _ in code_closure(plain) if module.startswith(room)}
    files = ("certificate", "curves", "kinds", "numbers", "rounded", "states")
    assert {module for module, _ in code_closure(rounding)} >= {room + name for name in files}
    assert code_closure(rounding, training=True) == code_closure(plain, training=True)
