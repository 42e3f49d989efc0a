"""CogScale's tasks with one right class at each answered step, as one task of memsweep.

Sequences and answers are those of the package's generators (version 0.2), in its three sizes. A batch is drawn from a
seed that its stream and index give, so that training data do not end: CogScale's own budgets of 100 to 10,000 sequences
are asked for by ``training.train_size``. The right answers are found here from the inputs alone.

Letters: B batch, T time, I inputs, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cogscale import evals
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, SURE, Batch, Stream, Task, counted_cross_entropy, step_accuracy
from memsweep.registry import register_task

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "small": evals.cogscale_small,
    "medium": evals.cogscale_medium,
    "large": evals.cogscale_large,
}
Answers = dict[int, int]
"""The class at each answered step of one sequence."""


def _postcasting(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    classes = read_TI.argmax(-1)
    return {step: int(classes[step - given["delay"]]) for step in range(given["delay"], len(classes))}


def _simple_copy(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    cue = int(read_TI[:, -1].argmax())
    length = len(read_TI) - cue - 1
    return {cue + 1 + place: int(read_TI[place].argmax()) for place in range(length)}


def _selective_copy(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    kept = [row[:-2].argmax() for row in read_TI if row[-2] == 1]
    return {len(read_TI) - len(kept) + place: int(symbol) for place, symbol in enumerate(kept)}


def _adding(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    return {len(read_TI) - 1: int(sum(row[:-2].argmax() for row in read_TI if row[-2] == 1))}


def _sorting(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    symbols, length = given["n_symbols"], given["sequence_length"]
    return {length + 1 + int(row[symbols:].argmax()): int(row[:symbols].argmax()) for row in read_TI[:length]}


def _brackets(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    depths = np.cumsum(read_TI[:-2, 0] - read_TI[:-2, 1])
    return {len(read_TI) - 1: int(depths.min() >= 0 and depths[-1] == 0)}


def _recall(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    symbols = read_TI.argmax(-1).tolist()
    pairs = dict(zip(symbols[: 2 * given["num_pairs"] : 2], symbols[1 : 2 * given["num_pairs"] : 2], strict=True))
    return {len(symbols) - 1: pairs[symbols[-1]]}


def _induction(read_TI: np.ndarray, given: dict[str, Any]) -> Answers:
    symbols, half = read_TI.argmax(-1), len(read_TI) // 2
    return {step: int(symbols[step + 1 - half]) for step in range(half, len(symbols) - 1)}


SOLVED: dict[str, Callable[[np.ndarray, dict[str, Any]], Answers]] = {
    "adding_problem": _adding,
    "associative_recall": _recall,
    "bracket_matching": _brackets,
    "discrete_postcasting": _postcasting,
    "induction_heads": _induction,
    "selective_copy": _selective_copy,
    "simple_copy": _simple_copy,
    "sorting_problem": _sorting,
}
"""The right answers to a sequence ``[T, I]``, from it and the generator's arguments, by the names of the tasks."""
COUNTED = 4000
"""Sequences from which the frequencies of classes are counted, where they are not equal."""


@register_task("cogscale")
class CogScale(Task):
    """Answer as a task of CogScale asks; cross entropy of an answer, averaged over those of a sequence."""

    reports = ("accuracy",)

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Which task of CogScale, and in which of its sizes."""

        problem: str = setting("selective_copy", "CogScale's name of the task", choices=tuple(SOLVED))
        size: str = setting("small", "CogScale's difficulty: lengths, delays and symbols", choices=tuple(SIZES))

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        entry = SIZES[config.size][config.problem]
        self._generate = entry["fct"]
        self._given = {key: value for key, value in entry["params"].items() if not key.startswith("n_t")}
        self._given = {**self._given, "n_valid": 0, "n_test": 0}
        inputs_1TI, targets_1TC = self._sequences(1, 0)
        self._steps, self._inputs, self._outputs = *inputs_1TI.shape[1:], targets_1TC.shape[-1]

    def _sequences(self, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        made = self._generate(**{**self._given, "n_train": size, "seed": seed})
        return made["X_train"], made["Y_train"]

    @property
    def horizon(self) -> int:
        return int(self._steps)

    @property
    def inputs(self) -> int:
        return int(self._inputs)

    @property
    def outputs(self) -> int:
        return int(self._outputs)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """One-hot inputs ``[B, T, I]``, and classes ``[B, T]`` with ``NOTHING`` where CogScale masks."""
        seed = int(stream.generator(index).integers(2**63))
        inputs_BTI, targets_BTC = self._sequences(size, seed)
        return Batch(torch.from_numpy(inputs_BTI), torch.from_numpy(_classes(targets_BTC).astype(np.int16)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return counted_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of right answers, 0 ... 1; CogScale's score is 1 less this."""
        return {"accuracy": step_accuracy(outputs, batch.targets, batch.targets != NOTHING)}

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """1, and the frequency of the most frequent class."""
        return {"accuracy": (1.0, float(self._frequencies().max()))}

    def chance(self) -> float:
        """The entropy of a class, in nats."""
        shares = self._frequencies()
        return float(-(shares * np.log(shares)).sum())

    def _frequencies(self) -> np.ndarray:
        """Shares of the classes among the answers, of those that occur."""
        given, problem = self._given, self.config.problem
        if problem == "adding_problem":
            most = given["max_number"]
            shares = np.convolve(np.full(most, 1 / most), np.full(most, 1 / most))
        elif problem == "bracket_matching":
            classes = _classes(self._sequences(COUNTED, 0)[1])
            shares = np.bincount(classes[classes != NOTHING]) / COUNTED
        else:
            values = given["n_symbols"] - 2 * (problem == "associative_recall")  # two symbols mark and fill
            shares = np.full(values, 1 / values)
        return shares

    def oracle(self, inputs: Tensor) -> Tensor:
        """The answers that ``SOLVED`` finds, as sure logits."""
        answer = torch.zeros(*inputs.shape[:2], self.outputs, dtype=torch.float64)
        for row, read_TI in enumerate(inputs.numpy()):
            for step, label in SOLVED[self.config.problem](read_TI, self._given).items():
                answer[row, step, label] = SURE
        return answer


def _classes(targets_BTC: np.ndarray) -> np.ndarray:
    """Class numbers ``[B, T]``; CogScale marks a class by 1 among values of 0 or -100, and masks a step by -100."""
    return np.where((targets_BTC == 1).any(-1), targets_BTC.argmax(-1), NOTHING)
