"""Copying memory: read some symbols, keep them through a delay, and output them in their order.

The layout of Arjovsky, Shah and Bengio (2016, arXiv 1511.06464), in the version of nnRNN's and the Stair RNN's code,
for L symbols, delay D and labels 1 ... K (0 is the blank, K+1 the cue)::

    inputs    L labels | D-1 blanks | the cue | L blanks
    targets   L+D blanks                      | the L labels

Letters: B batch, S steps = T + 2L (T the delay of the config), L length, K symbols, I inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from memsweep.config.core.fields import setting
from memsweep.data.api import SURE, Batch, Stream, Task, mean_cross_entropy, step_accuracy
from memsweep.registry import register_task

BLANK = 0


@register_task("copying_memory")
class CopyingMemory(Task):
    """Output the first symbols again after a delay; cross entropy, averaged over all steps."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The number and kinds of symbols, and the delay for which they must be kept."""

        delay: int = setting(
            200, "steps from the last symbol to the cue that asks for them, T", at_least=1, at_most=100_000
        )
        length: int = setting(10, "symbols to keep, L; a sequence has T + 2L steps", at_least=1, at_most=10_000)
        symbols: int = setting(8, "kinds of symbols, K; the answers have K + 1 classes", at_least=2, at_most=254)
        encoding: str = setting(
            "scalar",
            "what is read at a step: scalar (one number: 0 blank, 1 ... K, K+1 the cue), one_hot (K+2 numbers)",
            choices=("scalar", "one_hot"),
        )

    reports = ("accuracy",)

    @property
    def horizon(self) -> int:
        return self.config.delay + 2 * self.config.length

    @property
    def inputs(self) -> int:
        return 1 if self.config.encoding == "scalar" else self.config.symbols + 2

    @property
    def outputs(self) -> int:
        return self.config.symbols + 1

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Sequences ``[B, S, I]`` and the labels to answer, 0 ... K, ``[B, S]``."""
        delay, length, cue = self.config.delay, self.config.length, self.config.symbols + 1
        rng = stream.generator(index)
        labels_BL = rng.integers(1, cue, (size, length))
        read_BS, targets_BS = (np.full((size, self.horizon), BLANK, dtype=np.int64) for _ in range(2))
        read_BS[:, :length] = labels_BL
        read_BS[:, length + delay - 1] = cue
        targets_BS[:, length + delay :] = labels_BL
        return Batch(self._encoded(torch.from_numpy(read_BS)), torch.from_numpy(targets_BS))

    def _encoded(self, read_BS: Tensor) -> Tensor:
        if self.config.encoding == "scalar":
            return read_BS.unsqueeze(-1).to(torch.float64)
        return one_hot(read_BS, self.inputs).to(torch.float64)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of the symbols recalled, 0 ... 1; the blanks do not count."""
        return {"accuracy": step_accuracy(outputs, batch.targets, batch.targets != BLANK)}

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """1 and 1/K: each symbol is as probable as the others."""
        return {"accuracy": (1.0, 1.0 / self.config.symbols)}

    def chance(self) -> float:
        """L ln K / (T + 2L): the published baseline, which knows when symbols are due and guesses them."""
        return self.config.length * math.log(self.config.symbols) / self.horizon

    def memoryless_loss(self) -> float:
        """The same: no model that forgets its inputs is better."""
        return self.chance()

    def oracle(self, inputs: Tensor) -> Tensor:
        """Finds the cue, then repeats the first symbols one by one; blanks elsewhere."""
        scalar = self.config.encoding == "scalar"
        answer = inputs.new_zeros(*inputs.shape[:2], self.outputs)
        for row, sequence in enumerate(inputs):
            read = (sequence[:, 0] if scalar else sequence.argmax(-1)).long().tolist()
            asked = read.index(self.config.symbols + 1) + 1
            labels = [BLANK] * len(read)
            labels[asked : asked + self.config.length] = read[: self.config.length]
            answer[row, range(len(labels)), labels] = SURE
        return answer
