"""``memsweep measure --sequences``: which words it takes, and which files of weights fit a module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import memsweep as ms
from memsweep.cli import main
from memsweep.cli.options import OPTIONS
from memsweep.learning.state.found_weights import find_weights
from memsweep.learning.state.weights_file import from_bytes
from memsweep.models.module.factory import resolve

QUICK = ("perturbation.test_size=4", "perturbation.ascent_steps=1", "perturbation.radii={from: 0.01, to: 1, count: 2}")
NETS = """
from torch import nn

class Tokens(nn.Module):
    def __init__(self, inputs, width=4):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(inputs, width), nn.GRU(width, width, batch_first=True)

    def forward(self, ids):
        return self.rnn(self.embedding(ids))[0]
"""
TIED_NETS = """
from torch import nn

class Tied(nn.Module):
    def __init__(self, inputs=1, outputs=1, width=4):
        super().__init__()
        self.into, self.rnn = nn.Linear(1, width, bias=False), nn.RNN(width, width, batch_first=True)
        self.out = nn.Linear(width, 1, bias=False)
        self.back = nn.Linear(1, width, bias=False)
        self.back.weight = self.into.weight

    def forward(self, x):
        return self.out(self.rnn(self.into(x))[0] + self.back(x))
"""
TOKENS = ("measure", "--factory", "token_nets:Tokens", "--weights", "tokens.pt", "--sequences", "ids.npy")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of ten ids, whose sequences show six of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token_nets.py").write_text(NETS)
    np.save("ids.npy", np.random.default_rng(0).integers(0, 6, (4, 8)))
    layers = {"embedding": nn.Embedding(10, 4), "rnn": nn.GRU(4, 4)}
    torch.save(nn.ModuleDict(layers).state_dict(), "tokens.pt")
    return tmp_path


def test_a_search_that_found_too_little_says_so() -> None:
    torch.manual_seed(0)
    net, given = nn.GRU(2, 4, batch_first=True), np.random.default_rng(0).standard_normal((8, 8, 2))
    words = ("perturbation.stronger_every=1", "perturbation.roundings=[]", QUICK[2])
    told = repr(ms.measure(net, *words, QUICK[1], sequences=given))
    assert "a search of 1 random start and 1 step found; it found at least" in told
    assert "% of what a stronger one did, so that the true radii are smaller" in told
    told = repr(ms.measure(net, *words[1:], sequences=given))
    assert "a search of 1 random start and 16 steps found; no stronger one checked it" in told


def test_how_sequences_were_read_is_said() -> None:
    rng = np.random.default_rng(0)
    one_recording = rng.standard_normal((8, 3))
    assert "read: 8 sequences of 3 steps, 1 input" in repr(
        ms.measure(nn.GRU(1, 2, batch_first=True), *QUICK, sequences=one_recording)
    )
    net = nn.Sequential(nn.Embedding(6, 3), nn.Linear(3, 2))
    told = repr(ms.measure(net, *QUICK, "perturbation.balls=[all]", sequences=rng.integers(0, 6, (4, 8))))
    assert "read: 4 sequences of 8 ids" in told


VALUES = {"--node": "cpus=1,price=1", "--nodes": "2", "--ray": "", "--address": "auto", "--results": "elsewhere"}
TAKEN = {"--factory", "--weights", "--sequences", "--reference", "--inputs", "--outputs", "--page", "--workspace"}
TAKEN |= {"--trust", "--inline", "--no-page", "overrides"}
REFUSED = [flag for flag, _ in OPTIONS["measure"] if flag not in TAKEN | {"--model", "--task"}]


@pytest.mark.parametrize("flag", REFUSED)
def test_what_a_measurement_would_ignore_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    monkeypatch.setenv("MEMSWEEP_NODE", "cpus=1,price=1")
    words = filter(None, (flag, VALUES.get(flag, "1")))
    assert main([*TOKENS, *words]) == 2
    assert f"leave out {flag}." in " ".join(capsys.readouterr().err.split())


def test_all_that_is_wrong_is_told_at_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--max-hours", "1", "--ray", "--results", "elsewhere", "--outputs", "3", "model.width=4")
    assert main(["measure", "--factory", "hf:any", "--sequences", "ids.npy", *words]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "3 problems" in told
    for said in ("--ray, --max-hours", "leave out --results", "leave out --outputs, model.width=4"):
        assert said in told


@pytest.mark.parametrize("flag", ["--inputs", "--outputs"])
def test_sizes_beside_a_study_are_refused(place: Path, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    assert main(["measure", "quickstart", flag, "3"]) == 2
    assert f"{flag} is of --sequences alone" in capsys.readouterr().err


def test_a_module_may_know_more_ids_than_the_sequences_show(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TOKENS]) == 2
    assert "measure: model.width=, --inputs, --outputs" in " ".join(capsys.readouterr().err.split())
    assert main([*TOKENS, "--inputs", "5"]) == 2
    assert "--inputs 5: the sequences have ids up to 5" in capsys.readouterr().err
    assert main([*TOKENS, "--inputs", "10", *QUICK]) == 0


def test_the_size_of_numbers_is_that_of_the_sequences(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros((4, 8, 2)))
    assert main(["measure", "--factory", "torch.nn:GRU", "--sequences", "x.npy", "--inputs", "3"]) == 2
    assert "--inputs 3: the inputs of the sequences have the size 2" in capsys.readouterr().err


def _tied(**other: torch.Tensor) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    into, rnn, out = nn.Linear(1, 4, bias=False), nn.RNN(4, 4), nn.Linear(4, 1, bias=False)
    layers = nn.ModuleDict({"into": into, "rnn": rnn, "out": out}).state_dict()
    return layers | {name.replace("__", "."): tensor for name, tensor in other.items()}


@pytest.fixture
def tied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that has one tensor under two names, and sequences for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tied_nets.py").write_text(TIED_NETS)
    np.save("x.npy", np.random.default_rng(0).standard_normal((4, 8, 1)))
    return tmp_path


MEASURE = ("measure", "--factory", "tied_nets:Tied", "--weights", "w.pt", "--sequences", "x.npy", *QUICK)
TASK = ("measure", "--factory", "tied_nets:Tied", "--weights", "w.pt", "--task", "linear_functional", "model.width=4")
SHORT_TASK = (*TASK, "task.horizon=8", "perturbation.balls=[]", "perturbation.roundings=[]", "--inline", "--no-page")
AUDIT = ("audit", "tied_nets:Tied", "--weights", "w.pt", "--width", "4", "--horizon", "8", "--seconds", "1")


@pytest.mark.parametrize("stored", ["into.weight", "back.weight"])
def test_a_tensor_with_two_names_is_stored_under_one(tied: Path, stored: str) -> None:
    """As ``safetensors.torch.save_model`` does."""
    tensors = _tied()
    tensors[stored] = tensors.pop("into.weight")
    torch.save({"model": tensors}, "w.pt")
    found = find_weights(tied / "w.pt", (module := resolve("tied_nets:Tied", [tied]).make()).state_dict(keep_vars=True))
    module.load_state_dict(found.tensors, strict=False)
    assert torch.equal(module.into.weight, tensors[stored])
    assert main([*MEASURE, "--page", "p.html"]) == 0
    assert main([*AUDIT]) in (0, 1, 3)


@pytest.mark.parametrize("command", [MEASURE, AUDIT, TASK], ids=["measure", "audit", "task"])
def test_two_values_of_one_tensor_are_refused(
    tied: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    tensors = _tied(back__weight=torch.ones(4, 1))
    torch.save(tensors, "w.pt")
    assert main([*command]) == 2
    assert "into.weight and back.weight differ, and are one tensor" in " ".join(capsys.readouterr().err.split())
    torch.save(tensors | {"back.weight": tensors["into.weight"].double()}, "w.pt")
    find_weights(tied / "w.pt", resolve("tied_nets:Tied", [tied]).make().state_dict(keep_vars=True))


@pytest.mark.parametrize("command", [MEASURE, AUDIT, TASK], ids=["measure", "audit", "task"])
def test_of_two_models_in_a_file_one_is_chosen(
    tied: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    torch.save({"model": _tied(), "ema": {name: value / 2 for name, value in _tied().items()}}, "w.pt")
    assert main([*command]) == 2
    assert "w.pt#ema." in " ".join(capsys.readouterr().err.split())
    words = [word.replace("w.pt", "w.pt#ema") for word in command]
    if command is TASK:
        words += SHORT_TASK[len(TASK) :]
    assert main(words) in ((0, 1, 3) if command is AUDIT else (0,))
    told = " ".join("".join(capsys.readouterr()).split())
    assert "w.pt below ema; as many fit, and were not taken: model" in told


def test_npz_is_measured_on_a_task_as_a_torch_file_is(tied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(_tied(), "w.pt")
    np.savez("w.npz", **{name: value.numpy() for name, value in _tied().items()})
    told = []
    for file in ("w.pt", "w.npz"):
        assert main([word.replace("w.pt", file) for word in SHORT_TASK]) == 0
        told += [line for line in capsys.readouterr().out.splitlines() if line.startswith("error ")]
    assert len(told) == 2
    assert told[0] == told[1]
    assert len([*tied.glob("results/*/given/*.safetensors")]) == 1, "a torch file is read where it lies"


def test_each_of_several_weights_has_a_file_of_its_own(tied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, factor in {"a": 1.0, "b": 2.0}.items():
        torch.save({f"{key}/enc": {k: v * factor for k, v in _tied().items()} for key in ("p", "q")}, f"{name}.pt")
    for address in ("a.pt#p/enc", "b.pt#p/enc", "a.pt#q/enc"):
        assert main([word.replace("w.pt", address) for word in (*SHORT_TASK, "name=one")]) == 0
    (a, b) = sorted(tied.glob("results/one/given/*"))
    assert torch.equal(from_bytes(b.read_bytes())["out.weight"], 2 * from_bytes(a.read_bytes())["out.weight"])


def test_a_refused_file_leaves_nothing(tied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"ema": _tied(out__weight=torch.full((1, 4), torch.nan)), "model": _tied()}, "w.pt")
    assert main([word.replace("w.pt", "w.pt#ema") for word in SHORT_TASK]) == 2
    assert "w.pt: out.weight has 4 numbers that are not finite" in " ".join(capsys.readouterr().err.split())
    torch.save({"ema": _tied(), "model": _tied()}, "w.pt")
    assert main([word.replace("=4", "=4,8") for word in SHORT_TASK]) == 2
    assert not [*tied.glob("results/*/given")]


@pytest.mark.parametrize("file", ["w.pt", "w.pt#ema", "w.npz"])
def test_a_file_gives_the_weights_of_a_module_that_draws_them_unseeded(
    tied: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    drawn = "        nn.init.constant_(self.out.weight, np.random.default_rng().uniform())\n\n    def forward"
    nets = TIED_NETS.replace("\n    def forward", drawn)
    (tied / "tied_nets.py").write_text(f"import numpy as np\n{nets}")
    torch.save({"model": _tied(), "ema": _tied()} if "#" in file else _tied(), "w.pt")
    np.savez("w.npz", **{name: value.numpy() for name, value in _tied().items()})
    assert main([word.replace("w.pt", file) for word in SHORT_TASK]) == 0
    assert main([word.replace("w.pt", "absent.pt#ema") for word in SHORT_TASK]) == 2
    assert "absent.pt: there is no such file" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", [MEASURE, AUDIT, TASK], ids=["measure", "audit", "task"])
def test_a_file_that_lacks_a_tensor_is_not_of_another_size(
    tied: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    tensors = _tied()
    del tensors["out.weight"]
    torch.save(tensors, "w.pt")
    assert main([*command]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "out.weight" in told
    assert "sizes" not in told
