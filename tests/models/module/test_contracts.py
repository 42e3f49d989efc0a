"""Faults of a module that make a study meaningless are found before it starts; what is only worth knowing is a note."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import trial
from image_files import write_mnist
from memsweep import registry
from memsweep.cli import main
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError, ModuleError
from memsweep.models.base import Model, Signature
from memsweep.models.contracts import breaches
from memsweep.models.modal.diagonal_rnn import DiagonalRNN
from memsweep.models.module.anatomy import anatomy, findings
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.factory import resolve
from memsweep.models.module.model import vmap_refusal
from paths import ROOT, TESTS

NETS = TESTS / "support" / "nets"
SIZES = Signature(3, 2, 10)
BASE = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.rnn = nn.GRU(inputs, width, batch_first=True, bidirectional={two_ways})
        self.head = nn.Linear({states} * width, outputs)
        self.idle = nn.Linear(2, 2)
    def forward(self, x):
        {first}
        y = self.head(self.rnn(x)[0])
        return {last}
"""


AGAIN = "torch.utils.checkpoint.checkpoint(lambda y: y + self.head(self.rnn(x)[0]).tanh(), y, use_reentrant=False)"


def found(folder: Path, *, first: str = "pass", last: str = "y", two_ways: bool = False, causal: bool = True) -> str:
    (folder / "faulty.py").write_text(
        BASE.format(first=first, last=last, two_ways=two_ways, states=2 if two_ways else 1)
    )
    result = findings(ModuleConfig(factory=f"{folder}/faulty.py:Net", width=4, causal=causal), SIZES)
    assert any("no gradient reaches idle.weight, idle.bias" in note for note in result.notes) == ("detach" not in last)
    return "; ".join(result.refusals)


ZEROS = "self.out = nn.Linear(width, outputs); nn.init.zeros_(self.out.weight); nn.init.zeros_(self.out.bias)"


@pytest.mark.parametrize(
    ("drawn", "alike"),
    [
        ("torch.manual_seed(0); self.out = nn.Linear(width, outputs)", True),
        (ZEROS, True),
        ("self.out = nn.Linear(width, outputs)", False),
        ("torch.manual_seed(0); self.out = nn.Linear(width, outputs); torch.seed()", True),
        (f"{ZEROS}; self.register_buffer('echo', torch.randn(3))", False),
    ],
)
def test_a_plan_says_where_all_seeds_begin_with_the_same_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drawn: str, alike: bool
) -> None:
    (tmp_path / "alike.py").write_text(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n"
        "    def __init__(self, inputs, outputs, width):\n        super().__init__()\n"
        "        self.into = nn.Linear(inputs, width)\n"
        "        nn.init.eye_(self.into.weight); nn.init.zeros_(self.into.bias)\n"
        f"        {drawn}\n"
        "    def forward(self, x):\n        return self.out(self.into(x).cumsum(1))\n"
    )
    config = ModuleConfig(factory=f"{tmp_path}/alike.py:Net", width=4)
    words = "begins with the same weights for all seeds"
    assert any(words in note for note in findings(config, SIZES).notes) == alike
    state = torch.get_rng_state()
    assert (words in (audit_of(f"{tmp_path}/alike.py:Net", capsys))) == alike
    assert torch.equal(torch.get_rng_state(), state)  # what a constructor seeds reaches nothing behind it


def audit_of(target: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(["audit", target, "--width", "4", "--horizon", "16", "--seconds", "1", "--json"])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"last": "y + torch.randn_like(y)"}, "other outputs for the same inputs in evaluation"),
        ({"first": "x += torch.arange(x.shape[1])[:, None]"}, "changes its inputs in place"),
        ({"last": AGAIN}, "computes gradients with other weights than outputs"),
        ({"last": "y - y.mean(0)"}, "gives a sequence other outputs beside other sequences"),
        (
            {
                "first": "return self.head(self.rnn(x.transpose(0, 1))[0].transpose(0, 1))"
            },  # it takes the batch for time
            r"depend on the rest of the batch.*batch_first=True",
        ),
        ({"last": "y.flip(1)"}, "is not causal: other inputs from step"),
        ({"two_ways": True}, "is not causal"),
    ],
)
def test_a_fault_is_refused_and_nothing_else(tmp_path: Path, fault: dict[str, object], message: str) -> None:
    refusals = found(tmp_path, **fault)  # type: ignore[arg-type]
    assert re.search(message, refusals)
    assert "; " not in refusals


def test_a_module_without_fault_is_not_refused(tmp_path: Path) -> None:
    assert found(tmp_path) == ""
    assert found(tmp_path, two_ways=True, causal=False) == ""
    assert "no gradient reaches any parameter" in found(tmp_path, last="y.detach()")


@pytest.mark.parametrize(
    ("factory", "notes"),
    [
        ("min_gru.py:MinGRU", ""),
        ("torch_rnn.py:gru", ""),
        (
            "transformer.py:Transformer",
            r"step beyond its horizon of 10 \(ValueError \(transformer.py, line",
        ),
    ],
)
def test_what_ends_at_the_horizon_is_a_note(factory: str, notes: str) -> None:
    result = findings(ModuleConfig(factory=f"{NETS}/{factory}", width=4), SIZES)
    assert not result.refusals
    assert re.search(notes, "; ".join(result.notes)) if notes else not result.notes


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch says so of vmap
def test_vmap_is_taken_where_its_numbers_are_equal() -> None:
    def refusal(factory: str, **fields: object) -> str | None:
        return vmap_refusal(ModuleConfig(factory=f"{NETS}/{factory}", width=4, **fields), SIZES)  # type: ignore[arg-type]

    assert refusal("min_gru.py:MinGRU") is None
    assert refusal("selective_ssm.py:SelectiveSSM", width_argument="d_model") is None
    assert "gru" in (refusal("torch_rnn.py:gru") or "")
    assert "derivative" in (refusal("transformer.py:Transformer") or "")  # in evaluation alone
    assert refusal("normalized.py:Normalized") == "it keeps running statistics"


def test_describe_prints_parameters_roles_and_what_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", f"{NETS}/min_gru.py:MinGRU", "--width", "16", "arguments.layers=2"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"layers.1.gate.weight +16 x 16 +recurrent +guessed: name of a gate", text)
    assert re.search(r"readout.weight +2 x 16 +readout +gives the outputs", text)
    assert re.search(r"layers.1.candidate.weight +16 x 16 +encoder +acts once, before what is carried", text)
    assert "3 of the roles are guessed" in text
    assert main(["describe", f"{NETS}/min_gru.py:MinGRUU"]) == 2
    assert "Did you mean 'MinGRU'" in capsys.readouterr().err


@pytest.mark.more
def test_a_compiled_module_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "compiled_nets.py").write_text(
        "import torch\nfrom torch import nn\ndef net(inputs, outputs, width):\n"
        "    return torch.compile(nn.Linear(inputs, outputs))\n"
    )
    with pytest.raises(ModuleError, match=r"module that torch.compile made"):
        anatomy(ModuleConfig(factory=f"{tmp_path}/compiled_nets.py:net"), SIZES)


def test_ids_on_a_task_of_numbers_are_refused_with_all_other_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "ids.yaml").write_text(
        "task: {name: linear_functional, horizon: 8}\nperturbation: {balls: []}\nresources: {workers: -1}\n"
        f"model: {{name: module, factory: '{NETS}/torch_rnn.py:TokenGRU', tokens: true, width: 4}}\n"
    )
    assert main(["sweep", "ids", "--inline", "--trust", "--workspace", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "the inputs of this task are numbers, not symbols, and model.tokens is true" in told
    assert "resources.workers" in told


def test_ids_on_files_of_numbers_are_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that reads files is not looked at before a study, but for this."""
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))
    task = registry.get(registry.TASK, "permuted_mnist")
    net = ModuleConfig(factory=f"{NETS}/torch_rnn.py:TokenGRU", tokens=True, width=4)
    (problem,) = task.problems_of_code(replace(trial(), task=task.Config(), model=net))
    assert "the inputs of this task are numbers, not symbols, and model.tokens is true" in problem


class Mixes(DiagonalRNN):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        return outputs - outputs.mean(0)


class Fails(DiagonalRNN):
    def forward(self, inputs: Tensor) -> Tensor:
        raise RuntimeError("no kernel")


class Overwrites(DiagonalRNN):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.mul_(0.5))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Mixes, "depend on the rest of the batch"),
        (Fails, "no kernel"),
        (Overwrites, "changes its inputs in place (by 0.5 times"),
    ],
)
def test_a_registered_model_of_others_keeps_the_same_contract(model: type[Model], words: str) -> None:
    config = trial()
    assert not list(DiagonalRNN.problems_of_code(config))
    (problem,) = model.problems_of_code(config)
    assert problem.startswith("the model diagonal_rnn ")
    assert words in problem


@pytest.mark.parametrize(
    "change", [lambda x: x.masked_fill_(x < 0, math.inf), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_(-1)]
)
def test_inputs_changed_in_place_by_no_size_are_named_without_one(change: Callable[[Tensor], Tensor]) -> None:
    breach, *_ = breaches(lambda x: change(x).reshape(2, 8, 1).clamp(-1, 1), torch.randn(2, 8, 1, dtype=torch.float64))
    assert breach.words.startswith("changes its inputs in place: whoever reads them")


def test_a_study_tells_the_fault_of_a_module_once_and_those_of_two_modules_both(tmp_path: Path) -> None:
    for name in ("Net1", "Net2"):
        text = BASE.format(first="pass", last="y - y.mean(0)", two_ways=False, states=1).replace("Net", name)
        (tmp_path / f"{name.lower()}.py").write_text(text)
    factories = [f"{tmp_path}/{name.lower()}.py:{name}" for name in ("Net1", "Net2")]
    (tmp_path / "study.yaml").write_text(
        "task: linear_functional\nmodel: {name: module, factory: x}\n"
        f"grid: {{model.factory: {factories}, model.width: [2, 3], task.horizon: [8, 12]}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_study(str(tmp_path / "study.yaml"), (), tmp_path)
    named = [problem.removeprefix("model: ").split(" gives a sequence")[0] for problem in caught.value.problems]
    assert named == factories


KEEPING = {
    "state in training": ("self.kept = h.detach() if self.training else None", "self.kept if self.training else None"),
    "state of training in evaluation": (
        "self.kept = h.detach() if self.training else self.kept",
        "None if self.training else self.kept",
    ),
    "count of calls": ("self.calls += self.training", "h0 * self.calls"),
    "generator of its own": ("pass", "torch.randn(h0.shape, generator=self.draws) if self.training else None"),
    "nothing": ("self.kept = h.detach()", "None"),
}
STATEFUL = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.rnn, self.head = nn.GRU(inputs, width, batch_first=True), nn.Linear(width, outputs)
        self.kept, self.calls, self.draws = None, 0, torch.Generator()
    def forward(self, x):
        h0 = torch.ones(1, len(x), self.rnn.hidden_size, dtype=x.dtype)
        y, h = self.rnn(x, {start})
        {end}
        return self.head(nn.functional.dropout(y, 0.2, self.training))
"""


@pytest.mark.parametrize("kind", KEEPING)
def test_a_state_that_is_kept_in_training_is_refused_by_studies_and_audits(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end, start = KEEPING[kind]
    (tmp_path / "stateful.py").write_text(STATEFUL.format(start=start, end=end))
    factory = f"{tmp_path}/stateful.py:Net"
    told = "; ".join(findings(ModuleConfig(factory=factory, width=4), SIZES).refusals)
    assert ("once it was called in training" in told) == (kind != "nothing"), told
    main(["audit", factory, "--width", "4", "--horizon", "8", "--seconds", "0.01", "--json"])
    assert ("once it was called in training" in capsys.readouterr().out) == (kind != "nothing")


@pytest.mark.parametrize("name", ["package:Net", "package.inner:Net", "file:Net", "file.py:Net", "other_name:Net"])
def test_a_linked_package_or_file_is_found_again_by_its_own_name(name: str, tmp_path: Path) -> None:
    real, workspace = tmp_path / "real" / "package", tmp_path / "workspace"
    real.mkdir(parents=True)
    workspace.mkdir()
    (real / "__init__.py").write_text("from .inner import Net\n")
    (real / "inner.py").write_text(STATEFUL.format(start="None", end="pass"))
    for link, target in (("package", real), ("other_name", real), ("file.py", real / "inner.py")):
        (workspace / link).symlink_to(target)
    target = f"{workspace}/{name}" if ".py" in name else name
    first = resolve(target, [workspace])
    assert resolve(target, [workspace]).make is first.make
    (real / "inner.py").write_text(STATEFUL.format(start="None", end="pass  # edited"))
    assert resolve(target, [workspace]).make is not first.make


def test_describe_and_audit_count_ids_alike(capsys: pytest.CaptureFixture[str]) -> None:
    factory = f"{NETS}/torch_rnn.py:TokenGRU"
    assert main(["describe", factory, "--inputs", "10", "tokens=true", "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["described"]
    assert item["tensors"][0]["shape"] == [10, 8]
    sizes = ("--inputs", "10", "--width", "8", "--horizon", "4", "--seconds", "0.01", "--json")
    counts = []
    for flag in ("--tokens", "tokens=true"):
        main(["audit", factory, *sizes, flag])
        found = json.loads(capsys.readouterr().out)
        counts.append(found["findings"][0]["numbers"]["parameters"])
        assert found["settings"]["tokens"] is True
    readout = 8 + 1  # of describe's two outputs, an audit has one
    assert counts == [sum(math.prod(each["shape"]) for each in item["tensors"]) - readout] * 2


@pytest.mark.parametrize("steps", ["[0, 100]", "[100, 0]"])
def test_every_training_of_a_study_is_checked(tmp_path: Path, steps: str) -> None:
    """A module that trains nothing: the check of one training stood for the other."""
    (tmp_path / "still.py").write_text(
        "import torch\n\n\nclass Still(torch.nn.Module):\n    def __init__(self, inputs, outputs, width):\n"
        "        super().__init__()\n        self.rnn = torch.nn.RNN(inputs, width, batch_first=True)\n"
        "        self.head = torch.nn.Linear(width, outputs)\n        self.requires_grad_(False)\n\n"
        "    def forward(self, x):\n        return self.head(self.rnn(x)[0])\n"
    )
    (tmp_path / "still.yaml").write_text(
        "task: {name: linear_functional, kernel: exponential, horizon: 20}\n"
        "model: {name: module, factory: 'still:Still', width: 4}\nperturbation: {balls: [weights]}\n"
        f"grid: {{training.steps: {steps}}}\n"
    )
    with pytest.raises(ConfigError, match=r"training\.steps is 100, but every parameter of still:Still is frozen"):
        load_study(str(tmp_path / "still.yaml"), (), tmp_path)


DRAWN = {
    "torch.randn(2, 4)": False,
    "torch.tensor(np.random.randn(2, 4))": False,
    "torch.full((2, 4), random.gauss(0, 1))": False,
    "torch.full((2, 4), torch.nan)": False,
    "torch.tensor(np.random.default_rng().standard_normal((2, 4)))": True,
    "torch.full((2, 4), random.Random().random())": True,
    "torch.empty(2, 4)": True,
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_weights_that_do_not_follow_from_the_seed_are_refused(tmp_path: Path, drawn: str) -> None:
    idle = "        self.idle = nn.Linear(2, 2)\n"
    text = BASE.format(first="pass", last="y", two_ways=False, states=1)
    text = text.replace(idle, f"{idle}        self.idle.bias = nn.Parameter({drawn}.float())\n")
    (tmp_path / "drawn_anywhere.py").write_text(f"import random\nimport numpy as np\n{text}")
    before = np.random.get_state()[1].copy(), random.getstate(), torch.get_rng_state()
    config = ModuleConfig(factory=f"{tmp_path}/drawn_anywhere.py:Net", width=4)
    told = "; ".join(findings(config, SIZES).refusals)
    assert ("begins with other weights each time it is built from the same seed" in told) == DRAWN[drawn], told
    assert not findings(config, SIZES, drawn=False).refusals  # a file has the weights
    assert (np.random.get_state()[1] == before[0]).all()
    assert random.getstate() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(
    ("value", "refused"),
    [("torch.empty(64, 64, 4)", False), ("torch.randn(2, 4, generator=torch.Generator().manual_seed(next(N)))", True)],
)
def test_a_buffer_may_be_uninitialized_and_not_drawn_elsewhere(
    tmp_path: Path, value: str, refused: bool, persistent: bool
) -> None:
    idle = "        self.idle = nn.Linear(2, 2)\n"
    text = BASE.format(first="pass", last="y", two_ways=False, states=1)
    text = text.replace(idle, f"{idle}        self.register_buffer('cache', {value}, {persistent})\n")
    (tmp_path / "cached.py").write_text(f"import itertools\n{text}N = itertools.count()\n")
    told = findings(ModuleConfig(factory=f"{tmp_path}/cached.py:Net", width=4), SIZES).refusals
    assert ["begins with other weights" in each for each in told] == [True] * refused, told
    assert not torch.are_deterministic_algorithms_enabled()
