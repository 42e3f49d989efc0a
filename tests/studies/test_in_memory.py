"""Models in memory: audited, measured, and taken out of a study with their weights."""

from __future__ import annotations

import contextlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import memsweep as ms
from memsweep import registry
from memsweep.cli import main
from memsweep.config.schema.canonical import trial_from_dict
from memsweep.errors import ConfigError
from memsweep.models.base import Signature
from memsweep.models.module.in_memory import PLACE, held
from memsweep.streams import TEST, Stream
from sweeping import ready

TASK = {"name": "linear_functional", "kernel": "exponential", "horizon": 6}
BALL = {"perturbation.balls": ["recurrent"], "perturbation.starts": 1, "perturbation.ascent_steps": 2}
SETTINGS = {**BALL, "perturbation.radii": {"from": 1e-3, "to": 1.0, "count": 3}, "perturbation.test_size": 16}
NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs=1, outputs=1, width=3):
        super().__init__()
        self.rnn, self.out = nn.RNN(inputs, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, inputs):
        return self.out(self.rnn(inputs)[0])
"""
STUDY = {
    "task": TASK,
    "training": {"seeds": 2, "steps": 10, "batch_size": 8, "validation_size": 16, "validate_every": 10},
    "perturbation": {
        "balls": ["recurrent"],
        "starts": 1,
        "ascent_steps": 2,
        "test_size": 16,
        "radii": {"from": 1e-3, "to": 1.0, "count": 3},
    },
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of the user's, and results; the current folder."""
    (tmp_path / "own_nets.py").write_text(NET)
    ready(tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def net() -> Any:
    """The module of the file, as a notebook has it: from no file."""
    names: dict[str, Any] = {}
    exec(NET, names)
    torch.manual_seed(3)
    return names["Net"]()


def registered(width: int = 2) -> nn.Module:
    registry.discover(None)
    model = registry.get(registry.MODEL, "diagonal_rnn")
    config = model.Config(width=width, parameterization=registry.get(registry.PARAMETERIZATION, "exp").Config())
    return model(config, Signature(1, 1, TASK["horizon"]), Stream(5, "initial weights").generator())


# Names.


def test_no_import_replaces_a_function() -> None:
    """A package takes the place of a function of its name as soon as anything imports it."""
    functions = {name for name in ms.__all__ if not isinstance(getattr(ms, name), type)}
    rooms = {room.name for room in pkgutil.iter_modules(ms.__path__)}
    assert functions & rooms == {"sweep"}  # whose package is callable
    code = """
import importlib, inspect, pkgutil
import memsweep as ms
before = {name: inspect.signature(getattr(ms, name)) for name in ms.__all__ if name.islower()}
for room in pkgutil.iter_modules(ms.__path__):
    if room.name != "__main__":
        importlib.import_module(f"memsweep.{room.name}")
assert {name: inspect.signature(getattr(ms, name)) for name in before} == before
print(*before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} == functions


# The audit.


@pytest.mark.parametrize("kind", ["registered", "own"])
def test_an_audit_is_that_of_the_command(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = registered() if kind == "registered" else net()
    weights, name = place / "weights.safetensors", "diagonal_rnn" if kind == "registered" else "own_nets:Net"
    save_file({key: value.detach().contiguous() for key, value in module.state_dict().items()}, weights)
    fields = ["parameterization=exp", "--width", "2"] if kind == "registered" else ["--width", "3"]
    where = ["--weights", str(weights), "--horizon", "6", "--seconds", "600", "--json"]
    before = {key: value.clone() for key, value in module.state_dict().items()}
    assert main(["audit", name, *fields, *where]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    found = ms.audit(module, horizon=6, seconds=600)
    assert found.status == told["status"]
    assert found.findings["check"].tolist() == [each["check"] for each in told["findings"]]
    for each in told["findings"]:
        if each["check"] != "cost":  # is of the clock
            assert json.loads(json.dumps(found[each["check"]])) == each["numbers"]
    points = sum(len(curve["x"]) for each in told["findings"] for curve in each["curves"])
    assert points > 0
    assert abs(len(found.curves) - points) <= 8  # those of the cost are as many as time allows
    assert "causality" in repr(found)
    assert "<svg" in found.page().text or "<img" in found.page().text
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key])


def test_an_audit_of_a_module_claims_nothing_of_its_training(place: Path) -> None:
    """Its class makes one that nobody trained."""
    assert "Untrained, " not in repr(ms.audit(net(), horizon=6, seconds=1))
    assert "Untrained, " in repr(ms.audit(type(net()), horizon=6, seconds=1))


def test_what_an_audit_is_given_is_checked_at_once(place: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ms.audit(net(), horizon="64", outputs=0, seconds=0)  # type: ignore[arg-type]
    told = str(caught.value)
    assert "horizon is a whole number of at least 1, got '64'" in told
    assert "outputs is a whole number of at least 1, got 0" in told
    assert "seconds is a number above 0, got 0" in told
    with pytest.raises(ConfigError, match="width belongs to a class or a function, got a module that is made"):
        ms.audit(net(), width=999)
    assert "Untrained" not in repr(ms.audit(net(), horizon=np.int64(6), seconds=1))  # type: ignore[arg-type]


# The measurement.


@pytest.mark.parametrize("kind", ["registered", "own"])
def test_a_measurement_is_that_of_the_command(kind: str, place: Path) -> None:
    """Of the same weights in a file, stored as a study."""
    module = registered() if kind == "registered" else net()
    save_file({key: value.detach().contiguous() for key, value in module.state_dict().items()}, "w.safetensors")
    model = ["--model", "diagonal_rnn", "model.parameterization=exp", "model.width=2"]
    own = ["--factory", "own_nets:Net", "model.width=3"]
    words = ["task.kernel=exponential", "task.horizon=6", "perturbation.balls=[recurrent]", "perturbation.starts=1"]
    words += ["perturbation.ascent_steps=2", "perturbation.test_size=16"]
    words += ["perturbation.radii={from: 1e-3, to: 1.0, count: 3}", "name=of_a_file"]
    task = ["--task", "linear_functional", "--weights", "w.safetensors", "--inline", "--no-page"]
    assert main(["measure", *(model if kind == "registered" else own), *task, *words]) == 0
    told, found = ms.results("of_a_file"), ms.measure(module, TASK, SETTINGS)
    for table in ("curves", "radii", "replicas", "memory", "metrics"):
        one, other = (each.table(table).drop(columns=["identity"]) for each in (told, found))
        shared = [name for name in one.columns if name in other.columns and name not in ("width", "model.factory")]
        assert {"seed"} <= {*shared}
        pd.testing.assert_frame_equal(one[shared], other[shared])
    assert len(found.radii) > 0
    for key, value in module.state_dict().items():
        assert torch.equal(found.weights()[key].reshape(value.shape), value.detach())
    error = float(found.replicas["error"].item())
    assert f"error {error:.3g}: " in repr(found)
    assert "stable" not in repr(found)


def test_a_measurement_leaves_nothing_and_takes_axes(place: Path) -> None:
    module, before = net(), {*place.rglob("*")}
    found = ms.measure(
        module, "linear_functional", {"task.horizon": 4, **SETTINGS, "perturbation.norm": ["spectral", "entrywise"]}
    )
    assert sorted(found.curves["norm"].unique()) == ["entrywise", "spectral"]
    assert {*place.rglob("*")} == before
    folder = Path(found.location)
    assert folder.is_dir()
    judged = found.judge(thresholds=[0.5])
    del found
    assert folder.is_dir()  # the weights are read from there
    del judged
    assert not folder.parent.exists()
    assert not held([f"{PLACE}:Net"]), "nothing keeps the module"


def test_a_width_that_a_module_was_not_built_with_is_missing(place: Path) -> None:
    """The section of a model has one by default, which is a width of none of these modules."""
    own, other = (ms.measure(net(), TASK, SETTINGS) for _ in range(2))
    for name in ("radii", "trials", "replicas", "curves", "losses"):
        assert own.table(name)["width"].isna().all()
    assert len(own.radii) == len(own.judge(thresholds=[0.01, 0.03, 0.1]).radii) > 0
    compared = ms.compare(own, other)
    assert compared.losses["width"].isna().all()
    assert "width 8" not in repr(compared)
    assert {*ms.measure(registered(), TASK, SETTINGS).radii["width"]} == {2}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: ms.audit(3), "got int"),  # type: ignore[arg-type]
        (lambda: ms.audit("nets:GRU"), "Or run: memsweep audit nets:GRU"),  # type: ignore[arg-type]
        (lambda: ms.measure(net()), "the task is missing"),
        (lambda: ms.measure("small", sequences=[[1.0]]), "not a study's name"),  # type: ignore[call-overload]
        (lambda: ms.measure(net(), "linear_functionl"), "Did you mean 'linear_functional'"),
        (lambda: ms.measure(net(), TASK, "training.steps=3"), "trains nothing"),
        (lambda: ms.measure(net(), TASK, {"perturbation.ball": 1}), "perturbation.ball"),
        (lambda: ms.measure(net(), TASK, {"model.width": 3}), "got model.width, allowed are"),
        (lambda: ms.measure(nn.Linear(1, 2), TASK), "outputs of shape"),
        (lambda: ms.measure(nn.LazyLinear(1), TASK), r"no size yet in weight, bias \(lazy\)"),
        (lambda: ms.measure(nn.LazyLinear(1), sequences=np.ones((2, 3, 1))), "no size yet"),
        (lambda: ms.measure(net().to("meta"), TASK), "no numbers in rnn.weight_ih_l0, .* and 3 more"),
        (lambda: ms.audit(net().to("meta")), "no numbers in"),
        (lambda: ms.measure(nn.DataParallel(net()), TASK), "ms.measure\\(module.module, ...\\)"),
        (lambda: ms.measure(net(), "linear_functional", sequences=np.ones((2, 3, 1))), "give one of the two"),
        (lambda: ms.measure(net(), TASK, sequences=np.ones((2, 3, 1))), "give one of the two"),  # type: ignore[call-overload]
    ],
)
def test_what_cannot_be_measured_is_a_sentence(call: Any, told: str) -> None:
    with pytest.raises(ms.MemsweepError, match=told):
        call()


# The state of the caller.


def test_calls_of_several_threads_measure_each_its_own_module() -> None:
    def scaled(by: float) -> nn.Module:
        module = net()
        module.out.weight.data.mul_(by)
        return module

    def measured(module: nn.Module) -> tuple[float, list[float]]:
        found = ms.measure(module, SETTINGS, sequences=sequences)
        return found.replicas["zero_loss"].item(), found.radii["radius"].tolist()

    sequences = np.random.default_rng(0).standard_normal((4, 6, 1))
    modules = [scaled(by) for by in (1.0, 30.0, 0.01)]
    alone = [measured(module) for module in modules]
    assert len({zero for zero, _ in alone}) == len(modules)
    with ThreadPoolExecutor(len(modules) + 1) as pool:
        planned = [pool.submit(ms.plan, {"name": "beside", "model": {"name": "lru"}, **STUDY}) for _ in range(6)]
        assert [*pool.map(measured, modules * 2)] == alone * 2
        assert all(len(each.result().trials) for each in planned)
    assert torch.get_default_dtype() is torch.float32  # no call took that of another for the caller's


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def test_no_number_depends_on_the_callers_torch(place: Path) -> None:
    model, training = (
        {"name": "module", "factory": "own_nets:Net", "width": 3},
        {**STUDY["training"], "seeds": 1, "dtype": "float32"},
    )
    study, module = {"name": "whole", "model": model, **STUDY, "training": training}, net()

    def tables() -> list[pd.DataFrame]:
        """Of a sweep and a measurement, but for the names of the trials."""
        swept = ms.sweep(study, inline=True, progress=False, no_reuse=True)
        measured = ms.measure(module, TASK, SETTINGS)
        assert swept.missing.empty
        return [
            each.drop(columns="identity") for each in (swept.replicas, swept.radii, measured.replicas, measured.radii)
        ]

    def autocast() -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def device() -> Any:
        return torch.device("meta")

    usual = tables()
    for states in ([torch.no_grad, autocast, _wide], [torch.inference_mode, device]):
        with contextlib.ExitStack() as caller:
            for state in states:
                caller.enter_context(state())
            mode = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()
            for one, other in zip(usual, tables(), strict=True):
                pd.testing.assert_frame_equal(one, other)
            assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()) == mode


def test_a_warning_is_of_the_callers_line(place: Path) -> None:
    (place / "tasks").mkdir()
    (place / "tasks" / "broken.py").write_text("import nothing_of_this_name")
    with pytest.warns(UserWarning, match="nothing_of_this_name") as found:
        ms.describe("lru")
    assert {each.filename for each in found} == {__file__}


# A trained model.


@pytest.mark.parametrize("kind", ["registered", "own"])
def test_a_trained_model_has_the_stored_loss(kind: str, place: Path) -> None:
    own = {"name": "module", "factory": "own_nets:Net", "width": 3}
    model = own if kind == "own" else {"name": "diagonal_rnn", "parameterization": "exp", "width": 2}
    run = {"inline": True, "progress": False}
    results = ms.sweep({"name": f"trained_{kind}", "model": model, **STUDY}, **run)
    module = results.model(seed=1)
    assert type(module).__name__ == ("Net" if kind == "own" else "DiagonalRNN")
    assert not module.training
    for key, value in results.weights(seed=1).items():
        assert torch.equal(module.state_dict()[key].reshape(value.shape), value)
    stored = results.replicas.query("seed == 1")
    (record,) = results.contents.study.records.values()
    trial = trial_from_dict(dict(record["config"]))
    loss = _expected_loss if kind == "registered" else _loss_on_test_data  # of a linear model, errors are expectations
    assert loss(module, trial, seed=1) == pytest.approx(float(stored["error"].item()), rel=1e-6)
    found = ms.measure(module, TASK, SETTINGS, {"training.first_seed": 1})  # each seed has test sequences of its own
    for column in ("error", "zero_loss", "margin"):
        assert found.replicas[column].item() == pytest.approx(stored[column].item(), rel=1e-6, nan_ok=True)


def _loss_on_test_data(module: nn.Module, trial: Any, seed: int) -> float:
    """As a loop of one's own evaluates a module: on the sequences of the study's test data of this seed."""
    task = registry.get(registry.TASK, trial.task.name)(trial.task)
    batch = task.draw(Stream(trial.training.data_seed, TEST), seed, trial.perturbation.test_size)
    with torch.no_grad():
        return float(task.loss(module(batch.inputs.to(next(module.parameters()))), batch))


def _expected_loss(module: nn.Module, trial: Any, seed: int) -> float:
    """Over white noise: from the responses of the module to nothing and to an impulse."""
    task = registry.get(registry.TASK, trial.task.name)(trial.task)
    inputs = torch.zeros(2, task.horizon, 1, dtype=next(module.parameters()).dtype)
    inputs[1, 0] = 1.0
    with torch.no_grad():
        constant, response = module(inputs)[:, :, 0]
    until = (response - constant - task.kernel()).square().cumsum(0)  # of the output at each step
    return float((task.squared_weights() * (task.variance * until + constant**2)).sum())
