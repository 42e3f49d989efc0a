"""States that are carried from window to window: one long sequence, with gradients that stop where a window begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from test_checkpoints import Held
from test_until import assert_same
from torch import Tensor

from engine import moved, trial, weights_of
from memsweep import registry
from memsweep.config.schema.study import ResourcesConfig
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.task import Batch, CarriedTask
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.learning.loop import train
from memsweep.learning.loss.carried import CarriedLoss, task_loss_for
from memsweep.learning.state.checkpoint import Checkpoint
from memsweep.learning.training.learner import Learner
from memsweep.models.base import Signature
from memsweep.models.matrix.vanilla_rnn import VanillaRNN
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from memsweep.trial import RunOptions, run_pack, run_replicas, run_trial
from text_files import write_text

HORIZON, WINDOWS, DELAY = 5, 3, 7
"""Steps of a window, windows of a sequence, and how far back an answer lies: in the window before, or two before."""


class Delayed(CarriedTask):
    """Say what was read seven steps ago; sequences of three windows of five steps, begun anew every three batches."""

    @dataclass(frozen=True)
    class Config:
        name: str = "delayed"

    reports = ("largest",)
    horizon = HORIZON

    def __init__(self, wrong_rows: int = 0) -> None:
        super().__init__(self.Config())
        self.wrong_rows = wrong_rows

    def begins(self, index: int, size: int) -> bool:
        return index % WINDOWS == 0

    def runs(self, size: int) -> int:
        return size // WINDOWS

    def whole(self, stream: Stream, epoch: int, rows: int) -> Batch:
        """Sequences as they are: ``[rows, 15, 1]``."""
        noise = stream.generator(epoch).standard_normal((rows, WINDOWS * HORIZON, 1))
        inputs = torch.from_numpy(noise)
        return Batch(inputs, torch.cat([torch.zeros(rows, DELAY, 1, dtype=inputs.dtype), inputs[:, :-DELAY]], 1))

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        if stream.name != TRAIN:
            long = self.whole(stream, index, self.runs(size))
            return Batch(*(one.reshape(-1, HORIZON, 1)[: size - self.wrong_rows] for one in _both(long)))
        long, place = self.whole(stream, index // WINDOWS, size - self.wrong_rows), index % WINDOWS
        return Batch(*(one[:, place * HORIZON : (place + 1) * HORIZON] for one in _both(long)))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs - batch.targets).square().sum(-1).mean((-1, -2))

    def squared_weights(self) -> Tensor:
        return torch.full((HORIZON,), 1.0 / HORIZON, dtype=torch.float64)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"largest": (outputs - batch.targets).abs().amax((-1, -2)).mean(-1)}

    def chance(self) -> float:
        return 1.0

    def oracle(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError  # a window alone does not tell


def _both(batch: Batch) -> tuple[Tensor, Tensor]:
    return batch.inputs, batch.targets


def models(count: int, activation: str = "tanh", width: int = 3) -> list[VanillaRNN]:
    config = VanillaRNN.Config(width=width, activation=activation)
    return [moved(VanillaRNN(config, Signature(1, 1, HORIZON)).double(), seed) for seed in range(count)]


def task_loss(chunk: int = 256) -> CarriedLoss:
    return CarriedLoss(Delayed(), torch.float64, chunk)


def truncated(model: VanillaRNN, sequences: Batch) -> Tensor:
    """The mean loss of sequences window by window, in torch's own loop, with the states detached between windows."""
    cell, task = torch.nn.RNN(1, model.config.width, batch_first=True).double(), Delayed()
    named = dict(model.named_parameters())
    own = {name: named[name] for name in dict(cell.named_parameters())}
    state, losses = torch.zeros(1, len(sequences.inputs), model.config.width, dtype=torch.float64), []
    for first in range(0, sequences.inputs.shape[1], HORIZON):
        window = Batch(*(one[:, first : first + HORIZON] for one in _both(sequences)))
        states, state = torch.func.functional_call(cell, own, (window.inputs, state.detach()))
        losses.append(task.loss(states @ model.readout_weight.T + model.readout_bias, window))
    return torch.stack(losses).mean()


# ---- outputs


@pytest.mark.parametrize("activation", ["tanh", "linear"])
def test_windows_with_carried_states_are_one_long_sequence(activation):
    weights = {name: value.unflatten(0, (2, 2)) for name, value in weights_of(*models(4, activation)).items()}
    model, long = models(1, activation)[0], Delayed().whole(Stream(0, TEST), 0, 6)
    states, found = None, []
    for window in long.inputs.split(HORIZON, 1):
        outputs, states = model.outputs_from(weights, window, states)
        assert states.shape == (2, 2, 6, 3)
        found.append(outputs)
    torch.testing.assert_close(torch.cat(found, -2), model.outputs(weights, long.inputs), rtol=0, atol=1e-13)


# ---- losses, gradients and metrics of whole sequences


@pytest.mark.parametrize("chunk", [256, 2])
def test_an_evaluation_runs_through_all_windows_of_every_sequence(chunk):
    own, few = task_loss(chunk), models(2)
    data = own.data(Stream(0, VALIDATION), 0, 15)
    long = Delayed().whole(Stream(0, VALIDATION), 0, 5)
    weights = weights_of(*few)
    answers = few[0].outputs(weights, long.inputs)
    wanted = (answers - long.targets).square().mean((1, 2, 3))
    torch.testing.assert_close(own.loss(few[0], weights, data, torch.zeros(())), wanted, rtol=1e-12, atol=0)
    largest = (answers - long.targets).abs().unflatten(2, (WINDOWS, HORIZON)).amax((-1, -2)).mean((1, 2))
    torch.testing.assert_close(own.metrics(few[0], weights, data)["largest"], largest, rtol=1e-12, atol=0)


@pytest.mark.parametrize("chunk", [256, 2])
def test_the_gradient_stops_where_a_window_begins(chunk):
    """Against torch.nn.RNN with detached states; two copies of two replicas, each with states of its own."""
    own, few = task_loss(chunk), models(4)
    long = Delayed().whole(Stream(0, TEST), 0, 5)
    weights = {name: value.unflatten(0, (2, 2)).requires_grad_() for name, value in weights_of(*few).items()}
    losses = own.loss(few[0], weights, own.data(Stream(0, TEST), 0, 15), torch.zeros(()))
    factors = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    (losses * factors).sum().backward()
    for place, model in enumerate(few):
        wanted, row = truncated(model, long), divmod(place, 2)
        torch.testing.assert_close(losses[row], wanted, rtol=1e-12, atol=0)
        gradients = torch.autograd.grad(factors[row] * wanted, list(model.parameters()))
        for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
            torch.testing.assert_close(weights[name].grad[row], gradient, rtol=1e-10, atol=1e-13)
    whole = sum(Delayed().loss(few[0].outputs(weights_of(few[0]), long.inputs), long))
    torch.testing.assert_close(losses[0, 0].detach(), whole)  # the loss itself is that of whole sequences


def test_sequences_that_are_computed_some_at_a_time_keep_their_own_states():
    (model,), targets = models(1), torch.zeros(())
    weights = weights_of(model)
    first, second = (task_loss().data(Stream(0, TRAIN), index, 5) for index in (0, 1))
    ended = [task_loss(chunk).loss_from(model, weights, first, targets, None)[1] for chunk in (5, 2)]
    for one, other in zip(
        task_loss(5).loss_from(model, weights, second, targets, ended[0]),
        task_loss(2).loss_from(model, weights, second, targets, ended[1]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


# ---- training


def learners(training: TrainingConfig, width: int = 3, **options: Any) -> tuple[Learner, VanillaRNN]:
    """Two seeds, trained; and the second as a model of its own with its initial weights."""
    config = VanillaRNN.Config(width=width)
    signature = Signature(1, 1, HORIZON)
    replicas = [Replica(0, config, seed, training.learning_rate) for seed in (4, 5)]
    ensembles = build(VanillaRNN, replicas, signature, getattr(torch, training.dtype), None)
    (learner,) = train(
        ensembles, task_loss_for([Delayed()], False, getattr(torch, training.dtype)), training, **options
    )
    alone = VanillaRNN(config, signature, Stream(5, "initial weights").generator()).double()
    return learner, alone


TRAINING = TrainingConfig(
    steps=10,
    batch_size=4,
    validation_size=6,
    validate_every=2,
    learning_rate=0.02,
    weight_decay=0.1,
    schedule="constant",
    clip=0.3,
    amplitude_penalty=0.0,
    merge_redundant=False,
)


def test_training_goes_on_from_batch_to_batch():
    """Ten steps, in which sequences begin four times, against torch.nn.RNN with torch's own optimizer."""
    fast, model = learners(TRAINING)
    task, state = Delayed(), torch.zeros(1, 4, 3, dtype=torch.float64)
    cell = torch.nn.RNN(1, 3, batch_first=True).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    for step in range(10):
        if step % WINDOWS == 0:
            state = torch.zeros_like(state)
        batch = task.draw(Stream(0, TRAIN), step, 4)
        named = dict(model.named_parameters())
        own = {name: named[name] for name in dict(cell.named_parameters())}
        states, state = torch.func.functional_call(cell, own, (batch.inputs, state.detach()))
        loss = task.loss(states @ model.readout_weight.T + model.readout_bias, batch)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in model.parameters()])
        for weight in model.parameters():
            weight.grad *= (0.3 / norm).clamp(max=1.0)  # torch's own clipping adds 1e-6 to the norm
        optimizer.step()
    named = fast.ensemble.layout.named(fast.weights)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(named[name][1], weight.detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(fast.carried[1], state[0].detach(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(fast.loss[1], loss.detach(), rtol=1e-10, atol=0)
    long = task.whole(Stream(0, VALIDATION), 0, 2)
    torch.testing.assert_close(fast.history[-1][2][1], truncated(model, long).detach(), rtol=1e-10, atol=0)


class Torn(Held):
    """A place whose first checkpoint is the last thing that an interrupted training leaves."""

    def write(self, data: bytes) -> None:
        if self.data is None:
            super().write(data)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("at", [4, 6])  # amid sequences, and where they begin
def test_an_interrupted_training_ends_with_the_same_bits(at, dtype):
    training = replace(TRAINING, dtype=dtype, checkpoint_every=at)
    whole, _ = learners(training)
    place = Torn()
    learners(training, checkpoint=Checkpoint(place, "key"))
    told: list[float] = []
    resumed, _ = learners(training, checkpoint=Checkpoint(place, "key"), progress=told.append)
    assert len(told) == (10 - at) // 2  # it did not begin at the beginning
    for name in ("weights", "carried", "best_weights", "best", "loss"):
        assert torch.equal(getattr(resumed, name), getattr(whole, name)), name
    assert whole.carried.dtype == getattr(torch, dtype)


def test_states_of_another_shape_are_refused(caplog):
    place = Torn()
    training = replace(TRAINING, checkpoint_every=4)
    learners(training, checkpoint=Checkpoint(place, "key"))
    told: list[float] = []
    learners(replace(training, batch_size=5), checkpoint=Checkpoint(place, "key"), progress=told.append)
    assert len(told) == 5
    assert "carried must be float64 [2, 5, 3], got float64 [2, 4, 3]" in caplog.text


# ---- what cannot be


def test_a_task_that_draws_something_else_is_told_so():
    torn = CarriedLoss(Delayed(wrong_rows=1), torch.float64)
    with pytest.raises(ValueError, match="drew 5 windows of 2 sequences, which must all have as many windows"):
        torn.data(Stream(0, TEST), 0, 6)
    with pytest.raises(ValueError, match=r"drew 5 training sequences side by side, not training.batch_size \(6\)"):
        torn.data(Stream(0, TRAIN), 0, 6)


# ---- whole trials on a text


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A task of the registry that carries states: windows of 12 characters, an epoch of 20 batches."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    write_text(path, lines=24)
    return registry.get(registry.TASK, "char_text").Config(file=str(path), horizon=12)


def text_trial(task: Any, model: Any = None, **training: Any) -> TrialConfig:
    config = trial(
        training={"steps": 24, "batch_size": 4, "validation_size": 12, "validate_every": 4, "learning_rate": 0.05}
        | training,
        perturbation={"test_size": 12, "balls": ("recurrent",)},
    )
    return replace(config, task=task, model=model or VanillaRNN.Config(width=4))


@pytest.mark.more
def test_a_trial_that_goes_on_has_the_bits_of_a_whole_one(text):
    """Its states are handed on from row to row of a search, and lie in checkpoints."""
    config, kept = text_trial(text), Held()
    whole = run_trial(config)
    assert whole.summary["error"] < registry.get(registry.TASK, "char_text")(text).chance()
    assert whole.tables["curves"]["error"].notna().all()
    until = replace(config, training=replace(config.training, until=12))
    run_pack([until], RunOptions(end_states=[kept]))
    told: list[float] = []
    (handed,) = run_pack([config], RunOptions(start_states=[kept], progress=told.append))
    assert round(told[0] / 0.8 * 24) == 16  # its first validation: it began at step 12
    assert_same(handed, whole)
    often = replace(config, training=replace(config.training, checkpoint_every=8))
    torn = Torn()
    run_pack([often], RunOptions(checkpoint=torn))
    told.clear()
    (resumed,) = run_pack([often], RunOptions(checkpoint=torn, progress=told.append))
    assert round(told[0] / 0.8 * 24) == 12  # its first validation: it began at step 8
    assert_same(resumed, whole)


def test_what_cannot_carry_is_refused_where_it_is_written(text):
    (task_loss,) = text_trial(text, VanillaRNN.Config(layers=2)).problems()
    assert "the model vanilla_rnn, as it is set here, cannot go on from the states of the window before" in task_loss
    assert "vanilla_rnn" in task_loss.partition("Models that can: ")[2]
    (task_loss,) = text_trial(text, train_size=8).problems()
    assert task_loss.startswith("training.train_size is 8, but the sequences of the task char_text follow one another")
    assert list(text_trial(text).problems()) == []


def test_the_parts_of_a_step_are_refused(text):
    config = text_trial(text)
    (problem,) = ResourcesConfig(workers=2, strategy="data").sharing_problems([config])
    assert "data shares out the sequences of a step, but those of the task char_text go on" in problem
    with pytest.raises(ValueError, match="carries states from batch to batch"):
        run_replicas([config], RunOptions(shards=2))
