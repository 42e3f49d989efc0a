"""Finding, importing and calling what a user wrote, and the sentence for each way in which that can go wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from memsweep.errors import ModuleError
from memsweep.models.base import Signature
from memsweep.models.module.config import ArgumentNames
from memsweep.models.module.factory import checked_outputs, probe_inputs, resolve
from paths import TESTS

NETS = TESTS / "support" / "nets"
SIZES = Signature(inputs=3, outputs=2, horizon=6)


@pytest.fixture(autouse=True)
def path_as_before() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.mark.parametrize(
    ("target", "names", "arguments"),
    [
        ("min_gru:MinGRU", ArgumentNames(), {"layers": 2}),
        ("selective_ssm:SelectiveSSM", ArgumentNames(width="d_model"), {}),
        ("transformer:Transformer", ArgumentNames(), {}),
        ("torch_rnn:gru", ArgumentNames(), {"layers": 2}),
        ("torch_rnn:lstm", ArgumentNames(), {}),
        ("nets/torch_rnn.py:TokenGRU", ArgumentNames(), {}),
    ],
)
def test_a_plain_file_gives_its_module(target: str, names: ArgumentNames, arguments: dict[str, int]) -> None:
    factory = resolve(target, [NETS, NETS.parent])
    module = factory.build(SIZES, 4, arguments, names)
    inputs = probe_inputs(SIZES, tokens="Token" in target)
    assert checked_outputs(target, module, inputs, 2).shape == (2, 6, 2)
    assert factory.file is not None
    assert factory.file.parent == NETS


def test_the_seed_decides_the_weights_and_leaves_the_callers_generator_alone() -> None:
    factory = resolve("min_gru:MinGRU", [NETS])
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (factory.build(SIZES, 4, seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["readout.weight"], other["readout.weight"])
    torch.manual_seed(0)  # the weights are those of a script that seeds torch and calls the class
    assert torch.equal(type(factory.build(SIZES, 4))(3, 2, 4).state_dict()["readout.weight"], first["readout.weight"])


def test_an_installed_package_is_found_by_its_name() -> None:
    factory = resolve("torch.nn:GRU", [NETS])
    assert factory.make is nn.GRU
    module = factory.build(SIZES, 4, {"batch_first": True}, ArgumentNames(inputs="input_size", width="hidden_size"))
    inputs = probe_inputs(SIZES, tokens=False)
    assert torch.equal(checked_outputs("torch.nn:GRU", module, inputs, 4), module(inputs)[0])


class InADict(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"outputs": x}


def test_outputs_in_anything_but_a_tuple_are_refused() -> None:
    with pytest.raises(ModuleError, match=r"gave a dict .*\[2, 6, 2\], or a tuple that begins with them: wrap it"):
        checked_outputs("mine:InADict", InADict(), probe_inputs(SIZES, tokens=False), 2)


def test_an_edited_file_is_imported_again_with_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "own_parts.py").write_text("SIZE = 1\n")
    (tmp_path / "own_nets.py").write_text(
        "from torch import nn\nimport own_parts\ndef net():\n    return nn.Linear(1, own_parts.SIZE)\n"
    )
    no_width = ArgumentNames(width=None)
    assert resolve("own_nets:net", [tmp_path]).build(SIZES, 4, names=no_width).out_features == 1
    (tmp_path / "own_parts.py").write_text("SIZE = 2\n")  # of equal length, within the same second
    assert resolve("own_nets:net", [tmp_path]).build(SIZES, 4, names=no_width).out_features == 2
    other = tmp_path / "other"
    other.mkdir()
    (other / "own_nets.py").write_text("from torch import nn\ndef net():\n    return nn.Identity()\n")
    assert isinstance(resolve("own_nets:net", [other]).build(SIZES, 4, names=no_width), nn.Identity)
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("min_gru", "Write the module, a colon and the name"),
        ("min_gruu:MinGRU", "no min_gruu.py or min_gruu/ in .*nets, and no installed package.*mean 'min_gru'"),
        ("nets/none.py:A", "there is no file nets/none.py"),
        ("min_gru:MiniGRU", "has no 'MiniGRU'. Did you mean 'MinGRU'.*Layer, MinGRU"),
        ("min_gru:__doc__", "is a str, not a class or function"),
    ],
)
def test_a_wrong_target_is_refused(target: str, message: str) -> None:
    with pytest.raises(ModuleError, match=message):
        resolve(target, [NETS])


def test_a_file_that_cannot_be_imported_says_where(tmp_path: Path) -> None:
    (tmp_path / "faulty_nets.py").write_text("import torch\n\nx = torch.zeros(1) + undefined\n")
    with pytest.raises(ModuleError, match=r"import of faulty_nets failed: NameError \(faulty_nets.py, line 3\)"):
        resolve("faulty_nets:Net", [tmp_path])
    (tmp_path / "unread_nets.py").write_text("import torch\nclass Net\n    pass\n")
    with pytest.raises(ModuleError, match=r"failed: SyntaxError: expected ':' \(unread_nets.py, line 2\)\.$"):
        resolve("unread_nets:Net", [tmp_path])
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ModuleError, match=r"has the name of the module json .*Give the file another name"):
        resolve("json:Net", [tmp_path])


@pytest.mark.parametrize(
    ("target", "names", "arguments", "message"),
    [
        ("selective_ssm:SelectiveSSM", ArgumentNames(), {}, "no argument 'width'.*d_model.*model.width_argument"),
        ("torch.nn:LSTM", ArgumentNames(), {}, "no argument by name.*width_argument: null"),
        (
            "bisect:insort",
            ArgumentNames(),
            {"lo": 0},
            r"no argument 'width'.*It needs the arguments a, x: give them .*model.inputs_argument: a\.",
        ),
        ("odd_state:WithLayers", ArgumentNames(), {}, "model.width_argument: hidden_dim, for example"),
        (
            "odd_state:OddNames",
            ArgumentNames(),
            {},
            r"width_argument: n_hid, for.* arguments n_in, n_hid, n_out: .*model.inputs_argument: n_in\.",
        ),
        (
            "odd_state:OddNames",
            ArgumentNames("n_in", "n_out"),
            {},
            r"needs the argument n_hid: .*model.width_argument: n_hid",
        ),
        ("selective_ssm:SelectiveSSM", ArgumentNames(width="dmodel"), {}, "width_argument is 'dmodel'.*mean 'd_model'"),
        ("min_gru:MinGRU", ArgumentNames(), {"layer": 2}, "no argument 'layer', which.*mean 'layers'"),
        ("min_gru:MinGRU", ArgumentNames(), {"width": 2}, r"takes the width of the trial \(4\).*leave it out"),
        ("min_gru:Layer", ArgumentNames(), {}, "needs the argument features: give it under model.arguments"),
        ("min_gru:MinGRU", ArgumentNames(), {"layers": "two"}, r"layers='two'\) failed: TypeError \(min_gru.py, line"),
        (
            "copy:copy",
            ArgumentNames(width=None),
            {"x": 1},
            r"copy:copy\(x=1\) gave an int, which is no torch.nn.Module",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    target: str, names: ArgumentNames, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ModuleError, match=message):
        resolve(target, [NETS]).build(SIZES, 4, arguments, names)


class Wrong(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.read = how, nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.read(inputs)
        if self.how == "time first":
            return outputs.transpose(0, 1)
        if self.how == "states":
            return inputs
        return outputs[:, -1]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("time first", r"shape \[6, 2, 2\].*batch_first=True"),
        ("states", r"shape \[2, 6, 3\].*must be the outputs of the task \(2\)"),
        ("last step", r"shape \[2, 2\].*an output at each step"),
    ],
)
def test_outputs_of_another_shape_are_refused(how: str, message: str) -> None:
    with pytest.raises(ModuleError, match=message):
        checked_outputs("nets:Wrong", Wrong(how).eval(), probe_inputs(SIZES, tokens=False), 2)
    with pytest.raises(ModuleError, match=r"failed on ids of shape \[2, 6\]: RuntimeError.*model.tokens"):
        checked_outputs("nets:Wrong", Wrong(how).eval(), probe_inputs(SIZES, tokens=True), 2)
