"""The sequences of a trained model of others, in place of a task.

No labels are needed: its changes are held against its own outputs (``perturbation.reference`` self). These are stored
beside the sequences, so that errors of rounded models, which are those of a target, are shares of the same variance.

Letters: N models, B batch, S sequences, T time, I inputs, O outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from memsweep.config.core.fields import setting
from memsweep.config.load.foreign import foreign_code
from memsweep.config.schema.trial import SELF, TrialConfig
from memsweep.data.task import Batch, Task, epoch_rows
from memsweep.errors import ConfigError, ModuleError, counted
from memsweep.learning.state.weights_file import from_bytes, to_bytes
from memsweep.models.module.factory import outputs_of
from memsweep.streams import Stream

NAME = "own_outputs"
_AT_ONCE = 32
"""Sequences of one call: a trained model of others may be large."""
LEAST = 2
"""Sequences: of one there is no variance."""
_SAME = 1e-12
"""Share of the largest output below which a difference is rounding."""
_SOURCE = "the sequences"


class OwnOutputs(Task):
    """Sequences of a file, with the outputs of the unmoved model; mean squared error."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The sequences, with the outputs of the unmoved model."""

        file: str = setting(doc="safetensors: inputs [S, T, I] or ids [S, T], and outputs [S, T, O]")

    @classmethod
    def problems(cls, trial: TrialConfig) -> Iterator[str]:
        if trial.perturbation.reference != SELF:
            yield (
                f"perturbation.reference is {trial.perturbation.reference}, but sequences without a task have no "
                "target: use self"
            )

    @property
    def inputs(self) -> int:
        """Numbers of a step; of ids the largest, which a module reads at a step without a symbol (``as_ids``)."""
        given = self._data["inputs"]
        return given.shape[-1] if given.is_floating_point() else max(int(given.max()), 1)

    @property
    def outputs(self) -> int:
        return self._data["outputs"].shape[-1]

    @property
    def horizon(self) -> int:
        return self._data["inputs"].shape[1]

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        rows = torch.from_numpy(epoch_rows(stream, index, size, len(self._data["inputs"])))
        return Batch(self._symbols[rows], self._data["outputs"][rows])

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs - batch.targets).square().mean((-3, -2, -1))

    def chance(self) -> float:
        """Of the best answer that ignores the sequences: the variance of the outputs over them."""
        return max(float(self._data["outputs"].var(0, correction=0).mean()), torch.finfo(torch.float64).tiny)

    def oracle(self, inputs: Tensor) -> Tensor:
        """The stored outputs of these very sequences."""
        same = [(self._symbols == each).flatten(1).all(1).int().argmax() for each in inputs]
        return self._data["outputs"][torch.stack(same)]

    @property
    def _symbols(self) -> Tensor:
        """The numbers; or the ids, with -1 for the largest, so that no id is needed beyond those that are given."""
        given = self._data["inputs"]
        return given if given.is_floating_point() else given.masked_fill(given == self.inputs, -1)

    @property
    def _data(self) -> dict[str, Tensor]:
        return _read(self.config.file)


@functools.lru_cache(maxsize=2)
def _read(file: str) -> dict[str, Tensor]:
    return from_bytes(Path(file).read_bytes())


class Sequences(NamedTuple):
    """Sequences of a measurement as they were read.

    Attributes:
        tested: the number of them that is measured.
        given: all of them.
        kind: their steps and inputs, in words.
    """

    tested: int
    given: int
    kind: str


def sequences_in(file: str) -> Sequences:
    """The sequences of a file of ``write_own_outputs``."""
    data = _read(file)
    count, steps, *numbers = data["inputs"].shape
    inputs = [counted(number, "input") for number in numbers]
    kind = ", ".join([counted(steps, "step" if inputs else "id"), *inputs])
    return Sequences(count, int(data["given"]), kind)


def drawn(sequences: Tensor, count: int) -> Tensor:
    """``count`` of the sequences in a random order, at most all: people sort them, and measures take the first."""
    order = torch.randperm(len(sequences), generator=torch.Generator().manual_seed(0))
    return sequences[order[:count]]


def write_own_outputs(module: nn.Module, sequences: Tensor, file: Path, given: int) -> Tensor:
    """Writes the file of a task: sequences, and what a module answers to them, in the precision of its weights.

    Args:
        module: in eval mode, in float64.
        sequences: ``[S, T, I]`` float64, or ids ``[S, T]``.
        file: is written.
        given: the number of sequences of which these were drawn.

    Returns:
        The outputs ``[S, T, O]``.

    Raises:
        ModuleError: the module raised, or its outputs are no numbers for each step.
    """
    name = type(module).__name__

    def sentence(error: str) -> str:
        kind = "numbers" if sequences.is_floating_point() else "ids"
        return f"{name} failed on the sequences, {kind} of shape {list(sequences.shape)}: {error}."

    with torch.no_grad(), foreign_code(sentence):
        parts = [outputs_of(module(some)) for some in sequences.split(_AT_ONCE)]
    wrong = next((each for each in parts if not isinstance(each, Tensor)), None)
    if wrong is not None or parts[0].ndim != 3 or parts[0].shape[:2] != sequences[:_AT_ONCE].shape[:2]:
        got = type(wrong).__name__ if wrong is not None else list(parts[0].shape)
        raise ModuleError(
            f"{name} gave {got} for sequences of shape {list(sequences.shape)}; outputs of every step are needed, "
            "[batch, time, outputs] or a tuple that begins with them. Of torch's own layers say batch_first=True."
        )
    outputs = torch.cat(parts).to(torch.float64)
    if not outputs.isfinite().all():
        raise ModuleError(f"{name} gave outputs that are not finite on the sequences: nothing can be measured.")
    if not (outputs - outputs[:1]).abs().max() > _SAME * outputs.abs().max():
        raise ModuleError(
            f"{name} gives the same outputs on all {len(sequences)} sequences: they have no variance that a drift "
            "could be held against. Give sequences on which its outputs differ."
        )
    file.write_bytes(to_bytes({"inputs": sequences, "outputs": outputs, "given": torch.tensor(given)}))
    return outputs


def read_sequences(given: Any) -> Tensor:
    """Sequences as one tensor: numbers ``[S, T, I]`` in float64, or ids ``[S, T]``.

    Args:
        given: an array or tensor, or the path of one (``npy``, safetensors with one tensor or one called inputs,
            parquet with a column of lists); or an iterable of sequences, ``[T, I]``, or ``[T]`` of ids. Whole numbers
            ``[S, T]`` are ids; other numbers ``[S, T]`` are sequences of one input.

    Raises:
        ConfigError: they cannot be read, or are no sequences of one length.
    """
    if isinstance(given, str | Path):
        given = _of_file(Path(given))
    found = _numbers(given) if isinstance(given, np.ndarray | Tensor) else _stacked(given)
    if found.is_complex():
        kind = str(found.dtype).removeprefix("torch.")
        raise ConfigError([f"sequences are real numbers or ids, got {kind}. Give both parts as inputs."], _SOURCE)
    if found.ndim == 2 and not found.is_floating_point():
        found = found.to(torch.int64)
        if found.numel() and int(found.min()) < 0:
            raise ConfigError([f"ids start at 0, got {int(found.min())}."], _SOURCE)
    else:
        found = (found.unsqueeze(-1) if found.ndim == 2 else found).to(torch.float64)
    if found.ndim != 3 - (not found.is_floating_point()) or 0 in found.shape:
        raise ConfigError(
            [f"sequences are numbers [sequences, time, inputs] or ids [sequences, time], got {list(found.shape)}."],
            _SOURCE,
        )
    if len(found) < LEAST:
        raise ConfigError(
            [f"at least {LEAST} sequences are needed: errors are shares of what differs among them."], _SOURCE
        )
    if found.is_floating_point() and not found.isfinite().all():
        raise ConfigError(["some numbers are not finite (nan or inf)."], _SOURCE)
    return found.contiguous()


def _numbers(given: Any) -> Tensor:
    """An array or a sequence of numbers as a tensor.

    Raises:
        ConfigError: it is something else, a pair of arrays among it, or some of its values are masked.
    """
    if isinstance(given, Tensor):
        return given.detach().cpu()
    if np.ma.is_masked(given):
        raise ConfigError(["some values are masked: leave them out, or fill them (x.filled(0.0))."], _SOURCE)
    if _is_pair(given):
        wrong = (
            "a sequence is one array, got a pair of arrays (inputs and targets?): give the inputs alone, or np.stack "
            "the two steps."
        )
        raise ConfigError([wrong], _SOURCE)
    try:
        return torch.as_tensor(np.array(given))  # a copy: torch reads no array backwards
    except (TypeError, ValueError, RuntimeError) as error:
        wrong = (
            f"sequences are numbers or ids, got {_kind(given)}. Give the inputs alone, an array or a list of arrays."
        )
        raise ConfigError([wrong], _SOURCE) from error


def _is_pair(given: Any) -> bool:
    """Whether it is two arrays of one shape, which may be inputs and targets, and would be read as two steps."""
    if not (isinstance(given, list | tuple) and len(given) == 2):
        return False
    one, other = given
    arrays = isinstance(one, np.ndarray | Tensor) and isinstance(other, np.ndarray | Tensor)
    return arrays and tuple(one.shape) == tuple(other.shape) != ()


def _kind(given: Any) -> str:
    """``tuple (ndarray, int)``: what something is, and the first of what is in it."""
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}"
    inside = f" ({', '.join(type(each).__name__ for each in given[:4])})" if isinstance(given, list | tuple) else ""
    return f"{type(given).__name__}{inside}"


def _stacked(given: Any) -> Tensor:
    if isinstance(given, Mapping) or not (hasattr(given, "__iter__") or hasattr(given, "__getitem__")):
        wrong = f"sequences are an array, a tensor, a path or an iterable of sequences, got {_kind(given)}."
        raise ConfigError([wrong], _SOURCE)
    rows = [_numbers(each) for each in given]
    if len({tuple(row.shape) for row in rows}) != 1:
        lengths = sorted({row.shape[0] if row.ndim else 0 for row in rows})
        what = f"lengths from {lengths[0]} to {lengths[-1]}" if lengths else "no sequence"
        raise ConfigError([f"sequences of one shape are needed, got {what}. Cut or pad them to one length."], _SOURCE)
    return torch.stack(rows)


def _of_file(path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".safetensors":
            tensors = from_bytes(path.read_bytes())
            if len(tensors) == 1 or "inputs" in tensors:
                return tensors.get("inputs", next(iter(tensors.values())))
            raise ValueError(f"it holds {len(tensors)} tensors, and none is called inputs")
        if path.suffix == ".parquet":
            import pandas as pd

            table = pd.read_parquet(path)
            if table.shape[1] == 1:
                return _stacked(_nested(row) for row in table.iloc[:, 0])
            raise ValueError(
                f"it has {table.shape[1]} columns, and one column of lists is read, a row for each sequence"
            )
    except ConfigError:
        raise
    except Exception as error:  # a damaged file can fail in many ways
        raise ConfigError([f"{path} cannot be read: {str(error)[:200] or type(error).__name__}."], _SOURCE) from error
    raise ConfigError([f"{path} is neither npy, safetensors nor parquet."], _SOURCE)


def _nested(row: Any) -> np.ndarray:
    """A cell of a table: a list of numbers, or of lists of numbers."""
    return np.stack([np.asarray(step) for step in row]) if np.asarray(row).dtype == object else np.asarray(row)
