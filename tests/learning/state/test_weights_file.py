"""Weights of files come in as they are, or are refused in a sentence; no code of a file runs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from engine import trial
from memsweep import registry
from memsweep.cli import main
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.errors import ConfigError
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.learning.state.weights_file import WeightsFileError, from_bytes, read_weights, to_bytes
from memsweep.models.base import Signature
from memsweep.models.module.anatomy import build_module
from memsweep.models.module.factory import to_dtype
from memsweep.models.module.model import Module, under_names
from memsweep.sweep.planning.identity import identity, training_of
from memsweep.trial import check_weights, run_trial
from paths import ROOT

STATE = {"gate.weight": torch.randn(3, 2), "gate.bias": torch.randn(3)}


class Marker:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_state_dict_is_read_from_the_files_that_people_have(tmp_path: Path) -> None:
    place = tmp_path / "weights"
    save_file(STATE, place)
    assert same(read_weights(place), STATE)
    for content in (
        STATE,
        {"epoch": 3, "state_dict": STATE, "optimizer": {"lr": 0.1}},
        {"model": {f"module._orig_mod.{name}": value for name, value in STATE.items()}},
    ):
        for new in (True, False):
            torch.save(content, place, _use_new_zipfile_serialization=new)
            assert same(read_weights(place), STATE)


def test_what_is_no_state_dict_is_refused_and_no_code_of_a_file_runs(tmp_path: Path) -> None:
    place, mark = tmp_path / "weights.pt", tmp_path / "ran"
    with pytest.raises(WeightsFileError, match=r"cannot be read: No such file.*Give the path"):
        read_weights(place)
    for new in (True, False):
        torch.save({"state_dict": STATE, "extra": Marker(mark)}, place, _use_new_zipfile_serialization=new)
        with pytest.raises(WeightsFileError, match=r"without running its code .*torch.save\(module.state_dict"):
            read_weights(place)
    assert not mark.exists()
    torch.save({"epoch": 3, "lr": 0.1}, place)
    with pytest.raises(WeightsFileError, match=r"a dict with the keys epoch, lr, not a state dict"):
        read_weights(place)
    place.write_bytes(b"no weights at all")
    with pytest.raises(WeightsFileError, match="neither safetensors"):
        read_weights(place)
    place.write_bytes(to_bytes(STATE)[:-3])
    with pytest.raises(WeightsFileError, match="neither safetensors"):
        read_weights(place)


def one(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"gate.weight": tensor, "gate.bias": STATE["gate.bias"]}


WEIGHT = STATE["gate.weight"]
READ: dict[str, Callable[[], Any]] = {
    "parameters": lambda: one(torch.nn.Parameter(WEIGHT)),
    "sparse coo": lambda: one(WEIGHT.to_sparse()),
    "sparse csr": lambda: one(WEIGHT.to_sparse_csr()),
    "a view": lambda: one(WEIGHT.repeat(2, 2)[:3, :2]),
    "wrapped": lambda: {"state_dict": {f"module.{name}": torch.nn.Parameter(value) for name, value in STATE.items()}},
}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (lambda: one(WEIGHT.to("meta")), "gate.weight has a shape and no numbers"),
    "nested tensor": (lambda: one(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])), "is a nested tensor"),
    "whole numbers": (lambda: one(WEIGHT.to(torch.int64)), "gate.weight is int64, and the model's is float"),
    "booleans": (lambda: one(WEIGHT > 0), "gate.weight is bool"),
    "complex": (lambda: one(WEIGHT.to(torch.complex64)), "gate.weight"),
    "another shape": (lambda: one(WEIGHT[:2]), r"gate.weight has the shape \[2, 2\]"),
    "numbers as names": (lambda: {0: WEIGHT}, "not a state dict"),
    "nothing": (lambda: {}, "not a state dict"),
    "a list": (lambda: [WEIGHT], "holds a list"),
    "a tensor": (lambda: WEIGHT, "holds a Tensor"),
    "None": (lambda: None, "holds a NoneType"),
    "a module": (lambda: torch.nn.Linear(2, 3), "without running its code"),
}
NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.gate = nn.Linear(2, width)
    def forward(self, x):
        return torch.cumsum(x.expand(-1, -1, 2) @ self.gate.weight.T + self.gate.bias, 1)[..., :1]
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("nets") / "net_of_one_gate.py"
    file.write_text(NET)
    return f"{file}:Net"


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("kind", READ)
def test_tensors_of_all_kinds_are_read_as_the_numbers_that_they_are(kind: str, tmp_path: Path) -> None:
    torch.save(READ[kind](), tmp_path / "w.pt")
    assert same(read_weights(tmp_path / "w.pt"), STATE)


@pytest.mark.filterwarnings("ignore")  # torch on its own reader of quantized tensors
def test_quantized_tensors_are_read_as_what_they_stand_for(tmp_path: Path) -> None:
    quantized = torch.quantize_per_tensor(WEIGHT, 0.01, 0, torch.qint8)
    torch.save(one(quantized), tmp_path / "w.pt")
    assert same(read_weights(tmp_path / "w.pt"), one(quantized.dequantize()))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"a": {"b": STATE}}, "with the keys a, not a state dict"),
        ({"model": {"state_dict": STATE}}, "with the keys state_dict, not a state dict"),
        ({**STATE, "epoch": 3}, "not a state dict of tensors by name"),
    ],
)
def test_a_study_looks_for_no_weights_deeper_in_a_file(tmp_path: Path, content: object, told: str) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(WeightsFileError, match=told):
        read_weights(tmp_path / "w.pt")


@pytest.mark.filterwarnings("ignore")  # torch: nested tensors are a prototype
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_gets_one_sentence_and_a_document(
    kind: str, net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, told = REFUSED[kind]
    torch.save(content(), tmp_path / "w.pt")
    words = ["measure", "--factory", net, "--task", "linear_functional", "--weights", str(tmp_path / "w.pt"), "--json"]
    sizes = ["model.width=3", "task.horizon=4", "perturbation.balls=[all]"]
    places = ["--workspace", str(tmp_path), "--results", str(tmp_path / "results")]
    assert main([*words, *sizes, *places]) == 2
    out, err = capsys.readouterr()
    assert re.search(told, err), err
    assert "Traceback" not in err
    assert json.loads(out)["exit_code"] == 2
    assert not (tmp_path / "results").exists()


def test_a_module_whose_names_begin_like_a_wrappers_gets_its_own() -> None:
    own = {"net.gate.weight": WEIGHT, "net.gate.bias": STATE["gate.bias"]}
    assert same(under_names(own, STATE), own)
    assert same(under_names(own, own), own)
    assert same(under_names(own, {"other": WEIGHT}), {"other": WEIGHT})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_snippet_of_the_docs_loads_weights_of_all_kinds(
    dtype: torch.dtype, odd: TrialConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = Signature(1, 1, 10)
    (ensemble,) = build(Module, [Replica(0, odd.model, 1, 0.01)], signature, dtype, None)
    weights = ensemble.weights_of(ensemble.initial, 0)
    assert weights["rates"].dtype == dtype.to_complex()
    (tmp_path / "out.safetensors").write_bytes(to_bytes(weights))
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "weights.md").read_text()
    snippet = next(code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "out.safetensors" in code)
    my_module = build_module(odd.model, signature, 7)
    to_dtype(my_module, dtype)
    exec(snippet, {"my_module": my_module})
    assert same(my_module.state_dict(), weights)


def test_complex_numbers_of_double_precision_come_back() -> None:
    state = {"rates": torch.randn(3, dtype=torch.complex128), "one": torch.tensor(2.0)}
    data = to_bytes(state, {"memsweep": "x"})
    assert same(from_bytes(data), state)
    assert to_bytes(state) == to_bytes(dict(reversed(state.items())))


def from_file(config: TrialConfig, file: Path, **training: Any) -> TrialConfig:
    settings = {"weights": str(file), "steps": 0, "seeds": 1, "merge_redundant": False} | training
    return dataclasses.replace(config, training=dataclasses.replace(config.training, **settings))


@pytest.mark.more
def test_weights_that_came_out_and_in_again_have_the_same_errors(tmp_path: Path) -> None:
    config = trial(training={"seeds": 2, "steps": 20}, perturbation={"error": "sampled", "test_size": 64})
    trained = run_trial(config)
    for seed in (0, 1):
        (tmp_path / "w.safetensors").write_bytes(to_bytes(trained.weights[seed]))
        again = run_trial(from_file(config, tmp_path / "w.safetensors", first_seed=seed))
        curves = trained.tables["curves"].query(f"seed == {seed}").reset_index(drop=True)
        pd.testing.assert_frame_equal(again.tables["curves"], curves, check_exact=True)
        assert again.tables["replicas"]["steps"].tolist() == [0]


def test_the_content_of_the_file_is_in_the_identity_and_its_place_is_not(tmp_path: Path) -> None:
    config, file, other = trial(), tmp_path / "w.pt", tmp_path / "elsewhere" / "w.pt"
    other.parent.mkdir()
    torch.save(STATE, file)
    other.write_bytes(file.read_bytes())
    before = identity(from_file(config, file))
    assert identity(from_file(config, other)) == before
    torch.save({**STATE, "gate.bias": torch.zeros(3)}, file)
    after = identity(from_file(config, file))
    assert after != before
    assert training_of(after) != training_of(before)


@pytest.mark.more
def test_a_file_that_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    config = trial(training={"seeds": 1, "steps": 2})
    weights = run_trial(config).weights[0]
    file = tmp_path / "w.safetensors"
    for wrong, told in (
        (
            {**weights, "recurrent_weight": torch.zeros(4)},
            r"recurrent_weight has the shape \[4\], and the model's \[3\]",
        ),
        ({n: w for n, w in weights.items() if n != "readout_bias"}, "they lack readout_bias"),
        ({n: w + 0j for n, w in weights.items()}, "is complex128, and the model's is float64"),
        ({**weights, "gate": torch.zeros(1)}, "the model has no gate"),
        (
            {**weights, "readout_bias": torch.full_like(weights["readout_bias"], math.nan)},
            "readout_bias has 1 number that is not finite; all must be",
        ),
    ):
        file.write_bytes(to_bytes(wrong))
        with pytest.raises(WeightsFileError, match=told):
            check_weights(from_file(config, file))
    with pytest.raises(ConfigError, match="there is no such file"):
        trial_from_dict(to_dict(from_file(config, tmp_path / "absent.pt")))


@pytest.mark.parametrize("verb", ["plan", "sweep"])
def test_a_study_is_refused_with_all_files_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    config = trial(training={"seeds": 1, "steps": 0})
    weights = run_trial(config).weights[0]
    for name, state in (
        ("fits", weights),
        ("lacks", {n: w for n, w in weights.items() if n != "readout_bias"}),
        ("nan", {n: w * math.nan for n, w in weights.items()}),
    ):
        (tmp_path / name).write_bytes(to_bytes(state))
    study = {
        "task": to_dict(config)["task"],
        "model": to_dict(config)["model"],
        "training": {"seeds": 1, "steps": 2, "validate_every": 1},
        "grid": {"training.weights": [str(tmp_path / name) for name in ("fits", "lacks", "nan")]},
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    assert main([verb, str(tmp_path / "study.yaml"), "--results", str(tmp_path / "results")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "2 problems" in told
    assert f"{tmp_path / 'lacks'}: the given weights are not those of this model: they lack readout_bias" in told
    assert "that are not finite; all must be" in told
    assert not (tmp_path / "results").exists()


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> TrialConfig:
    registry.discover(ROOT)
    monkeypatch.delitem(sys.modules, "odd_state", raising=False)
    return TrialConfig(
        task=registry.get("task", "linear_functional").Config(horizon=10),
        model=registry.get("model", "module").Config(factory="tests/support/nets/odd_state.py:Odd", width=3),
        training=TrainingConfig(seeds=2, steps=4, batch_size=8, validation_size=8, validate_every=2, dtype="float32"),
        perturbation=PerturbationConfig(
            radii=RadiiConfig(count=2), balls=("all",), starts=0, ascent_steps=1, test_size=16
        ),
    )


@pytest.mark.more
def test_the_state_of_a_users_module_is_whole(odd: TrialConfig, tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "support" / "nets"))
    try:
        from odd_state import Odd  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    trained = run_trial(odd)
    module = Odd(1, 1, 3, 10)
    module.load_state_dict(trained.weights[1])  # strict: buffers, tied and complex weights are there
    assert torch.equal(module.again.weight, trained.weights[1]["mix.weight"])
    assert module.rates.is_complex()
    torch.save(module.state_dict(), tmp_path / "odd.pt")
    again = run_trial(from_file(odd, tmp_path / "odd.pt", first_seed=1))
    curves = trained.tables["curves"].query("seed == 1").reset_index(drop=True)
    pd.testing.assert_frame_equal(again.tables["curves"], curves, check_exact=True)
    torch.save({**module.state_dict(), "positions": torch.zeros(10, 1)}, tmp_path / "odd.pt")
    with pytest.raises(
        WeightsFileError,
        match=r"the buffer positions .* differs from the one that tests/support/nets/odd_state.py:Odd makes",
    ):
        check_weights(from_file(odd, tmp_path / "odd.pt"))
