"""One model against the strongest code for it elsewhere: a linear one here, torch's layers in ``peers_gated``.

A diagonal linear recurrence is a convolution, so a few lines of torch train it by Fourier transforms: its impulse
response from the powers of its eigenvalues, one product of spectra, autograd, clip and AdamW. Both sides have the same
weights and the same batch, drawn before; ``ratio`` is the peer's time by ours, and above 1 where ours is shorter.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import relu

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.published.loop import NAMES, PublishedLoop, PublishedTraining
from benchmarks.steps import peers_gated
from benchmarks.steps.product import Pack, first_model, sequences, trial_config
from memsweep.learning.loss.batch_sharding import ShardedBatch
from memsweep.streams import TEST, Stream

WIDTHS: Final = (8, 64)
SIZES: Final = ((100, 64), (100, 512), (400, 64), (1000, 64), (4000, 64))
"""Horizons and sequences; 512 is the default of a study."""


class Convolution(PublishedLoop):
    """The published linear model as a convolution of its inputs with its impulse response."""

    def forward(self, inputs_BTI: Tensor) -> Tensor:
        horizon = inputs_BTI.shape[1]
        lags_T = torch.arange(horizon, dtype=inputs_BTI.dtype)
        powers_TM = (1.0 - self.dt * relu(self.rates)) ** lags_T.unsqueeze(-1)
        read_M = self.dt * self.readout.weight[0]
        response_T = powers_TM @ (read_M * self.encoder.weight[:, 0])
        constant_T = (powers_TM @ (read_M * self.encoder.bias)).cumsum(0) + self.readout.bias
        length = 2 * horizon  # zero padding: a causal, not a circular, convolution
        spectra = torch.fft.rfft(inputs_BTI[..., 0], length) * torch.fft.rfft(response_T, length)
        return (torch.fft.irfft(spectra, length)[:, :horizon] + constant_T).unsqueeze(-1)


def compare(pack: Pack, peer: PublishedLoop) -> None:
    """Compare the loss of a pack's first model on the test sequences, and its gradients, with those of a peer.

    Raises:
        AssertionError: they differ by more than 1e-10 of their size.
    """
    config, (learner,) = pack.config, pack.learners
    size = config.training.batch_size
    data = pack.task_loss.data(Stream(0, TEST), 0, size)
    (ours, *_), (gradient, *_) = learner.gradients(pack.task_loss, ShardedBatch([(1.0, data)]))
    named = learner.ensemble.layout.named(gradient)
    loss = peer.loss(*sequences(config, size))
    torch.testing.assert_close(ours, loss.detach(), rtol=1e-10, atol=0.0)
    gradients = torch.autograd.grad(loss, list(peer.parameters()))
    for (name, _), theirs in zip(peer.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(named[NAMES[name]], theirs, rtol=0.0, atol=1e-10 * float(theirs.norm()))


def measured(width: int, horizon: int, batch: int, pairs: int, shortest: float) -> Row:
    """One row; loss and gradients of both sides are compared first."""
    config = trial_config("diagonal_rnn", horizon=horizon, batch_size=batch, width=width, activation="linear")
    pack, peer = Pack.of(config), Convolution.like(first_model(config))
    compare(pack, peer)
    training = PublishedTraining(peer, *sequences(config, batch))
    times = harness.alternate({"ours": pack.step, "peer": training.step}, pairs=pairs, shortest=shortest)
    pack.check()
    return {
        **{"peer": "convolution", "dtype": "float64", "width": width, "horizon": horizon, "sequences": batch},
        "ratio": harness.ratio(times["peer"], times["ours"]),
        **{f"{side}_milliseconds": 1e3 * harness.median(each) for side, each in times.items()},
    }


def run(options: Options) -> None:
    """Measure, print and write ``peers.json``."""
    harness.one_thread()
    sizes, pairs = (((32, 8),), 2) if options.quick else (SIZES, harness.PAIRS)
    shortest = 0.002 if options.quick else harness.SHORTEST
    rows = []
    for width, (horizon, batch) in product(WIDTHS, sizes):
        if options.wants({"dtype": "float64", "width": width, "horizon": horizon}):
            rows.append(measured(width, horizon, batch, pairs, shortest))
            harness.tell(rows[-1])
    for row in peers_gated.rows(options, pairs, shortest):
        rows.append(row)
        harness.tell(row)
    settings = {
        "convolution": "by torch.fft, one model, a step of training: autograd, clip, AdamW",
        "torch.nn": "one layer forward and backward, gradients by weights and inputs",
        "torch.nn and Linear": "a step of training as of the convolution, on ours without penalties",
        "clock": "CPU time of the process, one thread",
        "ours": "a pack of one model with the penalty of the default training, which the convolution has not; one unit",
    }
    harness.publish("peers", settings, rows, options)
