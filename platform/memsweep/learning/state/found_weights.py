"""Finds the weights of a module in a file of others: whatever lies around them, and however they are called.

A file is read without running code of it (``torch.load`` with ``weights_only``, NumPy without pickles). Of all mappings
in it, and of all beginnings of names, those are taken whose names and shapes are the module's. Where several fit and
differ, an address chooses: ``ckpt.pt#encoder`` are the tensors of ckpt.pt whose names begin with ``encoder.``, or that
lie below the key ``encoder``. Where that is not one, ``#encoder.``, ``#encoder_`` and ``#encoder:`` (the key) are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from memsweep.errors import listed
from memsweep.learning.state.foreign_file import content_of, is_plain
from memsweep.learning.state.weights_file import WeightsFileError, holds_special_tensors, other_kinds, plain_tensors

_DEPTH = 4
"""Levels of mappings in a file that are looked through."""
_COUNTS = "num_batches_tracked"
_SHOWN = 6
_MISSING = " is missing"


_AT = "#"
_ENDS = "._/"
_KEY = ":"


class SeveralFitError(WeightsFileError):
    """A file with several sets of weights of a module, which differ, so that somebody must choose."""


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

    def address(self, start: str) -> str:
        """The address of the tensors whose names begin so."""
        return ".".join(filter(None, (*self.path, start.rstrip(_ENDS))))

    def whole_address(self, start: str) -> str:
        """The same for one beginning alone: each key with a colon, and the beginning as it is."""
        return _KEY.join((*self.path, start))


_Fit = tuple[_Candidate, str]
"""What fits a module, and what stands before its names there."""


def find_weights(path: Path, own: Mapping[str, Tensor]) -> FoundWeights:
    """The weights in a file that are a module's.

    Args:
        path: as of ``content_of``; behind a ``#`` which of its weights.
        own: the module's state dict, with its parameters themselves (``keep_vars``). Where several names have one
            tensor, the file needs one of them.

    Raises:
        SeveralFitError: several that differ have all names and shapes, and no address chooses.
        WeightsFileError: the file cannot be read, nothing in it has all names and shapes (with the nearest), or it has
            two values of one tensor.
    """
    path, address = _parted(path)
    needed, candidates = _needed(own), [*_candidates(content_of(path))]
    fitting = _fitting(candidates, needed)
    chosen = fitting if address is None else _chosen(fitting, address)
    if not fitting:
        raise WeightsFileError(_nothing_fits(path, candidates, needed))
    if not chosen:
        raise WeightsFileError(
            f"{path} has no weights of the module called {address!r}. Give {_addresses(path, fitting)}."
        )
    tensors = _taken(path, own, *chosen[0])
    if any(_differ(tensors, _taken(path, own, *other)) for other in chosen[1:]):
        raise SeveralFitError(
            f"{path} holds {len(chosen)} sets of weights that fit the module, and their numbers differ. Give one of "
            f"them: {_addresses(path, chosen)}."
        )
    if problems := other_kinds(own, tensors):
        raise WeightsFileError(f"{path}: {'; '.join(problems[:3])}.")
    if problems := two_values(own, tensors):
        raise WeightsFileError(f"{path}: {'; '.join(problems[:3])}. Give the module that the file is of.")
    others = [fits for fits in fitting if fits is not chosen[0]]
    return FoundWeights(tensors, _said(path, *chosen[0], tensors, others))


def beside(path: Path, own: Mapping[str, Tensor], taken: Mapping[str, Tensor]) -> str:
    """Where weights lay that were taken from a file by a usual key, and what else fits and differs; empty: nothing.

    Args:
        path: without an address.
        own: as of ``find_weights``.
        taken: as ``read_weights`` gives them.
    """
    found = [(fits, _taken(path, own, *fits)) for fits in _fitting([*_candidates(content_of(path))], _needed(own))]
    others = [fits for fits, tensors in found if _differ(tensors, taken)]
    chosen = [(fits, tensors) for fits, tensors in found if not _differ(tensors, taken)]
    if not chosen or not others:
        return ""
    fits, tensors = chosen[0]
    return _said(path, *fits, tensors, others)


def file_of(path: Path) -> Path:
    """The file of a path that may have an address.

    Raises:
        WeightsFileError: there is no such file; the message says what is needed.
    """
    file, _ = _parted(path)
    if not file.is_file():
        content_of(file)
    return file


def _parted(path: Path) -> tuple[Path, str | None]:
    """A file, and which of its weights; None where that is not said, as by a name that has a ``#`` itself."""
    file, at, address = str(path).rpartition(_AT)
    return (Path(file), address) if at and not path.exists() else (path, None)


def _needed(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a module that a file must have."""
    return {name: tensor for name, tensor in own.items() if not name.endswith(_COUNTS)}


def _fitting(candidates: Sequence[_Candidate], needed: Mapping[str, Tensor]) -> list[_Fit]:
    return [(each, start) for each in candidates for start in _starts(each, needed) if not _lacks(each, start, needed)]


def _taken(path: Path, own: Mapping[str, Tensor], chosen: _Candidate, start: str) -> dict[str, Tensor]:
    tensors = {name: chosen.tensors[start + name] for name in own if start + name in chosen.tensors}
    return plain_tensors(path, tensors) if holds_special_tensors(tensors) else tensors


def _differ(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return any(not _equal(tensor, other[name]) for name, tensor in one.items() if name in other)


def _chosen(fitting: Sequence[_Fit], address: str) -> list[_Fit]:
    """Those of the fits that an address names. A whole address names one alone. ``Path`` drops a slash at its end."""
    whole = [fits for fits in fitting if fits[0].whole_address(fits[1]).removesuffix("/") == address]
    return whole or [fits for fits in fitting if fits[0].address(fits[1]) == address]


def _addresses(path: Path, fitting: Sequence[_Fit]) -> str:
    """Addresses that choose one each: the whole one where another would be the same."""
    counts = Counter(each.address(start) for each, start in fitting)
    found = [
        each.address(start) if counts[each.address(start)] == 1 else each.whole_address(start)
        for each, start in fitting
    ]
    return listed([f"{path}{_AT}{address}" for address in found], _SHOWN)


def same_weights(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two states have the same names and numbers."""
    return one.keys() == other.keys() and not _differ(one, other)


def found_in(path: Path, own: Mapping[str, Tensor]) -> FoundWeights | None:
    """The same; None of a file of the plain forms in which nothing is found. ``read_weights`` reads some of these.

    Raises:
        WeightsFileError: as of ``find_weights``, where somebody must choose, or nothing else reads the file.
    """
    try:
        return find_weights(path, own)
    except SeveralFitError:
        raise
    except WeightsFileError:
        if not is_plain(path):
            raise
        return None


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


def _candidates(content: Any, path: tuple[str, ...] = ()) -> Iterator[_Candidate]:
    if not isinstance(content, Mapping) or len(path) > _DEPTH:
        return
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if tensors:
        yield _Candidate(path, tensors, tuple(str(name) for name in content if str(name) not in tensors))
    for name, value in content.items():
        yield from _candidates(value, (*path, str(name)))


def _starts(candidate: _Candidate, needed: Mapping[str, Tensor]) -> list[str]:
    """What may stand before every name of the module, the shortest first: ``module.``, ``_orig_mod.``, ``lstm.``."""
    first = next(iter(_shared(needed).values()), [""])
    starts = {name.removesuffix(own) for own in first for name in candidate.tensors if name.endswith(own)}
    return sorted((start for start in starts if not start or start[-1] in _ENDS), key=lambda start: (len(start), start))


def _lacks(candidate: _Candidate, start: str, needed: Mapping[str, Tensor]) -> list[str]:
    """The names of the module that a candidate has not, or in another shape, in words."""
    wrong = []
    for names in _shared(needed).values():
        there = [name for name in names if start + name in candidate.tensors]
        wrong += [] if there else [f"{' or '.join(names)}{_MISSING}"]
        for name in there:
            found, wanted = _shape(candidate.tensors[start + name]), _shape(needed[name])
            wrong += [] if found == wanted else [f"{name} is {found}, and the module's {wanted}"]
    return wrong


def _shape(tensor: Tensor) -> str:
    return "nested" if tensor.is_nested else str(list(tensor.shape))


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
