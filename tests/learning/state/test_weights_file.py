"""Weights of files come in as they are, or are refused in a sentence; no code of a file runs."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from engine import trial
from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.errors import ConfigError
from memsweep.learning.state.weights_file import WeightsFileError, from_bytes, read_weights, to_bytes
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
        ({**weights, "gate": torch.zeros(1)}, "the model has no gate"),
    ):
        file.write_bytes(to_bytes(wrong))
        with pytest.raises(WeightsFileError, match=told):
            check_weights(from_file(config, file))
    with pytest.raises(ConfigError, match="there is no such file"):
        trial_from_dict(to_dict(from_file(config, tmp_path / "absent.pt")))


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
