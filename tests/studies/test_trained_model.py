"""Trained models of others: weights found in any file, and a measurement against the model's own outputs."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from functools import partial
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
from memsweep.errors import ConfigError, ModuleError
from memsweep.learning.state.found_weights import find_weights
from memsweep.learning.state.weights_file import WeightsFileError
from memsweep.models.module.hugging_face import load
from memsweep.studies.python.own_outputs import NAME, read_sequences
from paths import ROOT

QUICK = (
    "perturbation.test_size=4",
    "perturbation.ascent_steps=1",
    "perturbation.bits=[3,8]",
    "perturbation.radii={from: 0.01, to: 1, count: 3}",
)


def gru() -> nn.GRU:
    torch.manual_seed(1)
    return nn.GRU(2, 3, batch_first=True)


def inputs(steps: int = 8) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((4, steps, 2))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda own: own,
        lambda own: {"model_state": own, "step": 7, "optimizer": {"state": {}}},
        lambda own: {"epoch": 1, "anything": {"inner": {f"module.rnn.{name}": value for name, value in own.items()}}},
        lambda own: {f"_orig_mod.{name}": nn.Parameter(value) for name, value in own.items()},
        lambda own: {
            "model": {**{f"lstm.{name}": value for name, value in own.items()}, "linear.weight": torch.ones(2)}
        },
    ],
)
def test_weights_are_found_wherever_a_trainer_keeps_them(tmp_path: Path, wrap: Any) -> None:
    own = gru().state_dict()
    torch.save(wrap(own), tmp_path / "ckpt.pt")
    found = find_weights(tmp_path / "ckpt.pt", nn.GRU(2, 3, batch_first=True).state_dict())
    assert all(torch.equal(found.tensors[name], own[name]) for name in own)


def test_what_is_ignored_is_said_and_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    own = gru().state_dict()
    torch.save({"model": {**own, "head.weight": torch.ones(2)}, "ema": own}, tmp_path / "ckpt.pt")
    said = find_weights(tmp_path / "ckpt.pt", own).said
    assert "below model" in said
    assert "ignored: head.weight" in said
    assert "were not taken: ema" in said
    with pytest.raises(WeightsFileError, match=r"weight_ih_l0 is \[9, 2\], and the module's \[12, 2\]"):
        find_weights(tmp_path / "ckpt.pt", nn.GRU(2, 4).state_dict())
    save_file({"other": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(WeightsFileError, match="The file has other"):
        find_weights(tmp_path / "other.safetensors", own)


class _Opens:
    def __reduce__(self) -> Any:
        return open, ("ran", "w")


def test_no_code_of_a_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"model": gru().state_dict(), "evil": _Opens()}, "evil.pt")
    np.savez("evil.npz", evil=np.array([_Opens()], dtype=object))
    for name in ("evil.pt", "evil.npz"):
        with pytest.raises(WeightsFileError):
            find_weights(Path(name), gru().state_dict())
    np.save("evil.npy", np.array([_Opens()], dtype=object))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sequences("evil.npy")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Opens()))
    with pytest.raises(ModuleError, match="pickles"):
        load("hf:model", None, trust=False)
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "config.json").write_text('{"auto_map": {"AutoModel": "code.Net"}}')
    with pytest.raises(ModuleError, match="auto_map"):
        load("hf:model", None, trust=False)
    assert not (tmp_path / "ran").exists()


def test_sequences_come_from_every_form(tmp_path: Path) -> None:
    x = inputs()
    np.save(tmp_path / "x.npy", x)
    save_file({"inputs": torch.from_numpy(x)}, tmp_path / "x.safetensors")
    pd.DataFrame({"x": [[[*step] for step in each] for each in x]}).to_parquet(tmp_path / "x.parquet")
    for given in (x, [*x], tmp_path / "x.npy", str(tmp_path / "x.safetensors"), tmp_path / "x.parquet"):
        assert torch.equal(read_sequences(given), torch.from_numpy(x))
    assert read_sequences([[1, 2, 3], [0, 1, 2]]).dtype == torch.int64, "whole numbers [S, T] are ids"
    assert read_sequences(x[:, :, 0]).shape == (4, 8, 1)
    assert torch.equal(read_sequences([tuple(each) for each in x]), torch.from_numpy(x)), "a tuple of step vectors"
    with pytest.raises(ConfigError, match="lengths from 2 to 3"):
        read_sequences([[1, 2, 3], [0, 1]])
    with pytest.raises(ConfigError, match="at least 2 sequences"):
        read_sequences(x[:1])
    with pytest.raises(ConfigError, match="not finite"):
        read_sequences(np.full((2, 2, 1), np.nan))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.ones((2, 3, 1), complex), "real numbers or ids, got complex128"),
        (np.ma.masked_greater(inputs(), 1.0), "some values are masked"),
        ([*np.ma.masked_greater(inputs(), 1.0)], "some values are masked"),
        (np.array([["a"]]), "got an array of <U1"),
        (["a", "b"], "got str"),
        ([(each, 1) for each in inputs()], r"got tuple \(ndarray, int\)"),
        ([(each[:, 0], each[:, 0]) for each in inputs()], r"got a pair of arrays \(inputs and targets\?\): give"),
        ([[each, torch.from_numpy(each)] for each in inputs()], "inputs alone, or np.stack the two steps"),
        ({"inputs": inputs()}, "got dict"),
        (3.0, "got float"),
    ],
)
def test_what_is_no_sequence_of_numbers_is_said(given: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_sequences(given)


def test_a_model_is_measured_against_its_own_outputs() -> None:
    net = gru()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = ms.measure(net, *QUICK, sequences=inputs())
    curve = found.curves.query("ball == 'recurrent' and method == 'worst_case'")
    assert found.replicas["error"][0] < 1e-20, "the unmoved model is its own reference"
    with torch.no_grad():
        outputs = net.double()(torch.from_numpy(inputs()))[0]
    assert found.replicas["zero_loss"][0] == pytest.approx(float(outputs.var(0, correction=0).mean()), rel=1e-6)
    assert curve.sort_values("radius")["error"].is_monotonic_increasing
    assert {"fixed_weights", "fixed_states"} <= set(found.curves["ball"]), "torch's layers go step by step"
    assert set(found.radii["reading"]) == {"self"}
    assert "radii by the model itself" in repr(found)
    assert "worst pushes that a search of 1 random start and 1 step found; no stronger one checked it" in repr(found)
    assert "memory of the last output" in repr(found)
    table = repr(found).partition("all weights, fixed point")
    assert "width" not in table[0].splitlines()[-2], "nobody said the width of a module in memory"
    assert table[2].split()[0] == "module"
    assert all(torch.equal(value, net.float().state_dict()[name]) for name, value in before.items())
    assert NAME not in registry.names(registry.TASK), "no study can name its task"


@pytest.mark.parametrize(("words", "count"), [((), 64), (("perturbation.test_size=9",), 9)])
def test_errors_are_shares_of_the_variance_of_the_sequences_that_are_tested(words: tuple[str, ...], count: int) -> None:
    growing = np.random.default_rng(1).standard_normal((90, 5, 2)) * np.linspace(0.1, 3.0, 90)[:, None, None]
    quick = [word for word in QUICK if "test_size" not in word]
    found = ms.measure(gru(), *quick, "perturbation.roundings=[]", *words, sequences=growing)
    assert found.radii["zero_loss"].tolist() == pytest.approx([found.replicas["zero_loss"][0]] * 3, rel=1e-6)
    assert "read: 90 sequences of 5 steps, 2 inputs" in repr(found)
    assert f"variance of its outputs over {count} of 90 sequences" in repr(found)
    with torch.no_grad():
        whole = float(gru().double()(torch.from_numpy(growing))[0].var(0, correction=0).mean())
    assert found.replicas["zero_loss"][0] == pytest.approx(whole, rel=0.5), "the first of a sorted file are not typical"


def test_errors_are_shares_of_one_variance() -> None:
    with pytest.raises(ConfigError, match="has the values 2, 3; give one for each measurement"):
        ms.measure(gru(), *QUICK[1:], "perturbation.test_size=2,3", sequences=inputs())


class Chosen(nn.Module):
    """Keeps its state as long as its second input is large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state, states = inputs.new_zeros(inputs.shape[0], 1), []
        for step in inputs.unbind(1):
            state = (self.weight * step[:, 1:]).sigmoid() * state + step[:, :1]
            states.append(state)
        return torch.stack(states, 1)


def test_a_memory_is_of_all_sequences_and_says_where_it_was_cut() -> None:
    given = np.random.default_rng(0).standard_normal((24, 8, 2))
    given[:2, :, 1], given[2:, :, 1] = -8.0, 3.0
    told = repr(ms.measure(Chosen(), *QUICK[1:], "perturbation.roundings=[]", "perturbation.balls=[]", sequences=given))
    assert "memory of the last output, the median of 24 sequences: 63 % of its weight within 5 of 8 steps" in told
    assert "up to 7 steps back, the farthest looked at" in told


class Offset(nn.Module):
    """A GRU whose outputs have a constant added, which says nothing of the sequences."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.gru, self.offset = gru(), offset

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.gru(inputs)[0] + self.offset


def test_a_constant_of_the_outputs_moves_no_radius() -> None:
    plain, shifted = (
        ms.measure(Offset(by), *QUICK, "perturbation.roundings=[]", sequences=inputs()) for by in (0.0, 100.0)
    )
    assert plain.radii["radius"].tolist() == pytest.approx(shifted.radii["radius"].tolist(), rel=1e-6)
    assert plain.radii["censored"].tolist() == shifted.radii["censored"].tolist()


class Antisymmetric(nn.Module):
    """Moves by W - W^T, which the identity does not change: where a search begins by theory, nothing moves."""

    def __init__(self) -> None:
        super().__init__()
        self.weight_ih, self.weight_hh = nn.Parameter(torch.ones(3, 2) / 2), nn.Parameter(torch.eye(3).roll(1, 0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        state, states = inputs.new_zeros(inputs.shape[0], 3), []
        for step in inputs.unbind(1):
            state = state + 0.1 * (step @ self.weight_ih.T + state @ (self.weight_hh - self.weight_hh.T)).tanh()
            states.append(state)
        return torch.stack(states, 1)


def test_the_usual_search_begins_where_something_moves() -> None:
    found = ms.measure(Antisymmetric(), *QUICK, "perturbation.roundings=[]", sequences=inputs())
    assert (found.radii["censored"] == "").all()


def test_ids_are_measured_up_to_the_largest_that_a_module_knows() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3))
    found = ms.measure(net, *QUICK, "perturbation.balls=[all]", sequences=[[0, 1, 2, 3], [4, 3, 2, 1], [0, 0, 4, 4]])
    assert "radius when" in repr(found)
    assert found.replicas["error"][0] < 1e-20, "the module reads the ids that were given"


def test_the_memory_of_a_module_without_one_is_the_present_step() -> None:
    found = ms.measure(nn.Linear(2, 3), *QUICK, "perturbation.balls=[all]", sequences=inputs())
    assert "63 % of its weight within 1 of 8 steps" in repr(found)


def test_outputs_that_do_not_differ_are_no_reference() -> None:
    with pytest.raises(ModuleError, match="GRU gives the same outputs on all 3 sequences: they have no variance"):
        ms.measure(gru(), *QUICK, sequences=np.ones((3, 8, 2)))


def test_sequences_have_no_target() -> None:
    with pytest.raises(ConfigError, match="no target: use self"):
        ms.measure(gru(), *QUICK, reference="target", sequences=inputs())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", inputs())
    torch.save({"model_state": gru().state_dict(), "step": 3}, "ckpt.pt")
    return tmp_path


FIELDS = ("model.inputs_argument=input_size", "model.width_argument=hidden_size", "model.width=3")
COMMAND = (
    "measure",
    "--factory",
    "torch.nn:GRU",
    "--weights",
    "ckpt.pt",
    "--sequences",
    "x.npy",
    "--reference",
    "self",
)


def test_the_command_measures_a_layer_of_a_package_with_a_checkpoint(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, *FIELDS, "model.arguments={batch_first: true}", *QUICK, "--page", "page.html"]) == 0
    said = capsys.readouterr().out
    assert "below model_state" in said
    assert "ignored: step" not in said.split("below")[0]
    assert "radius when the recurrent weights move" in said
    page = (place / "page.html").read_text()
    for line in (line for line in said.splitlines() if line.startswith(("radii by the model itself", "radius when"))):
        assert line in page, "page and terminal say the same"
    assert not (place / "results").exists(), "nothing is stored"


def test_a_measurement_is_as_wide_as_the_terminal(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert main([*COMMAND, *FIELDS, "model.arguments={batch_first: true}", *QUICK]) == 0
    told = capsys.readouterr().out
    assert "radii by the model itself" in told
    assert max(map(len, told.splitlines())) <= 70


def test_an_audit_finds_the_weights_that_a_measurement_finds(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = (
        "inputs_argument=input_size",
        "width_argument=hidden_size",
        "arguments={batch_first: true}",
        "--width",
        "3",
    )
    words = ("torch.nn:GRU", *sizes, "--inputs", "2", "--horizon", "4", "--seconds", "1")
    main(["audit", *words, "--weights", "ckpt.pt"])
    assert "Untrained, " not in capsys.readouterr().out
    torch.save({"model": {"other": torch.ones(1)}}, "other.pt")
    assert main(["audit", *words, "--weights", "other.pt"]) == 2
    assert "other" in capsys.readouterr().err


def test_a_module_without_weights_is_not_said_to_be_trained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--factory",
        "torch.nn:GRU",
        "--sequences",
        "x.npy",
        *FIELDS,
        "model.arguments={batch_first: true}",
        *QUICK,
    )
    assert main(["measure", *words]) == 0
    assert "no --weights: torch.nn:GRU gives the model its weights, trained or not" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--factory", "sized:Net", "--sequences", "x.npy"), "needs the argument width: give it as model.width=16"),
        (("--factory", "torch.nn:GRU", "--sequences", "x.npy", "--task", "copying_memory"), "two questions"),
        (("--sequences", "x.npy"), "give --factory"),
        ((*COMMAND[1:-1], "metric", *FIELDS, "model.arguments={batch_first: true}"), "no target: use self"),
        (("quickstart", "--page", "page.html"), "of --sequences alone"),
        (("--factory", "torch.nn:GRU", "--sequences", "no.npy", *FIELDS), "no.npy cannot be read"),
        ((*COMMAND[1:], *FIELDS), "batch_first=True"),
        (("--factory", "broken:Net", "--sequences", "x.npy", "model.width_argument=null"), "line 1"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    (place / "broken.py").write_text("import no_such_package\n")
    (place / "sized.py").write_text("import torch\nclass Net(torch.nn.Linear):\n    def __init__(self, width): pass\n")
    assert main(["measure", *words]) == 2
    said = capsys.readouterr().err
    assert told in " ".join(said.split())
    assert "Traceback" not in said


PAGE = (ROOT / "docs" / "trained_model.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w-])\d+(?:\.\d+)?")


def _shown(first: str) -> tuple[str, list[str]]:
    """The commands of the page that begin with a text, and the lines that they are said to print."""
    found = FENCE.findall(PAGE)
    place = next(i for i, (language, body) in enumerate(found) if language == "bash" and body.startswith(first))
    return found[place][1], found[place + 1][1].splitlines()


@pytest.mark.more
@pytest.mark.parametrize("package", ["g2p-en==2.1.0", "Resemblyzer==0.1.4"])
def test_the_page_of_trained_models_is_true(tmp_path: Path, package: str) -> None:
    commands, lines = _shown(download := f"pip download --no-deps {package}\n")
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = partial(subprocess.run, cwd=tmp_path, env=os.environ | {"PATH": paths}, capture_output=True, text=True)
    if (done := run(["bash", "-c", download], timeout=200)).returncode:
        pytest.skip(f"{package} cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    (tmp_path / "g2p_nets.py").write_text(next(body for language, body in FENCE.findall(PAGE) if "def encoder" in body))
    done = run(["bash", "-e", "-c", commands.removeprefix(download)], timeout=1200)
    assert done.returncode == 0, done.stderr
    printed = iter(done.stdout.splitlines())
    for line in lines:  # in this order
        assert any(_alike(line, other) for other in printed), f"{line}\n{done.stdout}"


def _alike(line: str, other: str) -> bool:
    numbers, others = ([*map(float, NUMBER.findall(each))] for each in (line, other))
    return NUMBER.sub("#", line) == NUMBER.sub("#", other) and numbers == pytest.approx(others, rel=0.05)


MAMBA = """
import os
import socket
import sys
from pathlib import Path
import numpy as np
sys.path.append(sys.argv[1])
os.environ["HF_HOME"] = str(Path("home").absolute())
from transformers import GPTNeoXConfig, GPTNeoXModel, MambaConfig, MambaForCausalLM, MambaModel
from memsweep.cli import main
config, commit = MambaConfig(vocab_size=5, hidden_size=8, state_size=2, num_hidden_layers=1), "1" * 40
neox = GPTNeoXConfig(vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
MambaForCausalLM(config).save_pretrained("causal")
MambaModel(config).save_pretrained("bare")
for name, model in (("mamba", MambaForCausalLM(config)), ("neox", GPTNeoXModel(neox))):
    entry = Path("home/hub") / f"models--tiny--{name}"
    model.save_pretrained(entry / "snapshots" / commit)
    (entry / "refs").mkdir()
    (entry / "refs/main").write_text(commit)
np.save("ids.npy", np.arange(24).reshape(4, 6) % 5)
np.save("vectors.npy", np.random.default_rng(0).standard_normal((4, 6, 8)))
calls = []
socket.socket.connect = socket.getaddrinfo = lambda *given, **options: calls.append(given) or 1 / 0
for name, sequences in (("causal", "ids"), ("bare", "vectors"), ("tiny/mamba", "ids"), ("tiny/neox", "vectors")):
    assert main(["measure", "--factory", f"hf:{name}", "--sequences", f"{sequences}.npy", *sys.argv[2:]]) == 0
assert main(["measure", "--factory", "hf:tiny/none", "--sequences", "ids.npy"]) == 2
assert not calls, calls
"""


@pytest.mark.more
def test_models_of_transformers_are_measured_from_a_folder_and_from_the_local_cache(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path / "site"), "transformers"]
    if subprocess.run(install, capture_output=True, timeout=600).returncode:
        pytest.skip("transformers cannot be installed")
    command = [sys.executable, "-c", MAMBA, str(tmp_path / "site"), *QUICK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("radius when the recurrent weights move") == 4
    assert "hf:tiny/none cannot be loaded from this machine" in done.stderr


def test_one_sequence_is_too_few_whatever_the_setting_says() -> None:
    with pytest.raises(ConfigError, match="test_size is 1; at least 2 sequences are needed"):
        ms.measure(gru(), *QUICK[1:], "perturbation.test_size=1", sequences=inputs())
