"""Copying bits: read a pattern of random bits, keep it through a delay, and output it when asked.

The layout of Zucchet et al. (2023, arXiv 2305.15947), for a pattern of L steps and a padding of P; a sequence has
2L + P + 1 steps. One input more than there are bits, the control, asks for the pattern::

    inputs    L steps of bits | P steps of zeros | the control | L steps of zeros
    targets                                                    | the L steps of bits

The published sweeps set a padding of 5 under a name that their code does not read, so theirs was 7, our default.

Letters: N leading dimensions (replicas, copies), B batch, T time (horizon), L pattern length, K bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import SURE, Batch, Stream, Task, step_cross_entropy
from memsweep.registry import register_task


@register_task("copying_bits")
class CopyingBits(Task):
    """Output a pattern of random bits after a delay; cross entropy of a bit, averaged over the pattern.

    Every bit has two classes with a logit each. Published are 20 000 patterns to train on (``training.train_size``);
    by default every batch is new.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The size of the pattern, and the delay for which it must be kept."""

        pattern_length: int = setting(20, "steps of a pattern, L", at_least=1, at_most=10_000)
        padding: int = setting(
            7, "steps from the pattern's end to the control that asks for it", at_least=0, at_most=100_000
        )
        bits: int = setting(7, "bits of a step, each 0 or 1 with probability 1/2", at_least=1, at_most=256)

    reports = ("accuracy", "pattern_accuracy")

    @property
    def horizon(self) -> int:
        return 2 * self.config.pattern_length + self.config.padding + 1

    @property
    def inputs(self) -> int:
        return self.config.bits + 1

    @property
    def outputs(self) -> int:
        return 2 * self.config.bits

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        """Sequences ``[B, T, K + 1]``, the control last, and the bits to answer in the last L steps, ``[B, L, K]``."""
        length, bits = self.config.pattern_length, self.config.bits
        pattern_BLK = torch.from_numpy(stream.generator(index).integers(0, 2, (size, length, bits)))
        read = torch.zeros(size, self.horizon, self.inputs, dtype=torch.float64)
        read[:, :length, :bits] = pattern_BLK
        read[:, length + self.config.padding, bits] = 1.0
        return Batch(read, pattern_BLK)

    def _asked(self, outputs: Tensor) -> Tensor:
        """The logits of a bit being 0 and 1 in the last L steps: ``[..., B, L, K, 2]`` of ``[..., B, T, 2K]``."""
        return outputs[..., -self.config.pattern_length :, :].unflatten(-1, (self.config.bits, 2))

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return step_cross_entropy(self._asked(outputs), batch.targets).mean((-3, -2, -1))

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of bits recalled; ``pattern_accuracy``: the share of patterns recalled as a whole."""
        right = self._asked(outputs).argmax(-1) == batch.targets
        return {
            "accuracy": right.to(outputs.dtype).mean((-3, -2, -1)),
            "pattern_accuracy": right.flatten(-2).all(-1).to(outputs.dtype).mean(-1),
        }

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """1 and 1/2 of the bits; of patterns, 2^-(bits of a pattern)."""
        bits = self.config.pattern_length * self.config.bits
        return {"accuracy": (1.0, 0.5), "pattern_accuracy": (1.0, 0.5**bits)}

    def chance(self) -> float:
        """ln 2: without the pattern, each bit is 0 or 1 with probability 1/2."""
        return math.log(2.0)

    def memoryless_loss(self) -> float:
        """ln 2, like chance: inputs are zero where the bits are asked."""
        return self.chance()

    def oracle(self, inputs: Tensor) -> Tensor:
        """Waits for the control, and then repeats the inputs from the first step on."""
        bits = self.config.bits
        answer = inputs.new_zeros(*inputs.shape[:2], self.outputs)
        for row, sequence in enumerate(inputs):
            asked = int(sequence[:, bits].argmax()) + 1
            for step, read in enumerate(sequence[: len(sequence) - asked, :bits].long().tolist()):
                answer[row, asked + step, [2 * number + bit for number, bit in enumerate(read)]] = SURE
        return answer
