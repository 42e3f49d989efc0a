"""Weights of a module in files of others: which are taken, who chooses among several, and what is said of the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from memsweep.learning.state.found_weights import SeveralFitError, find_weights
from memsweep.learning.state.weights_file import WeightsFileError

State = dict[str, Tensor]


def linear(value: float) -> State:
    return {"weight": torch.full((3, 2), float(value)), "bias": torch.full((3,), float(value))}


def own() -> State:
    return nn.Linear(2, 3).state_dict(keep_vars=True)


def named(start: str, state: State) -> State:
    return {start + name: tensor for name, tensor in state.items()}


@pytest.mark.parametrize(
    ("content", "addresses"),
    [
        ({**named("encoder.", linear(1)), **named("decoder.", linear(2))}, ("encoder", "decoder")),
        ({"ema": linear(1), "model": linear(2)}, ("ema", "model")),
        (
            {"state_dict": named("model.", linear(1)), "ema_state_dict": named("model.", linear(2))},
            ("state_dict.model", "ema_state_dict.model"),
        ),
        ({**linear(1), "ema": linear(2)}, ("", "ema")),
        ({**named("net.", linear(1)), **named("net_", linear(2))}, ("net.", "net_")),
        ({**named("net.", linear(1)), "net": linear(2)}, ("net.", "net:")),
        ({**named("a.b.", linear(1)), "a": named("b.", linear(2))}, ("a.b.", "a:b.")),
        ({"a": {"b": linear(1)}, "a.b": linear(2)}, ("a:b:", "a.b:")),
        ({**named("net/", linear(1)), **named("net_", linear(2))}, ("net/", "net_")),
    ],
)
def test_of_several_weights_that_differ_somebody_chooses(
    tmp_path: Path, content: State, addresses: tuple[str, str]
) -> None:
    torch.save(content, file := tmp_path / "w.pt")
    with pytest.raises(SeveralFitError, match="2 sets of weights that fit the module") as told:
        find_weights(file, own())
    for value, address in enumerate(addresses, 1):
        assert f"{file}#{address}" in str(told.value)
        found = find_weights(Path(f"{file}#{address}"), own())
        assert float(found.tensors["bias"][0]) == value
        others = found.said.partition("were not taken: ")[2]
        assert len(others.split(", ")) == 1, "what was taken is not among the others"
    with pytest.raises(WeightsFileError, match="no weights of the module called 'other'"):
        find_weights(Path(f"{file}#other"), own())


@pytest.mark.parametrize(("taken", "other"), [("model", "ema"), ("ema", "model")])
def test_what_an_address_names_was_taken(tmp_path: Path, taken: str, other: str) -> None:
    torch.save({"model": linear(1), "ema": linear(2)}, tmp_path / "w.pt")
    said = find_weights(tmp_path / f"w.pt#{taken}", own()).said
    assert said == f"2 tensors of w.pt below {taken}; as many fit, and were not taken: {other}: *"


def test_of_equal_weights_one_is_taken(tmp_path: Path) -> None:
    torch.save({"model": linear(1), "ema": linear(1)}, tmp_path / "w#1.pt")
    assert "were not taken: ema" in find_weights(tmp_path / "w#1.pt", own()).said


def sharded(folder: Path, places: dict[str, str]) -> Path:
    """An index, with a file for each of its shards that lies in the folder."""
    for file in {*places.values()} - {"../a.safetensors"}:
        save_file({name: linear(1)[name] for name in linear(1) if places[name] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return index


def test_all_shards_of_an_index_are_read(tmp_path: Path) -> None:
    index = sharded(tmp_path, {"weight": "a.safetensors", "bias": "b.safetensors"})
    found = find_weights(index, own())
    assert {name: tuple(tensor.shape) for name, tensor in found.tensors.items()} == {"weight": (3, 2), "bias": (3,)}
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(WeightsFileError, match=r"b\.safetensors: there is no such file"):
        find_weights(index, own())
    save_file({"other": torch.ones(1)}, tmp_path / "b.safetensors")
    with pytest.raises(WeightsFileError, match=r"lacks bias, which model\.safetensors\.index\.json says it has"):
        find_weights(index, own())
    with pytest.raises(WeightsFileError, match="shards are files beside it"):
        find_weights(sharded(tmp_path, {"weight": "../a.safetensors", "bias": "b.safetensors"}), own())


def whole(path: Path) -> None:
    np.savez(path, **{name: tensor.numpy().astype("i1") for name, tensor in linear(3).items()})


@pytest.mark.parametrize(
    ("name", "write", "told"),
    [
        ("w.npz", whole, "2 of its tensors are whole numbers, .* save them dequantized"),
        ("folder", Path.mkdir, r"is a folder, .* of a sharded checkpoint its model\.safetensors\.index\.json"),
        ("absent.pt", lambda path: None, "there is no such file"),
        ("junk.pt", lambda path: path.write_bytes(b"junk" * 9), "neither safetensors .* nor npz, nor written by torch"),
        ("x.index.json", lambda path: path.write_text("[]"), "is no index of a sharded checkpoint"),
    ],
)
def test_what_is_no_file_of_weights_is_said(
    tmp_path: Path, name: str, write: Callable[[Path], object], told: str
) -> None:
    write(tmp_path / name)
    with pytest.raises(WeightsFileError, match=told):
        find_weights(tmp_path / name, own())
