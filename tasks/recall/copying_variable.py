"""Copying memory over delays that vary: read some symbols, and output them when a cue comes.

The option ``vari`` of the code behind nnRNN and the Stair RNN: ``copying_memory`` with a delay D of each training
batch, uniform on 1 ... T-1. Here each sequence has a delay of its own, so that a test set holds all of them. Sequences
have one length, T + 2L - 1 steps; what follows the last answer is blank and does not count::

    inputs    L labels | D-1 blanks | the cue | L blanks            | blanks
    targets   L+D blanks                      | the L labels        | nothing

Letters: B batch, S steps = T + 2L - 1, L length, K symbols, I inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.special
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from memsweep.config.core.fields import setting
from memsweep.data.api import NOTHING, SURE, Batch, Stream, Task, counted_cross_entropy, step_accuracy
from memsweep.registry import register_task

BLANK = 0


@register_task("copying_variable")
class CopyingVariable(Task):
    """Output the first symbols again at a cue after a random delay; cross entropy, averaged over what counts."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The number and kinds of symbols, and the longest delay."""

        delay: int = setting(
            200, "delays of sequences are uniform on 1 ... T-1 steps: this is T", at_least=2, at_most=100_000
        )
        length: int = setting(10, "symbols to keep, L; a sequence has T + 2L - 1 steps", at_least=1, at_most=10_000)
        symbols: int = setting(8, "kinds of symbols, K; the answers have K + 1 classes", at_least=2, at_most=254)
        encoding: str = setting(
            "scalar",
            "what is read at a step: scalar (one number: 0 blank, 1 ... K, K+1 the cue), one_hot (K+2 numbers)",
            choices=("scalar", "one_hot"),
        )

    reports = ("accuracy",)

    @property
    def horizon(self) -> int:
        return self.config.delay + 2 * self.config.length - 1

    @property
    def inputs(self) -> int:
        return 1 if self.config.encoding == "scalar" else self.config.symbols + 2

    @property
    def outputs(self) -> int:
        return self.config.symbols + 1

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Sequences ``[B, S, I]`` and the labels to answer, 0 ... K, or ``NOTHING`` behind them, ``[B, S]``."""
        length, cue = self.config.length, self.config.symbols + 1
        rng = stream.generator(index)
        labels_BL = rng.integers(1, cue, (size, length))
        delay_B1 = rng.integers(1, self.config.delay, (size, 1))
        step_S = np.arange(self.horizon)
        read_BS = np.full((size, self.horizon), BLANK, dtype=np.int64)
        read_BS[:, :length] = labels_BL
        read_BS[step_S == length + delay_B1 - 1] = cue
        targets_BS = np.where(step_S < 2 * length + delay_B1, BLANK, NOTHING)
        np.put_along_axis(targets_BS, length + delay_B1 + np.arange(length), labels_BL, 1)
        return Batch(self._encoded(torch.from_numpy(read_BS)), torch.from_numpy(targets_BS))

    def _encoded(self, read_BS: Tensor) -> Tensor:
        if self.config.encoding == "scalar":
            return read_BS.unsqueeze(-1).to(torch.float64)
        return one_hot(read_BS, self.inputs).to(torch.float64)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return counted_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of the symbols recalled, 0 ... 1; the blanks do not count."""
        return {"accuracy": step_accuracy(outputs, batch.targets, batch.targets > BLANK)}

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """1, and 1/K of the steps at which one symbol is more probable than a blank, whatever was read.

        Over long delays there are none: the best answer without input is blank, and 1/K needs the cue.
        """
        blank_S, label_S = self._shares()
        share_S = np.convolve(np.ones(self.config.delay - 1), np.ones(self.config.length))  # of the answers, by step
        is_symbol_S = label_S[self.config.length + 1 :] > self.config.symbols * blank_S[self.config.length + 1 :]
        return {"accuracy": (1.0, float((share_S * is_symbol_S).sum() / share_S.sum()) / self.config.symbols)}

    def chance(self) -> float:
        """Blank or symbol by the step alone, as often as over all delays; which symbol is guessed."""
        blank_S, label_S = self._shares()
        nats = scipy.special.entr([blank_S, label_S]).sum(0) - scipy.special.entr(blank_S + label_S)
        return float((nats + label_S * math.log(self.config.symbols)).sum())

    def _shares(self) -> tuple[np.ndarray, np.ndarray]:
        """How much of the loss is blanks and symbols at each step, ``[S]``, over all delays; together 1."""
        length, delay_D = self.config.length, np.arange(1, self.config.delay)
        share_D = 1 / (delay_D + 2 * length) / len(delay_D)  # of the loss, of a step of a sequence with this delay
        whole, step_S = np.concatenate([[0.0], np.cumsum(share_D)]), np.arange(self.horizon)

        def begun(first: int) -> np.ndarray:
            """The shares of the delays D with first + D <= step, added up."""
            return whole[np.clip(step_S - first, 0, len(delay_D))]

        return whole[-1] - begun(length), begun(length) - begun(2 * length)

    def memoryless_loss(self) -> float:
        """The mean of L ln K / (D + 2L) over the delays: no model that forgets the symbols is better."""
        steps = np.arange(1, self.config.delay) + 2 * self.config.length
        return float((self.config.length * math.log(self.config.symbols) / steps).mean())

    def oracle(self, inputs: Tensor) -> Tensor:
        """Finds the cue, then repeats the first symbols one by one; blanks elsewhere."""
        length, cue = self.config.length, self.config.symbols + 1
        read_BS = inputs[..., 0].long() if self.config.encoding == "scalar" else inputs.argmax(-1)
        labels_BS = torch.full_like(read_BS, BLANK)
        for read_S, labels_S in zip(read_BS, labels_BS, strict=True):
            asked = read_S.tolist().index(cue) + 1
            labels_S[asked : asked + length] = read_S[:length]
        return SURE * one_hot(labels_BS, self.outputs).to(inputs.dtype)
