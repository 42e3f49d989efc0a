"""Reads files of weights of others, in any of their forms, without running code of theirs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.errors import listed
from memsweep.learning.state.weights_file import WeightsFileError, from_bytes

_SHARDS = ".index.json"
_MAP = "weight_map"
_SHOWN = 4


def is_plain(path: Path) -> bool:
    """Whether ``weights_file.read_weights`` reads files of this form: safetensors, or what ``torch.save`` wrote."""
    return path.is_file() and path.suffix not in (".npz", ".json")


def content_of(path: Path) -> Any:
    """The content of a file: safetensors, the index of its shards, npz, or what ``torch.save`` wrote.

    Raises:
        WeightsFileError: it cannot be read, or is something else; the message says what is needed.
    """
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir())
        inside = f"It holds {listed(names, _SHOWN)}. " if names else ""
        raise WeightsFileError(
            f"{path} is a folder, and a file of weights is needed: of a sharded checkpoint its "
            f"model.safetensors{_SHARDS}. {inside}Give one file."
        )
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise WeightsFileError(f"{path}: there is no such file. Give the path of a file of weights.") from error
    except OSError as error:
        raise WeightsFileError(f"the file of weights {path} cannot be read: {error.strerror or error}.") from error
    if path.name.endswith(_SHARDS):
        return _of_shards(path, data)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {
                    name: torch.from_numpy(arrays[name]) for name in arrays.files if arrays[name].dtype.kind in "fiuc"
                }
        if zipfile.is_zipfile(path) or data[:1] == b"\x80":
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in many ways
        refused = "weights only" in str(error).lower().replace("_", " ")
        why = "it holds objects of other classes" if refused else (str(error).splitlines() or [type(error).__name__])[0]
        raise WeightsFileError(
            f"{path} cannot be read without running its code ({why[:200]}). Where you trust it, load it in Python and "
            'save the tensors alone: torch.save(module.state_dict(), "weights.pt").'
        ) from error
    try:
        return from_bytes(data)
    except ValueError as error:
        raise WeightsFileError(
            f"{path} is no file of weights: neither safetensors ({error}) nor npz, nor written by torch.save."
        ) from error


def _of_shards(path: Path, data: bytes) -> dict[str, Tensor]:
    """The tensors of a checkpoint in several files, which an index beside them names."""
    try:
        places = {str(name): str(file) for name, file in json.loads(data)[_MAP].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsFileError(
            f"{path} is no index of a sharded checkpoint: it has no {_MAP}. Give a file of weights."
        ) from error
    tensors: dict[str, Tensor] = {}
    for file in sorted({*places.values()}):
        if Path(file).name != file or file.endswith(_SHARDS):
            raise WeightsFileError(f"{path} names the shard {file!r}; shards are files beside it.")
        content = content_of(path.parent / file)
        shard = content if isinstance(content, Mapping) else {}
        own = [name for name in places if places[name] == file]
        if absent := [name for name in own if name not in shard]:
            raise WeightsFileError(
                f"{path.parent / file} lacks {listed(absent, _SHOWN)}, which {path.name} says it has."
            )
        tensors |= {name: shard[name] for name in own}
    return tensors
