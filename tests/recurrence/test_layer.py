"""The layer's implementations against the loop over time, and what a model may not know of the others."""

from __future__ import annotations

import itertools
import logging
import os
import stat
import subprocess
import sys

import pytest
import torch

from engine import trial
from memsweep.errors import MemsweepError
from memsweep.recurrence.compiled import build, compiler, library
from memsweep.recurrence.layer import Layer
from memsweep.recurrence.layer_outputs import CompiledLayer, implementation, layer_outputs, plain_outputs, squared_loss
from memsweep.sweep.planning.identity import identity

KINDS = [
    *(
        ("linear", output, leak, gain)
        for output in ("linear", "hardtanh", "tanh", "relu")
        for leak, gain in [(0.0, 1.0)]
    ),
    ("linear", "linear", 1.0, 0.3),
    ("linear", "tanh", 1.0, 0.3),
    *(
        (activation, "linear", leak, gain)
        for activation in ("hardtanh", "tanh", "relu")
        for leak, gain in [(0.0, 1.0), (1.0, 1.0), (1.0, 0.3)]
    ),
]
SHAPES = [(3, 6, 1, 1, 21, 9), (2, 13, 3, 2, 37, 70), (1, 1, 1, 1, 1, 1), (2, 8, 1, 2, 16, 33)]  # N M I O B T


@pytest.fixture(autouse=True)
def one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about the compiled code: without a compiler they fail, and do not pass by testing torch."""
    monkeypatch.setenv(library.KERNELS, "compiled")


def looped(layer: Layer, inputs: torch.Tensor) -> torch.Tensor:
    """The outputs by torch's loop over time."""
    before = os.environ[library.KERNELS]
    os.environ[library.KERNELS] = "plain"
    try:
        return plain_outputs(layer, inputs)
    finally:
        os.environ[library.KERNELS] = before


def rand(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def layer_of(shape, kind, dense, dtype=torch.float64, seed=1):
    models, width, inputs, outputs, _, _ = shape
    activation, output, leak, gain = kind
    matrix = (
        0.4 * rand(models, width, width, seed=seed, dtype=dtype) / width**0.5
        if dense
        else 0.6 * torch.tanh(rand(models, width, seed=seed, dtype=dtype))
    )
    if leak:
        matrix = matrix - (0.8 * torch.eye(width, dtype=dtype) if dense else 0.8)
    return Layer(
        encoder=rand(models, width, inputs, seed=seed + 1, dtype=dtype),
        bias=0.3 * rand(models, width, seed=seed + 2, dtype=dtype),
        matrix=matrix,
        readout=rand(models, outputs, width, seed=seed + 3, dtype=dtype) / width**0.5,
        offset=rand(models, outputs, seed=seed + 4, dtype=dtype),
        activation=activation,
        output=output,
        leak=leak,
        gain=gain,
    )


def data_of(shape, dtype=torch.float64):
    _, _, inputs, outputs, batch, horizon = shape
    return (
        rand(batch, horizon, inputs, seed=11, dtype=dtype),
        rand(batch, horizon, outputs, seed=12, dtype=dtype),
        rand(horizon, seed=13, dtype=dtype).abs(),
    )


def value_and_gradients(function, layer):
    weights = [tensor.clone().requires_grad_() for tensor in layer.tensors().values()]
    value = function(layer.with_tensors(*weights))
    outer = rand(*value.shape, seed=9, dtype=value.dtype)
    return value.detach(), *torch.autograd.grad(value, weights, outer)


def assert_close(found, expected, rel=1e-12):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rel, atol=rel * max(1e-300, float(other.abs().max())))


@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_outputs_loss_and_gradients_are_those_of_the_loop(kind, dense):
    for shape in SHAPES:
        layer = layer_of(shape, kind, dense)
        x, target, weight = data_of(shape)
        assert isinstance(implementation(layer.folded(), x), CompiledLayer)
        expected = value_and_gradients(lambda some, x=x: looped(some, x), layer)
        assert_close(value_and_gradients(lambda some, x=x: layer_outputs(some, x), layer), expected)

        def judged(some, x=x, target=target, weight=weight):
            return (weight[:, None] * (looped(some, x) - target).square()).sum((1, 2, 3))

        found = value_and_gradients(lambda some, data=(x, target, weight): squared_loss(some, *data), layer)
        assert_close(found, value_and_gradients(judged, layer), rel=1e-11)


@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
@pytest.mark.parametrize("activation", ["linear", "hardtanh", "tanh"])
def test_float32_is_float64_but_for_rounding(activation, dense):
    shape, kind = (2, 9, 2, 1, 40, 50), (activation, "linear", 1.0, 1.0)
    exact = value_and_gradients(lambda some: squared_loss(some, *data_of(shape)), layer_of(shape, kind, dense))
    rough = layer_of(shape, kind, dense)
    rough = rough.with_tensors(*(tensor.float() for tensor in rough.tensors().values()))
    data = [tensor.float() for tensor in data_of(shape)]
    found = value_and_gradients(lambda some: squared_loss(some, *data), rough)
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).abs().max() / other.abs().max()) < 3e-5


def test_tanh_is_within_some_units_of_the_last_place():
    """Through a layer of one unit that shows tanh of its input; from denormal numbers to far beyond saturation."""
    x = torch.cat([torch.logspace(-310, 2, 20_000, dtype=torch.float64), torch.linspace(0, 3, 20_000).double()])
    x = torch.cat([x, -x, torch.tensor([0.0, math_inf, -math_inf])])
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    layer = Layer(one, 0 * one[0], 0 * one[0], one, 0 * one[0], activation="tanh")
    found = layer_outputs(layer, x.view(1, -1, 1).clone().transpose(0, 1).contiguous()).flatten()
    right = torch.tanh(x)
    units = (found - right).abs() / torch.finfo(torch.float64).eps / right.abs().clamp(min=1e-300)
    assert float(units.max()) <= 4.0
    assert torch.equal(found[-2:], torch.tensor([1.0, -1.0], dtype=torch.float64))


math_inf = float("inf")


@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
@pytest.mark.parametrize("activation", ["linear", "hardtanh", "tanh", "relu"])
def test_a_number_that_is_none_is_not_lost_and_does_not_spread(activation, dense):
    shape = (3, 5, 1, 1, 20, 12)
    layer = layer_of(shape, (activation, "linear", 1.0, 1.0), dense)
    bias = layer.bias.clone()
    bias[1, 2] = torch.nan
    x, target, weight = data_of(shape)
    whole = value_and_gradients(lambda some: squared_loss(some, x, target, weight), layer)
    broken = value_and_gradients(
        lambda some: squared_loss(some, x, target, weight),
        layer.with_tensors(layer.encoder, bias, layer.matrix, layer.readout, layer.offset),
    )
    assert not torch.isfinite(broken[0][1])
    for one, other in zip(broken, whole, strict=True):
        assert torch.equal(one[[0, 2]], other[[0, 2]])


@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "dense"])
def test_a_models_bits_do_not_depend_on_company_order_or_threads(dense):
    shape = (7, 13, 2, 2, 45, 30)
    layer = layer_of(shape, ("tanh", "linear", 1.0, 1.0), dense)
    data = data_of(shape)
    together = value_and_gradients(lambda some: squared_loss(some, *data), layer)
    outer = rand(7, seed=9)

    def alone(row):
        only = layer.with_tensors(*(tensor[row : row + 1] for tensor in layer.tensors().values()))
        weights = [tensor.clone().requires_grad_() for tensor in only.tensors().values()]
        loss = squared_loss(only.with_tensors(*weights), *data)
        return loss.detach(), *torch.autograd.grad(loss, weights, outer[row : row + 1])

    for row in range(7):
        for one, other in zip(alone(row), together, strict=True):
            assert torch.equal(one[0], other[row])
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for one, other in zip(value_and_gradients(lambda s: squared_loss(s, *data), layer), together, strict=True):
            assert torch.equal(one, other)
    finally:
        torch.set_num_threads(before)


def test_models_that_are_not_live_are_passed_over():
    shape = (5, 6, 1, 1, 20, 15)
    layer, data = layer_of(shape, ("tanh", "linear", 1.0, 1.0), True), data_of(shape)
    live = torch.tensor([True, False, True, False, False])
    found = value_and_gradients(lambda some: squared_loss(some, *data, live), layer)
    whole = value_and_gradients(lambda some: squared_loss(some, *data), layer)
    for one, other in zip(found, whole, strict=True):
        assert torch.equal(one[live], other[live])
        assert torch.count_nonzero(one[~live]) == 0
    assert torch.equal(layer_outputs(layer, data[0], live)[live], layer_outputs(layer, data[0])[live])


def test_what_the_compiled_code_cannot_do_runs_as_a_loop():
    shape = (2, 4, 1, 1, 5, 6)
    x, target, weight = data_of(shape)
    odd = layer_of(shape, ("tanh", "linear", 0.5, 1.0), False)
    assert squared_loss(odd, x, target, weight) is None
    assert torch.equal(layer_outputs(odd, x), looped(odd, x))
    asked = x.clone().requires_grad_()
    plain = layer_of(shape, ("tanh", "linear", 1.0, 1.0), False)
    (gradient,) = torch.autograd.grad(layer_outputs(plain, asked).sum(), asked)
    assert torch.count_nonzero(gradient) > 0


class TestBuild:
    @pytest.fixture(autouse=True)
    def fresh(self, monkeypatch, tmp_path):
        """An empty cache, and a process that has loaded nothing yet."""
        monkeypatch.setenv(build.CACHE, str(tmp_path / "cache"))
        library.load.cache_clear()
        library.warn_once.cache_clear()
        yield
        library.load.cache_clear()
        library.warn_once.cache_clear()

    def test_without_a_compiler_the_loop_runs_and_a_line_says_so(self, monkeypatch, caplog):
        monkeypatch.setenv("CXX", "no-such-compiler")
        monkeypatch.setenv(library.KERNELS, "auto")
        shape = (2, 4, 1, 1, 5, 6)
        layer, data = layer_of(shape, ("tanh", "linear", 1.0, 1.0), False), data_of(shape)
        with caplog.at_level(logging.WARNING, "memsweep"):
            assert squared_loss(layer, *data) is None
            assert torch.equal(layer_outputs(layer, data[0]), looped(layer, data[0]))
        assert len(caplog.records) == 1
        assert "no C++ compiler was found (looked for no-such-compiler)" in caplog.text
        monkeypatch.setenv(library.KERNELS, "compiled")
        with pytest.raises(MemsweepError, match="apt-get install"):
            squared_loss(layer, *data)

    def test_a_compiler_that_fails_is_quoted(self, monkeypatch, tmp_path):
        broken = tmp_path / "broken"
        broken.write_text("#!/bin/sh\necho 'error: out of order' >&2\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setenv("CXX", str(broken))
        with pytest.raises(compiler.CannotBuildError, match=r"could not compile .*error: out of order"):
            build.library_path("double")

    def test_an_unknown_wish_is_refused(self, monkeypatch):
        monkeypatch.setenv(library.KERNELS, "fast")
        with pytest.raises(MemsweepError, match="'fast'; allowed: auto, compiled, plain"):
            library.library(torch.float64)

    def test_a_folder_that_others_may_write_to_is_not_executed(self, tmp_path):
        folder = tmp_path / "cache"
        folder.mkdir()
        folder.chmod(0o777)
        with pytest.raises(compiler.CannotBuildError, match="yours alone"):
            build.library_path("double")

    @pytest.mark.more
    def test_processes_that_start_together_compile_once(self, tmp_path, monkeypatch):
        counted = tmp_path / "counted"
        note = f"*) echo run >> {tmp_path}/runs; sleep 1"  # which code comes out is nothing to this test: -O0
        counted.write_text(f'#!/bin/sh\ncase "$*" in *--version*) ;; {note};; esac\nexec c++ "$@" -O0\n')
        counted.chmod(0o755)
        command = [
            sys.executable,
            "-c",
            "from memsweep.recurrence.compiled.build import library_path as p; p('double')",
        ]
        environment = os.environ | {"CXX": str(counted), "PYTHONPATH": os.pathsep.join(sys.path)}
        for process in [subprocess.Popen(command, env=environment) for _ in range(3)]:
            assert process.wait(timeout=300) == 0
        assert (tmp_path / "runs").read_text().splitlines() == ["run"]
        cached = [path for path in (tmp_path / "cache").iterdir() if path.suffix == ".so"]
        assert len(cached) == 1
        assert not stat.S_IMODE((tmp_path / "cache").stat().st_mode) & (stat.S_IWGRP | stat.S_IWOTH)


def test_every_pair_of_activations_is_computed_or_refused():
    for sigma, tau in itertools.product(("linear", "hardtanh", "tanh", "relu"), repeat=2):
        shape = (1, 3, 1, 1, 4, 5)
        layer, data = layer_of(shape, (sigma, tau, 1.0, 0.5), True), data_of(shape)
        assert (squared_loss(layer, *data) is None) == (sigma != "linear" and tau != "linear")
        assert_close([layer_outputs(layer, data[0])], [looped(layer, data[0])])


def test_the_identity_tells_which_code_computes_a_recurrence(monkeypatch):
    """Last bits depend on it; those of a linear model, too, whose loss in closed form a kernel computes."""
    trials = [trial(model={"activation": "tanh"}), trial()]
    compiled = [identity(each) for each in trials]
    monkeypatch.setenv(library.KERNELS, "plain")
    assert all(identity(each) != before for each, before in zip(trials, compiled, strict=True))
