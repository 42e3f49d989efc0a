"""Files of weights: safetensors, which we write, and the torch files of others, which are read without running code.

safetensors has no complex numbers of double precision: such a tensor stands in a file as ``[..., 2]``, and the file's
metadata ``complex`` lists its name.
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memsweep.errors import MemsweepError


class WeightsFileError(MemsweepError):
    """A file that gives no weights."""

    exit_code = 2  # part of the identity of every trial


def holds_special_tensors(tensors: Mapping[str, Tensor]) -> bool:
    """Whether some of the tensors are parameters, or no dense numbers on the processor."""
    return any(map(_is_special, tensors.values()))


def plain_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers in dense tensors: a sparse one with its zeros, a quantized one as the numbers it stands for.

    Raises:
        WeightsFileError: a tensor holds no numbers, or none that this version of torch can read.
    """
    return {name: _plain(path, name, tensor) for name, tensor in tensors.items()}


def _is_special(tensor: Tensor) -> bool:
    usual = type(tensor) is Tensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
    return not usual or tensor.requires_grad or tensor.is_quantized or tensor.is_nested


def _plain(path: Path, name: str, tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        raise _unreadable(path, name, "has a shape and no numbers (device meta): load them before you save it")
    if tensor.is_nested:
        raise _unreadable(path, name, "is a nested tensor, and a weight is one array")
    try:
        tensor = tensor.detach()
        tensor = tensor.dequantize() if tensor.is_quantized else tensor
        return tensor if tensor.layout is torch.strided else tensor.to_dense()
    except Exception as error:  # layouts that torch cannot convert fail in many ways
        raise _unreadable(path, name, f"({tensor.dtype}, {tensor.layout}) cannot be made dense: {error}") from error


def _unreadable(path: Path, name: str, why: str) -> WeightsFileError:
    return WeightsFileError(f"{path}: the tensor {name} {why}. Save module.state_dict() with dense weights.")


_COMPLEX, _METADATA = "complex", "__metadata__"
_NESTED = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
"""Keys under which training scripts keep the state dict of a module in a checkpoint."""
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
"""What wrappers put before every name: DistributedDataParallel, torch.compile, Lightning."""


def to_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file. Equal tensors and metadata of one key give equal bytes."""
    from safetensors.torch import save

    real = {name: torch.view_as_real(t) if t.dtype == torch.complex128 else t for name, t in tensors.items()}
    pairs = sorted(name for name, tensor in tensors.items() if tensor.dtype == torch.complex128)
    about = {**(metadata or {}), **({_COMPLEX: json.dumps(pairs)} if pairs else {})}
    return save({name: tensor.contiguous() for name, tensor in real.items()}, about or None)


def from_bytes(data: bytes) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        ValueError: it is none.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
        (length,) = struct.unpack("<Q", data[:8])
        pairs = json.loads(json.loads(data[8 : 8 + length]).get(_METADATA, {}).get(_COMPLEX, "[]"))
        return tensors | {name: torch.view_as_complex(tensors[name]) for name in pairs}
    except (SafetensorError, struct.error, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """The state dict in a file: safetensors, or what ``torch.save`` wrote; a pickle's code is never run.

    In a torch file it may lie below a usual key (``state_dict``), and a prefix of a wrapper that all names share
    (``module.``) falls away.

    Raises:
        WeightsFileError: the file cannot be read, or holds no state dict; the message says what to do.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsFileError(
            f"the file of weights {path} cannot be read: {error.strerror or error}. Give the path of a safetensors "
            "file, or of one that torch.save wrote."
        ) from error
    tensors = _of_torch(path) if _is_of_torch(path, data) else _of_safetensors(path, data)
    if holds_special_tensors(tensors):
        tensors = plain_tensors(path, tensors)
    while prefix := next((p for p in _PREFIXES if all(name.startswith(p) for name in tensors)), ""):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def other_kinds(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """Which given tensors are whole numbers where a module's own are not, or complex where they are real; in words."""
    both = {name: (given[name], own[name]) for name in given if name in own}
    whole = [name for name, (has, wanted) in both.items() if _counts(has) and not _counts(wanted)]
    found = [
        f"{name} is {_dtype(has)}, and the model's is {_dtype(wanted)}"
        for name, (has, wanted) in both.items()
        if name in whole[:1] or (has.is_complex() and not wanted.is_complex())
    ]
    if whole:
        found.append(
            f"{len(whole)} of its tensors are whole numbers, and the scales by which these stand for weights are not "
            "with them: save them dequantized"
        )
    return found


def _counts(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _is_of_torch(path: Path, data: bytes) -> bool:
    return zipfile.is_zipfile(path) or data[:1] == b"\x80"  # a zip file, or a pickle as torch wrote before 1.6


def _of_safetensors(path: Path, data: bytes) -> dict[str, Tensor]:
    try:
        tensors = from_bytes(data)
    except ValueError as error:
        raise WeightsFileError(
            f"{path} is no file of weights: neither safetensors ({error}) nor written by torch.save. Write one with "
            'safetensors.torch.save_file(module.state_dict(), "weights.safetensors").'
        ) from error
    return _state_dict(path, tensors)


def _of_torch(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in many ways
        reason = "it holds more than tensors and plain data"
        if "weights_only" not in str(error) and "Weights only" not in str(error):
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        raise WeightsFileError(
            f"{path} cannot be read without running its code ({reason}). Save the state dict alone: "
            'torch.save(module.state_dict(), "weights.pt").'
        ) from error
    for key in _NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    return _state_dict(path, content)


def _state_dict(path: Path, content: Any) -> dict[str, Tensor]:
    named = isinstance(content, Mapping) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    )
    if not named or not content:
        keys = f" with the keys {', '.join(map(str, list(content)[:8]))}" if isinstance(content, Mapping) else ""
        raise WeightsFileError(
            f"{path} holds a {type(content).__name__}{keys}, not a state dict of tensors by name. Save "
            "module.state_dict() alone."
        )
    return dict(content)
