"""torch's recurrent layers in a module of a user, computed by the compiled recurrences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from memsweep.config.load.study import study_of
from memsweep.models.base import Signature
from memsweep.models.module.anatomy import build_module
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.model import Module
from memsweep.models.module.torch_layers import compiled_layers, holds_torch_layers
from memsweep.recurrence.gated.kernel import CompiledGated
from memsweep.sweep.planning.fingerprint import code_closure

INPUTS, BATCH, STEPS = 3, 4, 7
NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs, width, kind="gru"):
        super().__init__()
        made = {"gru": nn.GRU, "rnn": nn.RNN, "own": Own, "slopes": nn.GRU}.get(kind, nn.LSTM)
        self.kind = kind
        self.rnn = made(inputs, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        states, last = self.rnn(x)
        if self.kind == "cells":
            states = states + 0.0 * last[1][0].unsqueeze(1)
        if self.kind == "cells_in_training" and self.training or self.kind == "cells_of_long" and x.shape[1] > 16:
            states = states + 0.0 * last[1].sum()
        if self.kind == "slopes" and states.requires_grad:
            (slope,) = torch.autograd.grad(states.sum(), self.rnn.weight_hh_l0, create_graph=True)
            states = states + 0.0 * slope.sum()
        return self.head(states)


class Own(nn.GRU):
    pass


class Stepped(Net):
    def step(self, x, state):
        states, after = self.rnn(x.unsqueeze(1), state)
        return self.head(states.squeeze(1)), after
"""

CLOSE = {torch.float64: (1e-9, 1e-12), torch.float32: (1e-4, 1e-5)}
"""Relative and absolute differences that are allowed: sums have another order."""
UNKNOWN = (("cells", False), ("cells_in_training", False), ("cells_of_long", False), ("slopes", False), ("own", False))
"""Those that read the last cell state, in all calls or in some; that differentiate twice; a class of a user's."""
STEPPED = (("Stepped gru", True), ("Stepped lstm", False))
"""With a step form, in which an LSTM's last cell state is handed on."""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleConfig]:
    (tmp_path / "torch_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(tmp_path))

    def of(kind: str) -> ModuleConfig:
        form, _, kind = kind.rpartition(" ")
        row = {"name": "module", "factory": f"torch_nets:{form or 'Net'}", "width": 5, "arguments": {"kind": kind}}
        return trial(tmp_path, row).model

    return of


def trial(folder: Path, model: dict[str, Any], dtype: str = "float64") -> Any:
    text = {"name": "small", "task": {"name": "linear_functional", "horizon": 8}, "model": model}
    return study_of({**text, "training": {"steps": 2, "dtype": dtype}}, (), folder, "", "a test").rows[0]


def is_compiled(layer: nn.Module) -> bool:
    return "forward" in vars(layer)


def results(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Outputs, last states, and the gradients of both by input and weights."""
    states, last = layer(x)
    hidden = last[0] if isinstance(last, tuple) else last
    loss = states.sin().sum() + hidden.square().sum()
    return [states.detach(), hidden.detach(), *torch.autograd.grad(loss, [x, *layer.parameters()])]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "make",
    [
        lambda **given: nn.GRU(INPUTS, 5, **given),
        lambda **given: nn.LSTM(INPUTS, 5, **given),
        lambda **given: nn.RNN(INPUTS, 5, **given),
        lambda **given: nn.RNN(INPUTS, 5, nonlinearity="relu", **given),
    ],
)
@pytest.mark.parametrize(
    "given", [{"batch_first": True}, {}, {"num_layers": 2, "batch_first": True}, {"bias": False, "num_layers": 2}]
)
def test_outputs_and_gradients_are_those_of_torch(
    make: Callable[..., nn.Module], given: dict[str, Any], dtype: torch.dtype
) -> None:
    if CompiledGated.load(dtype) is None:
        pytest.skip("nothing is compiled here")
    torch.manual_seed(0)
    layer = make(**given).to(dtype)
    x = torch.randn(BATCH, STEPS, INPUTS, dtype=dtype, requires_grad=True)
    compiled = compiled_layers(copy.deepcopy(layer))
    assert is_compiled(compiled)
    assert type(compiled) is type(layer)
    assert [*compiled.state_dict()] == [*layer.state_dict()]
    for found, wanted in zip(results(compiled, x), results(layer, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=CLOSE[dtype][0], atol=CLOSE[dtype][1])


def test_given_states_and_one_sequence_alone_are_left_to_torch() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(INPUTS, 5, batch_first=True)
    compiled = compiled_layers(copy.deepcopy(layer))
    x, before = torch.randn(BATCH, STEPS, INPUTS), tuple(torch.randn(2, 1, BATCH, 5).unbind())
    for given in ((x, before), (x[0],)):
        for found, wanted in zip(compiled(*given)[1], layer(*given)[1], strict=True):
            assert torch.equal(found, wanted)
    assert torch.equal(compiled(input=x, hx=before)[0], layer(x, before)[0])
    with torch.autocast("cpu", torch.bfloat16):
        try:
            wanted = layer(x)[0]
        except RuntimeError:  # not on every processor
            pytest.skip("torch has no LSTM of bfloat16 here")
        assert torch.equal(compiled(x, hx=None)[0], wanted)


@pytest.mark.parametrize(
    ("kind", "known"),
    [("gru", True), ("lstm", True), ("rnn", True), *UNKNOWN, *STEPPED],
)
def test_a_module_that_reads_what_the_recurrences_do_not_give_is_left_as_it_is(
    nets: Callable[[str], ModuleConfig], kind: str, known: bool
) -> None:
    assert holds_torch_layers(nets(kind), build_module) is known
    module = Module(nets(kind), Signature(1, 1, 8))
    assert is_compiled(cast(nn.Module, module.module.rnn)) is known


@pytest.mark.parametrize(
    "layer",
    [nn.GRU(3, 4, bidirectional=True), nn.LSTM(3, 4, proj_size=2), nn.GRU(3, 4, 2, dropout=0.1), nn.GRUCell(3, 4)],
)
def test_layers_that_the_recurrences_do_not_know_stay_torchs(layer: nn.Module) -> None:
    assert not is_compiled(compiled_layers(copy.deepcopy(layer)))


def test_a_gradient_of_a_gradient_and_an_unknown_cell_state_are_refused_with_the_way_out() -> None:
    layer, x = compiled_layers(nn.LSTM(3, 4, batch_first=True)), torch.randn(2, 5, 3, requires_grad=True)
    if CompiledGated.load(torch.float32) is None:
        pytest.skip("nothing is compiled here")
    states, (_, cells) = layer(x)
    states.mul_(2.0)  # as torch's may be
    with pytest.raises(RuntimeError, match=r"last cell state in some calls.* Make its layer of a class of yours"):
        cells[0]
    for wanted in (x, *layer.parameters()):
        with pytest.raises(RuntimeError, match="differentiates a recurrent layer twice"):
            torch.autograd.grad(states.sum(), wanted, create_graph=True, retain_graph=True)


def test_replicas_have_the_bits_of_each_alone(nets: Callable[[str], ModuleConfig]) -> None:
    config, signature = nets("gru"), Signature(1, 1, 8)
    module = Module(config, signature)
    every = [Module.initial(config, signature, np.random.default_rng(seed)) for seed in range(3)]
    weights = {name: torch.stack([torch.from_numpy(each[name]) for each in every]) for name in every[0]}
    x = torch.randn(4, 8, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = module.outputs(weights, x)
    for place in range(3):
        alone = module.outputs({name: value[place : place + 1] for name, value in weights.items()}, x)
        assert torch.equal(alone[0], together[place])


def test_the_code_counts_for_the_trials_that_run_it(nets: Callable[[str], ModuleConfig], tmp_path: Path) -> None:
    if CompiledGated.load(torch.float64) is None:
        pytest.skip("nothing is compiled here")
    own = "memsweep.models.module.torch_layers"
    for kind, runs in (("gru", True), ("cells", False)):
        made = {"name": "module", "factory": "torch_nets:Net", "arguments": {"kind": kind}}
        model = made | {"width": 5}
        stack = {"name": "residual_stack", "width": 5, "features": 5, "unit": made}
        assert ((own, "compiled_layers") in code_closure(trial(tmp_path, stack))) is runs
        names = code_closure(trial(tmp_path, model))
        assert ((own, "compiled_layers") in names) is runs
        assert any(module == "memsweep.recurrence.gated.gru" for module, _ in names) is runs
    single = code_closure(trial(tmp_path, model | {"arguments": {"kind": "lstm"}}, "float32"))
    assert ("memsweep.recurrence.gated.onednn", "wide_states") in single  # a layer in it may be wide
