"""Batches in pieces: symbols become vectors piece by piece; pieces keep to a budget and say what the batch says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from engine import trial, whole
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.data.api import Batch, CarriedTask, Task, mean_cross_entropy
from memsweep.learning.ensemble.replicas import Ensemble, Replica, build
from memsweep.learning.loop import train
from memsweep.learning.loss.base import CHUNK
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.loss.sampled import SampledLoss
from memsweep.learning.memory import live_bytes
from memsweep.learning.state.trained import trained_ensemble
from memsweep.learning.training import learner as learner_module
from memsweep.learning.training.learner import Learner
from memsweep.measures.alignment import Alignment
from memsweep.models.base import Signature
from memsweep.models.deep.residual_stack import ResidualStack
from memsweep.models.matrix.rnn import RNN
from memsweep.models.matrix.vanilla_rnn import VanillaRNN
from memsweep.stability.measure import Measurement, measure
from memsweep.streams import TRAIN, Stream
from memsweep.trial import run_trial
from paths import ROOT

registry.discover(ROOT)
SYMBOLS, CLASSES, STEPS = 5, 3, 9
STACK = ResidualStack.Config(width=2, features=3, layers=1)
TRAINING = TrainingConfig(seeds=2, steps=4, batch_size=7, validation_size=10, validate_every=2, clip=0.0)


class Words(Task):
    """Random symbols, some sequences shorter than others; the class of a step follows from the last three symbols."""

    Config = type("Config", (), {"name": "words"})
    most = SYMBOLS - 1

    def __init__(self, horizon: int = STEPS) -> None:
        super().__init__(self.Config())
        self.steps = horizon

    horizon = property(lambda self: self.steps)
    inputs = property(lambda self: SYMBOLS)
    outputs = property(lambda self: CLASSES)

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        numbers = stream.generator(index)
        words = torch.from_numpy(numbers.integers(0, self.most + 1, (size, self.steps))).to(torch.int16)
        words[:, self.steps - 2 :][torch.from_numpy(numbers.random(size) < 0.5)] = -1
        sums = words.long().clamp(min=0).cumsum(1)
        return Batch(words, (sums - sums.roll(3, 1)) % CLASSES)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        assert batch.inputs.shape[:2] == outputs.shape[-3:-1]
        return {"accuracy": (outputs.argmax(-1) == batch.targets).to(outputs.dtype).mean((-1, -2))}

    def chance(self) -> float:
        return 1.0

    def oracle(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError


class Vectors(Words):
    """The same, one-hot."""

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        drawn = super().draw(stream, index, size)
        read = one_hot(drawn.inputs.long() + 1, SYMBOLS + 1)[..., 1:]
        return Batch(read.double(), drawn.targets)


class Squares(Words):
    """A squared error, which kernels compute in one pass."""

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs - batch.targets).square().sum(-1).mean((-1, -2))

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        drawn = super().draw(stream, index, size)
        return Batch(drawn.inputs, drawn.targets.double().unsqueeze(-1).expand(-1, -1, CLASSES))

    def squared_weights(self) -> Tensor:
        return torch.full((self.steps,), 1.0 / self.steps, dtype=torch.float64)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {}


class SquaresOfVectors(Squares, Vectors):
    """The same, one-hot."""


class Pages(Words, CarriedTask):
    """Windows of symbols, whose states go on."""

    def begins(self, index: int, size: int) -> bool:
        return index % 2 == 0

    def runs(self, size: int) -> int:
        return size // 2


class PagesOfVectors(Vectors, Pages):
    """The same, one-hot."""


def ensemble_of(config: Any, task: Task, seeds: int = 2, dtype: torch.dtype = torch.float64) -> Ensemble:
    model_class = registry.get(registry.MODEL, config.name)
    replicas = [Replica(0, config, seed, 0.01) for seed in range(seeds)]
    signature = Signature(task.inputs, task.outputs, task.horizon)
    (ensemble,) = build(model_class, replicas, signature, dtype, None)
    return ensemble


def trained(config: Any, task: Task, training: TrainingConfig = TRAINING, **options: Any) -> Learner:
    task_loss = task_loss_for([task], False, getattr(torch, training.dtype))
    (learner,) = train([ensemble_of(config, task, training.seeds)], task_loss, training, **options)
    return learner


def measured(config: Any, task: Task) -> list[Measurement]:
    """All that is measured on trained models; batches come in pieces of 4."""
    learner = trained(config, task, replace(TRAINING, micro_batch=4))
    few = RadiiConfig(from_=0.1, to=1.0, count=2)
    perturbation = PerturbationConfig(radii=few, starts=0, ascent_steps=1, balls=("all",), test_size=10)
    task_loss = task_loss_for([task], False, torch.float64)
    any_trial = replace(trial(), model=config, training=TRAINING, perturbation=perturbation)
    pack = trained_ensemble(learner, any_trial.training)
    return [measurement for _, measurement in measure(pack, task_loss, any_trial).values()]


@pytest.mark.parametrize(
    ("config", "task", "same"),
    [
        pytest.param(STACK, Words, Vectors, marks=pytest.mark.more),
        pytest.param(VanillaRNN.Config(width=3), Words, Vectors, marks=pytest.mark.more),  # by the kernels of one layer
        pytest.param(RNN.Config(width=3), Words, Vectors, marks=pytest.mark.more),  # knows its Jacobians
        (VanillaRNN.Config(width=3), Squares, SquaresOfVectors),  # loss and gradient in one pass
        (VanillaRNN.Config(width=3), Pages, PagesOfVectors),
    ],
)
def test_symbols_are_their_one_hot_vectors_bit_for_bit(config: Any, task: type[Words], same: type[Words]) -> None:
    """In training, validation, perturbed copies, metrics and norms of gradients."""
    assert task().draw(Stream(0, TRAIN), 0, 50).inputs.aminmax() == (-1, SYMBOLS - 1)
    found, expected = measured(config, task()), measured(config, same())
    assert [repr(one) for one in found] == [repr(one) for one in expected]  # every float in full; nan is nan
    if isinstance(config, RNN.Config):
        assert len(found[0].gradient) == STEPS
    if task is not Squares:
        assert 0.0 < found[0].metrics["accuracy"] < 1.0


@pytest.mark.parametrize(("wrong", "named"), [(-2, "-2"), (SYMBOLS, "5")])
def test_a_symbol_of_another_alphabet_is_named(wrong: int, named: str) -> None:
    task_loss = SampledLoss(Words(), torch.float64)
    batch = task_loss.draw(Stream(0, TRAIN), 0, 3)
    batch.inputs[1, 2] = wrong
    with pytest.raises(ValueError, match=rf"'words' drew the symbol {named}, but has 5 of them.*0 to 4, and -1"):
        task_loss.prepare(batch)


# ---- pieces


def descent(learner: Learner, task_loss: SampledLoss, size: int) -> Tensor:
    with learner.in_training(0):
        loss, gradient = learner.gradients(task_loss, whole(task_loss.data(Stream(0, TRAIN), 0, size)))
    return torch.cat([loss.unsqueeze(1), gradient], 1)


@pytest.mark.parametrize(("rule", "pieces"), [("bptt", 1), ("bptt", 4), ("online_full", 3)])  # the last one is uneven
def test_a_batch_in_pieces_is_the_whole_batch(rule: str, pieces: int) -> None:
    """Dropout, too, drops in a piece what it drops in the batch."""
    config, task = replace(STACK, layers=2, dropout=0.4), Words()
    task_loss = task_loss_for([task], False, torch.float64)
    found = []
    for size in (7, pieces):
        learner = Learner.start(ensemble_of(config, task), task_loss, replace(TRAINING, rule=rule, micro_batch=size))
        assert learner.micro_batch == size
        found.append(descent(learner, task_loss, 7))
        assert learner.ensemble.model.first_row == 0
    assert found[0].abs().min(1).values.shape == (2,)
    torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-13)
    assert not torch.equal(found[1], found[0])  # it was summed up in another way


def budgeted(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setitem(learner_module.BUDGETS, "cpu", budget)


def test_a_budget_that_forces_pieces_is_kept_to(monkeypatch: pytest.MonkeyPatch) -> None:
    task, training = Words(), replace(TRAINING, batch_size=40, rule="online_full")
    task_loss, ensemble = task_loss_for([task], False, torch.float64), ensemble_of(STACK, task)
    data = task_loss.data(Stream(0, TRAIN), 0, 40)

    def peak(size: int) -> int:
        learner = Learner.start(ensemble, task_loss, replace(training, micro_batch=size))
        return live_bytes(lambda: learner.gradients(task_loss, whole(data))).peak

    budget = (peak(8) + peak(16)) // 2
    budgeted(monkeypatch, budget)
    chosen = Learner.start(ensemble, task_loss, training)
    assert chosen.micro_batch == 8
    assert live_bytes(lambda: chosen.gradients(task_loss, whole(data))).peak <= budget < peak(16)
    assert Learner.start(ensemble, task_loss, training).micro_batch == 8
    budgeted(monkeypatch, 1)
    assert Learner.start(ensemble, task_loss, training).micro_batch == 1


def test_the_gradient_that_a_rule_is_compared_with_keeps_to_the_budget_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this rule it takes more memory than the rule's own. Compared or not, the pieces, and so the bits, are one."""
    gru = registry.get(registry.UNIT, "gru").Config()
    config, task = replace(STACK, width=3, unit=gru, prenorm=False), Words()  # torch computes it, and autograd keeps
    training = replace(TRAINING, batch_size=40, rule="online_reservoir")
    task_loss, ensemble = task_loss_for([task], False, torch.float64), ensemble_of(config, task)
    learner = Learner.start(ensemble, task_loss, replace(training, micro_batch=8))
    data = task_loss.data(Stream(0, TRAIN), 0, 40)
    own, true = (
        live_bytes(lambda rule=rule: learner.gradients(task_loss, whole(data), rule)).peak for rule in (None, "bptt")
    )
    budgeted(monkeypatch, true * 5 // 4)
    assert own < 0.8 * true
    for asked in ((), (Alignment.Config(alignment_every=2),)):
        assert Learner.start(ensemble, task_loss, replace(training, asked_measures=asked)).micro_batch == 8


def test_the_choice_leaves_no_trace() -> None:
    """Training goes as it does where nothing was measured, also where random numbers are drawn and states carried."""
    told = replace(TRAINING, micro_batch=CHUNK)
    stack, task = replace(STACK, dropout=0.4), Words()
    assert trained(stack, task).micro_batch == CHUNK
    assert torch.equal(trained(stack, task).weights, trained(stack, task, told).weights)
    odd = replace(TRAINING, steps=3)  # ends amid sequences
    found, other = (trained(VanillaRNN.Config(width=3), Pages(), replace(odd, micro_batch=size)) for size in (0, CHUNK))
    assert found.carried.any()
    assert torch.equal(found.carried, other.carried)
    assert torch.equal(found.weights, other.weights)


# ---- models that must see a batch at once


AT_ONCE = [VanillaRNN.Config(width=2, layers=2, dropout=0.5), replace(STACK, norm="batch")]


@pytest.mark.parametrize("config", AT_ONCE, ids=["dropout of a batch", "norm of a batch"])
def test_what_must_see_a_batch_at_once_does(monkeypatch: pytest.MonkeyPatch, config: Any) -> None:
    budgeted(monkeypatch, 1)
    task, task_loss = Words(3), SampledLoss(Words(3), torch.float64)
    found = Learner.start(ensemble_of(config, task), task_loss, replace(TRAINING, batch_size=300))
    assert found.micro_batch == 300
    asked = replace(trial(), model=config, training=replace(TRAINING, micro_batch=3, train_size=0))
    (said,) = [task_loss for task_loss in asked.problems() if "micro_batch" in task_loss]
    assert "training.micro_batch is 3" in said
    assert "at once" in said
    assert not [word for word in replace(asked, training=TRAINING).problems() if "micro_batch" in word]


# ---- trials


def small_trial(**training: Any) -> TrialConfig:
    base = trial(task={"horizon": 6}, perturbation={"balls": (), "test_size": 12})
    return replace(base, model=replace(STACK, layers=1), training=replace(TRAINING, **training))


def test_a_trial_says_how_many_sequences_it_took_at_a_time() -> None:
    whole, pieces = (run_trial(small_trial(micro_batch=size)) for size in (0, 3))
    assert whole.summary["micro_batch"] == 7  # the batch; 256 fit
    assert pieces.summary["micro_batch"] == 3
    assert pieces.summary["error"] == pytest.approx(whole.summary["error"], rel=1e-9)
    linear = run_trial(trial(training={"steps": 10}, perturbation={"balls": ()}))
    assert "micro_batch" not in linear.summary  # a batch is a quadratic form
