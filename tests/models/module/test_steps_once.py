"""Searches of plain modules: steps are taken at once, and a model's own outputs are computed once, with equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from memsweep import registry
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.learning.loss import sampled
from memsweep.learning.memory import LiveBytes
from memsweep.models.base import Signature
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.model import Module
from memsweep.models.steps_once import StepsOnce
from memsweep.streams import TEST, Stream
from memsweep.trial import RunOptions, run_pack, train_replicas
from paths import ROOT

NETS = "tests/support/nets"
LOOPS: dict[str, dict[str, Any]] = {
    "min_gru": {"factory": f"{NETS}/min_gru.py:MinGRU", "arguments": {"layers": 2}},
    "selective_ssm": {"factory": f"{NETS}/selective_ssm.py:SelectiveSSM", "width_argument": "d_model"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "transformer": {"factory": f"{NETS}/transformer.py:Transformer"},
    "lstm": {"factory": f"{NETS}/torch_rnn.py:lstm"},
}
SIZES = Signature(inputs=1, outputs=1, horizon=12)


@pytest.fixture(autouse=True)
def at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memsweep.models.module.model._WORTH", 0)


def config_of(fields: dict[str, Any]) -> ModuleConfig:
    return trial_of(fields).model


def trial_of(fields: dict[str, Any], seeds: int = 1) -> Any:
    registry.discover(ROOT)
    return trial_from_dict(
        {
            "task": {"name": "linear_functional", "kernel": "exponential", "horizon": SIZES.horizon},
            "model": {"name": "module", "width": 4, **fields},
            "training": {"seeds": seeds, "steps": 4, "batch_size": 8, "validation_size": 16, "validate_every": 4},
            "perturbation": {
                "balls": ["recurrent", "all"],
                "radii": {"from": 0.05, "to": 1.0, "count": 4},
                **{"starts": 1, "ascent_steps": 3, "test_size": 80, "stronger_every": 0},
            },
        }
    )


def results(model: Module, sequences: int) -> list[Tensor]:
    """Outputs of two copies and their gradients."""
    made = [Module.initial(model.config, SIZES, np.random.default_rng(seed)) for seed in (0, 1)]
    weights = {name: torch.stack([torch.from_numpy(each[name]) for each in made]).requires_grad_() for name in made[0]}
    inputs = torch.randn(sequences, SIZES.horizon, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    outputs = model.outputs(weights, inputs)
    gradients = torch.autograd.grad(outputs.square().sum(), [*weights.values()], materialize_grads=True)
    return [outputs.detach(), *gradients]


def at_once(model: Module, *, by_inputs: bool = False, seed: int = 0) -> bool:
    """Whether a search takes the steps of a model at once."""
    initial = Module.initial(model.config, SIZES, np.random.default_rng(0))
    own = {name: torch.from_numpy(value).requires_grad_() for name, value in initial.items()}
    drawn = torch.randn(4, SIZES.horizon, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    inputs = drawn.requires_grad_(by_inputs)
    return model._takes_at_once(own, inputs)


@pytest.mark.parametrize("fields", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize(("sequences", "training"), [(33, False), (1, False), (33, True)])
def test_loops_get_equal_bits_from_steps_at_once(
    fields: dict[str, Any], sequences: int, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = list[StepsOnce]()

    def kept(**given: Any) -> StepsOnce:
        counted.append(StepsOnce(**given))
        return counted[-1]

    monkeypatch.setattr("memsweep.models.module.model.StepsOnce", kept)
    model = Module(config_of({**fields, "replicas": "sequential"}), SIZES).train(training)
    found = results(model, sequences)
    assert len(counted) == 3  # of a trial, and of two copies
    assert all(each.count > SIZES.horizon for each in counted)
    model._takes_steps = {training: False}
    assert all(map(torch.equal, found, results(model, sequences)))


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS)
def test_modules_without_a_loop_are_left_alone(fields: dict[str, Any]) -> None:
    assert not at_once(Module(config_of(fields), SIZES).eval())


def test_steps_are_taken_at_once_where_a_gradient_by_the_weights_alone_is_followed() -> None:
    model = Module(config_of(LOOPS["min_gru"]), SIZES)
    assert at_once(model)  # which trains
    assert not at_once(model.eval(), by_inputs=True)
    with torch.no_grad():
        assert not at_once(model)
    with LiveBytes():
        assert not at_once(model)
    assert at_once(model)


def test_steps_of_small_passes_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 sequences, 12 steps, width 4."""
    for worth, taken in ((4 * 12 * 4, True), (4 * 12 * 4 + 1, False)):
        monkeypatch.setattr("memsweep.models.module.model._WORTH", worth)
        assert at_once(Module(config_of(LOOPS["min_gru"]), SIZES).train()) is taken


def test_a_module_with_running_statistics_is_tried_in_evaluation_alone() -> None:
    factory = "tests/models/module/test_steps_once.py:Normalized"
    model = Module(trial_of({"factory": factory, "width_argument": None}).model, SIZES)
    assert not at_once(model.train())
    assert at_once(model.eval())


class Normalized(nn.Module):
    """A loop over normalized steps."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear, self.norm, self.out = nn.Linear(inputs, 3), nn.BatchNorm1d(3), nn.Linear(3, outputs)

    def forward(self, x: Tensor) -> Tensor:
        drive = self.linear(x)
        return torch.stack([self.out(self.norm(drive[:, t])) for t in range(x.shape[1])], 1)


class Odd(nn.Module):
    """Reads a sequence in ways that are no loop over steps, or changes a step in place."""

    def __init__(self, inputs: int, outputs: int, how: str) -> None:
        super().__init__()
        self.how, self.linear = how, nn.Linear(inputs, 3)
        self.out = nn.Linear(3, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states = self.linear(x)
        if self.how == "in place":
            rows = [states[:, t] for t in range(states.shape[1])]
            for row in rows:
                row.mul_(2.0)
            states = torch.stack(rows, 1)
        if self.how == "changed between":
            states = states * 1.0
            first = [states[:, t] for t in range(6)]
            states[:, 0] = first[5]
            states = torch.cat([torch.stack([states[:, t] for t in range(6)], 1), states[:, 6:]], 1)
        if self.how == "last":
            states = torch.cumsum(states, 1) + states[:, -1:] * 0.0 + states[:, -1].unsqueeze(1) * 0.0
        answer: Tensor = self.out(states)
        return answer


class InPlace(Odd):
    """Changes its steps in place."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, "in place")


class Clamps(Odd):
    """Changes a step in place where its weights are large."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, "")

    def forward(self, x: Tensor) -> Tensor:
        states, answers = self.linear(x), []
        for t in range(x.shape[1]):
            step = states[:, t]
            if t == x.shape[1] - 1 and self.linear.weight.abs().max() > 5.0:
                step.clamp_(-1.0, 1.0)
            answers.append(self.out(step))
        return torch.stack(answers, 1)


class ReadsTheWhole(nn.Module):
    """Reads each step of its gates twice, and all of them as a whole: three gradients, whose sum has an order."""

    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__()
        self.gate, self.candidate, self.out = nn.Linear(inputs, 3), nn.Linear(3, 3), nn.Linear(3, outputs)
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        gates = torch.sigmoid(self.gate(x))
        state, states = torch.zeros_like(gates[:, 0]), []
        for t in range(x.shape[1]):
            state = (1 - gates[:, t]) * state + gates[:, t] * torch.tanh(self.candidate(state) + 1.0)
            states.append(state)
        answer: Tensor = self.out(self.scale * torch.stack(states, 1) * gates) + x
        return answer


@pytest.mark.parametrize("scale", [1.0, 0.0])  # by zero, all these gradients are zero
def test_a_module_whose_last_bits_would_move_is_left_alone(scale: float) -> None:
    factory = "tests/models/module/test_steps_once.py:ReadsTheWhole"
    config = trial_of({"factory": factory, "width_argument": None, "arguments": {"scale": scale}}).model
    for seed in range(20):  # by chance, some sums of these small gradients are equal
        assert not at_once(Module(config, SIZES).eval(), seed=seed)
    model = Module(config, SIZES).eval()
    plain = results(model, 33)
    model._takes_steps = {False: True}
    others = [torch.equal(one, other) for one, other in zip(plain, results(model, 33), strict=True)]
    assert all(others) is (scale == 0.0)


def test_a_step_has_the_strides_that_it_is_written_with() -> None:
    x = torch.randn(1, 5, 3, requires_grad=True)  # the stride of the one sequence is that of x
    with StepsOnce() as steps:
        strides = [x[:, t].stride() for t in range(5)]
    assert steps.count == 2
    assert strides == [x[:, t].stride() for t in range(5)]


def test_steps_that_are_read_without_a_gradient_are_none_with_one() -> None:
    x = torch.randn(2, 5, 3, requires_grad=True) * 1.0
    with StepsOnce() as steps:
        with torch.no_grad():
            cut = torch.stack([x[:, t] for t in range(5)])
        assert steps.count == 0
        live = torch.stack([x[:, t] for t in range(5)])
    assert steps.count == 2
    assert not cut.requires_grad
    (gradient,) = torch.autograd.grad(live.sum(), x)
    assert (gradient == 1.0).all()


@pytest.mark.parametrize(("how", "taken"), [("changed between", True), ("last", False)])
def test_a_step_that_is_changed_keeps_its_meaning(how: str, taken: bool) -> None:
    module = Odd(1, 1, how).double()
    x = torch.randn(2, 8, 1, dtype=torch.float64)
    with StepsOnce() as steps:
        found = module(x)
    assert torch.equal(module(x), found)
    assert (steps.count > 0) == taken


def test_torch_refuses_to_change_a_step_in_place_so_that_the_probe_leaves_such_a_module_alone() -> None:
    with StepsOnce(), pytest.raises(RuntimeError, match="view"):
        Odd(1, 1, "in place").double()(torch.randn(2, 8, 1, dtype=torch.float64))
    config = trial_of({"factory": "tests/models/module/test_steps_once.py:InPlace", "width_argument": None}).model
    assert not at_once(Module(config, SIZES).eval())


def test_a_branch_that_changes_a_step_in_place_later_is_computed_as_it_is_written() -> None:
    config = trial_of({"factory": "tests/models/module/test_steps_once.py:Clamps", "width_argument": None}).model
    model = Module(config, SIZES).eval()
    assert at_once(model)
    initial = Module.initial(config, SIZES, np.random.default_rng(0))
    own = {name: (20.0 * torch.from_numpy(value)).requires_grad_() for name, value in initial.items()}
    x = torch.randn(4, SIZES.horizon, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    outputs = model.outputs({name: value.unsqueeze(0) for name, value in own.items()}, x)
    assert torch.equal(outputs[0], model._outputs_of_one(own, x))
    assert model._takes_steps == {False: False}


def test_steps_are_of_any_dimension_and_sign_and_a_wrong_one_is_refused() -> None:
    x = torch.randn(4, 5, 6, dtype=torch.float64, requires_grad=True)
    with StepsOnce() as steps:
        for t in range(-5, 5):
            assert torch.equal(x[:, t], x.detach().select(1, t))
            assert torch.equal(x[:, t, :], x.detach().select(1, t))
        for t in range(4):
            assert torch.equal(x[t], x.detach().select(0, t))
        assert x[:, None].shape == (4, 1, 5, 6)
        assert x[0, 1].shape == (6,)
        with pytest.raises(IndexError):
            x[:, 5]
    assert steps.count == 20 - 3 + 4 - 3


@pytest.mark.parametrize("fields", [*LOOPS.values(), *OTHERS.values()], ids=[*LOOPS, *OTHERS])
def test_tables_are_those_of_one_copy_at_a_time_without_either(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = trial_of(fields)
    pack = train_replicas([config])
    trained = {one.seed: one for _, _, ensemble in pack.ensembles for one in ensemble.replicas.values()}
    options = RunOptions(trained=[trained])
    fast = run_pack([config], options)[0].tables
    monkeypatch.setattr(sampled, "KEPT", 0)
    monkeypatch.setattr(Module, "_has_equal_bits", lambda *_: False)
    plain = run_pack([config], options)[0].tables
    assert fast.keys() == plain.keys()
    for name, table in fast.items():
        assert table.equals(plain[name]), name


def test_own_outputs_are_kept_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = train_replicas([trial_of(LOOPS["min_gru"], seeds=2)])
    (_, _, trained) = pack.ensembles[0]
    loss, ensemble = pack.loss, trained.ensemble
    assert isinstance(loss, sampled.SampledLoss)
    data = loss.prepare(loss.draw(Stream(0, TEST), 0, 40))
    start = ensemble.layout.named(trained.weights.unsqueeze(1))
    needed = 2 * 40 * SIZES.horizon * 8
    monkeypatch.setattr(sampled, "KEPT", needed)
    kept = loss.own_outputs(ensemble.model, start, data)
    assert kept is not None
    assert sum(each.nbytes for each in kept) == needed
    monkeypatch.setattr(sampled, "KEPT", needed - 1)
    assert loss.own_outputs(ensemble.model, start, data) is None
    moved = {name: value + 0.1 for name, value in start.items()}
    distances = [loss.distance(ensemble.model, moved, start, data, None, own) for own in (None, kept)]
    assert torch.equal(*distances)
    assert (distances[0] > 0).all()
