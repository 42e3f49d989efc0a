"""Sequences of symbols with a class: layout, losses and levels; and copying bits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from memsweep import registry, testing
from memsweep.data.api import LabelledSequences, Sequences
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from paths import ROOT

registry.discover(ROOT)
COPYING = registry.get(registry.TASK, "copying_bits")
TRAINING = [[0, 1, 2], [3], [1, 1, 0, 2, 3, 1], [2, 0], [0, 0, 0, 0]]
CLASSES = [2, 0, 1, 2, 2]


@dataclass(frozen=True)
class Settings:
    horizon: int
    answer: str


class Few(LabelledSequences):
    """Five sequences of four symbols, in three classes, without a symbol that ends them."""

    classes = 3
    inputs = 4

    def load(self) -> Mapping[str, Sequences]:
        held_out = Sequences.of([[3, 3], [2, 2, 2]], [0, 1])
        return {TRAIN: Sequences.of(TRAINING, CLASSES), VALIDATION: held_out, TEST: held_out}


class FewEnded(Few):
    """The same, each with a fifth symbol at its end."""

    inputs = 5
    end = 4


def few(kind: type[Few] = Few, horizon: int = 5, answer: str = "last") -> Few:
    return kind(Settings(horizon, answer))


def laid_out(task: Few) -> tuple[list[list[int]], list[list[int]]]:
    batch = task.laid_out(task.splits[TRAIN])
    return batch.inputs.tolist(), batch.targets.tolist()


def test_sequences_stand_at_the_beginning_and_lose_their_end() -> None:
    read, asked = laid_out(few())
    assert read == [[0, 1, 2, -1, -1], [3, -1, -1, -1, -1], [1, 1, 0, 2, 3], [2, 0, -1, -1, -1], [0, 0, 0, 0, -1]]
    assert asked == [[-1, -1, 2, -1, -1], [0, -1, -1, -1, -1], [-1] * 4 + [1], [-1, 2, -1, -1, -1], [-1] * 3 + [2, -1]]


def test_a_symbol_that_ends_sequences_is_never_cut_off() -> None:
    read, asked = laid_out(few(FewEnded))
    assert read == [[0, 1, 2, 4, -1], [3, 4, -1, -1, -1], [1, 1, 0, 2, 4], [2, 0, 4, -1, -1], [0, 0, 0, 0, 4]]
    assert [row.index(label) for row, label in zip(asked, CLASSES, strict=True)] == [3, 1, 4, 2, 4]


def test_every_step_that_reads_something_is_asked() -> None:
    read, asked = laid_out(few(answer="every"))
    for symbols, wanted, label in zip(read, asked, CLASSES, strict=True):
        assert wanted == [label if symbol >= 0 else -1 for symbol in symbols]


@pytest.mark.parametrize("answer", ["last", "every"])
def test_the_loss_is_the_mean_over_sequences_of_the_mean_over_their_own_steps(answer: str) -> None:
    task = few(answer=answer)
    batch = task.laid_out(task.splits[TRAIN])
    outputs = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 5, 5, 3)))
    for model, found in enumerate(task.loss(outputs, batch).tolist()):
        wanted = 0.0
        for row, (sequence, label) in enumerate(zip(TRAINING, CLASSES, strict=True)):
            length = min(len(sequence), 5)
            steps = range(length) if answer == "every" else [length - 1]
            wanted += sum(float(cross_entropy(outputs[model, row, t], torch.tensor(label))) for t in steps) / len(steps)
        assert found == pytest.approx(wanted / 5, rel=1e-12)


@pytest.mark.parametrize("answer", ["last", "every"])
def test_the_accuracy_is_that_of_the_last_step_that_reads_something(answer: str) -> None:
    task = few(answer=answer)
    batch = task.laid_out(task.splits[TRAIN])
    outputs = torch.zeros(5, 5, 3)
    for row, label in enumerate(CLASSES):
        outputs[row, :, (label + 1) % 3] = 1.0  # wrong everywhere
        if row < 3:
            outputs[row, min(len(TRAINING[row]), 5) - 1, label] = 2.0  # but right there
    assert task.metrics(outputs, batch)["accuracy"].item() == pytest.approx(3 / 5)


@pytest.mark.parametrize("answer", ["last", "every"])
def test_levels_are_entropies_over_the_training_sequences(answer: str) -> None:
    task = few(answer=answer)
    assert task.chance() == pytest.approx(entropy(Counter(CLASSES)), rel=1e-12)
    pairs, alone = Counter[tuple[int, int]](), Counter[int]()
    for sequence, label in zip(TRAINING, CLASSES, strict=True):
        steps = sequence[:5] if answer == "every" else sequence[:5][-1:]
        for symbol in steps:
            pairs[symbol, label] += 1 / len(steps)
            alone[symbol] += 1 / len(steps)
    assert task.memoryless_loss() == pytest.approx(entropy(pairs) - entropy(alone), rel=1e-12)
    assert 0 < task.memoryless_loss() < task.chance()
    ended = few(FewEnded, answer=answer)
    assert (ended.memoryless_loss() == ended.chance()) == (answer == "last")  # where all read the symbol of the end


def entropy(counts: Counter) -> float:
    total = sum(counts.values())
    return -sum(count / total * math.log(count / total) for count in counts.values())


def test_an_epoch_goes_through_the_training_sequences_and_the_others_keep_their_order() -> None:
    task = few(horizon=6)
    epochs = [[task.draw(Stream(1, TRAIN), 2 * epoch + part, 2).inputs.tolist() for part in (0, 1)] for epoch in (0, 1)]
    whole = {tuple(row) for row in task.laid_out(task.splits[TRAIN]).inputs.tolist()}
    for first, second in epochs:
        rows = {tuple(row) for row in first + second}
        assert len(rows) == 4  # of five: the fifth fills no batch
        assert rows < whole
    assert epochs[0] != epochs[1]
    for seed in (1, 2):
        assert task.draw(Stream(seed, TEST), 1, 1).inputs[0, :3].tolist() == [2, 2, 2]


def test_an_empty_sequence_needs_a_symbol_that_ends_it() -> None:
    empty = Sequences.of([[1], []], [0, 2])
    with pytest.raises(ValueError, match="a sequence is empty"):
        few().laid_out(empty)
    assert few(FewEnded).laid_out(empty).inputs[1].tolist() == [4, -1, -1, -1, -1]


class TestShortPatterns(testing.TaskSuite):
    """The whole suite, without padding and with other numbers than the published ones."""

    task = "copying_bits"
    config = COPYING.Config(pattern_length=9, padding=0, bits=3)


def test_bits_are_laid_out_as_published() -> None:
    task = COPYING(COPYING.Config(pattern_length=3, padding=2, bits=2))
    batch = task.draw(Stream(0, TRAIN), 0, 40)
    assert batch.inputs.shape == (40, 9, 3)
    for read, pattern in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
        assert read == [[*bits, 0] for bits in pattern] + [[0, 0, 0]] * 2 + [[0, 0, 1]] + [[0, 0, 0]] * 3
    assert batch.targets.unique().tolist() == [0, 1]
