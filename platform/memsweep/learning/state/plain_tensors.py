"""Tensors of files as plain ones: dense numbers without a graph, as a model computes with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
