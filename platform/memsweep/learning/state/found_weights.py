"""Finds the weights of a module in a file of others: whatever lies around them, and however they are called.

A file is read without running code of it (``torch.load`` with ``weights_only``, NumPy without pickles). Of all mappings
in it, and of all beginnings of names, those are taken whose names and shapes are the module's.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from memsweep.errors import listed
from memsweep.learning.state.weights_file import (
    WeightsFileError,
    from_bytes,
    holds_special_tensors,
    other_kinds,
    plain_tensors,
)

_DEPTH = 4
"""Levels of mappings in a file that are looked through."""
_USUAL = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "weights", "params")
"""Keys under which trainers keep a module, the likeliest first; others are looked at after them."""
_COUNTS = "num_batches_tracked"
_SHOWN = 6
_MISSING = " is missing"


@dataclass(frozen=True)
class FoundWeights:
    """Weights that fit a module.

    Attributes:
        tensors: under the module's own names.
        said: where they lay, and what else the file holds.
    """

    tensors: dict[str, Tensor]
    said: str


@dataclass(frozen=True)
class _Candidate:
    """The tensors of one mapping in a file; ``path`` leads to it, ``others`` are its entries that are no tensors."""

    path: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    others: tuple[str, ...]


def find_weights(path: Path, own: Mapping[str, Tensor]) -> FoundWeights:
    """The weights in a file that are a module's.

    Args:
        path: safetensors, what ``torch.save`` wrote, or ``npz``.
        own: the module's state dict, with its parameters themselves (``keep_vars``). Where several names have one
            tensor, the file needs one of them.

    Raises:
        WeightsFileError: the file cannot be read, nothing in it has all names and shapes (with the nearest), or it has
            two values of one tensor.
    """
    needed = {name: tensor for name, tensor in own.items() if not name.endswith(_COUNTS)}
    candidates = sorted(_candidates(_content(path)), key=_likelihood)
    fitting = [
        (each, start) for each in candidates for start in _starts(each, needed) if not _lacks(each, start, needed)
    ]
    if not fitting:
        raise WeightsFileError(_nothing_fits(path, candidates, needed))
    chosen, start = fitting[0]
    tensors = {name: chosen.tensors[start + name] for name in own if start + name in chosen.tensors}
    if holds_special_tensors(tensors):
        tensors = plain_tensors(path, tensors)
    if problems := other_kinds(own, tensors):
        raise WeightsFileError(f"{path}: {'; '.join(problems[:3])}. Save the weights in the precision of the module.")
    if problems := two_values(own, tensors):
        raise WeightsFileError(f"{path}: {'; '.join(problems[:3])}. Give the module that the file is of.")
    return FoundWeights(tensors, _said(path, chosen, start, tensors, fitting[1:]))


def two_values(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    """Which given tensors differ although the module has one tensor under their names, in words.

    Args:
        own: the module's state dict, with its parameters themselves.
        given: under the module's names.
    """
    found = []
    for first, *others in _shared(own).values():
        there = [name for name in (first, *others) if name in given]
        found += [
            f"{there[0]} and {other} differ, and are one tensor in the module"
            for other in there[1:]
            if not _equal(given[there[0]], given[other])
        ]
    return found


def _shared(own: Mapping[str, Tensor]) -> dict[int, list[str]]:
    """The names of each tensor of a module."""
    names: dict[int, list[str]] = {}
    for name, tensor in own.items():
        names.setdefault(id(tensor), []).append(name)
    return names


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, in whatever precisions."""
    kind = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    return one.shape == other.shape and torch.allclose(one.to(kind), other.to(kind), rtol=0, atol=0, equal_nan=True)


def _content(path: Path) -> Any:
    """The content of a file, without running its code."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsFileError(f"the file of weights {path} cannot be read: {error.strerror or error}.") from error
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return {
                    name: torch.from_numpy(arrays[name]) for name in arrays.files if arrays[name].dtype.kind in "fiuc"
                }
        if zipfile.is_zipfile(path) or data[:1] == b"\x80":
            return torch.load(path, map_location="cpu", weights_only=True)
        return from_bytes(data)
    except Exception as error:  # a damaged file can fail in many ways
        refused = "weights only" in str(error).lower().replace("_", " ")
        why = "it holds objects of other classes" if refused else (str(error).splitlines() or [type(error).__name__])[0]
        raise WeightsFileError(
            f"{path} cannot be read without running its code ({why[:200]}). Where you trust it, load it in Python and "
            'save the tensors alone: torch.save(module.state_dict(), "weights.pt").'
        ) from error


def _candidates(content: Any, path: tuple[str, ...] = ()) -> Iterator[_Candidate]:
    if not isinstance(content, Mapping) or len(path) > _DEPTH:
        return
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if tensors:
        yield _Candidate(path, tensors, tuple(str(name) for name in content if str(name) not in tensors))
    for name, value in content.items():
        yield from _candidates(value, (*path, str(name)))


def _likelihood(candidate: _Candidate) -> tuple[int, int]:
    """Order in which candidates are tried: by depth, then usual keys before others."""
    last = candidate.path[-1] if candidate.path else ""
    return len(candidate.path), _USUAL.index(last) if last in _USUAL else len(_USUAL)


def _starts(candidate: _Candidate, needed: Mapping[str, Tensor]) -> list[str]:
    """What may stand before every name of the module, the shortest first: ``module.``, ``_orig_mod.``, ``lstm.``."""
    first = next(iter(_shared(needed).values()), [""])
    starts = {name.removesuffix(own) for own in first for name in candidate.tensors if name.endswith(own)}
    return sorted((start for start in starts if not start or start[-1] in "._/"), key=lambda start: (len(start), start))


def _lacks(candidate: _Candidate, start: str, needed: Mapping[str, Tensor]) -> list[str]:
    """The names of the module that a candidate has not, or in another shape, in words."""
    wrong = []
    for names in _shared(needed).values():
        there = [name for name in names if start + name in candidate.tensors]
        wrong += [] if there else [f"{' or '.join(names)}{_MISSING}"]
        for name in there:
            found, wanted = list(candidate.tensors[start + name].shape), list(needed[name].shape)
            wrong += [] if found == wanted else [f"{name} is {found}, and the module's {wanted}"]
    return wrong


def _said(
    path: Path, chosen: _Candidate, start: str, tensors: Mapping[str, Tensor], others: list[tuple[_Candidate, str]]
) -> str:
    below = f" below {'.'.join(chosen.path)}" if chosen.path else ""
    called = f", as {start}*" if start else ""
    words = [f"{len(tensors)} tensors of {path.name}{below}{called}"]
    taken = {start + name for name in tensors}
    if ignored := [name for name in (*chosen.tensors, *chosen.others) if name not in taken]:
        words.append(f"ignored: {listed(ignored, _SHOWN)}")
    if others:
        also = [f"{'.'.join(each.path)}{': ' if each.path else ''}{begin}*" for each, begin in others]
        words.append(f"as many fit, and were not taken: {listed(also, _SHOWN)}")
    return "; ".join(words)


def _nothing_fits(path: Path, candidates: list[_Candidate], needed: Mapping[str, Tensor]) -> str:
    if not candidates:
        return f"{path} holds no tensors by name. Save module.state_dict()."
    tries = [
        (_lacks(each, start, needed), each, start) for each in candidates for start in _starts(each, needed) or [""]
    ]
    wrong, nearest, start = min(tries, key=lambda each: len(each[0]))
    shown = f"{start}* of {'.'.join(nearest.path)}" if nearest.path else f"{start}*"
    more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return (
        f"nothing in {path} has the names and shapes of the module. The nearest ({shown}): {'; '.join(wrong[:3])}"
        f"{more}. The file has {listed([*nearest.tensors], _SHOWN)}. {_advice(wrong)}"
    )


def _advice(wrong: Sequence[str]) -> str:
    if all(each.endswith(_MISSING) for each in wrong):
        return "Give a file that has them, or the arguments with which the stored module was made."
    return (
        "Give the module the sizes of the stored one (audit: --width, --inputs, --outputs; measure: model.width=, "
        "--inputs, --outputs)."
    )
