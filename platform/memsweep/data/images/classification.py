"""Images read as sequences: one class for a whole sequence, answered at its last step or at every one.

Letters: N leading dimensions (replicas, copies), B batch, T time, I inputs, C classes, P pixels, K channels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from memsweep.data.epochs import epoch_rows
from memsweep.data.losses import last_step_accuracy, last_step_cross_entropy, mean_cross_entropy
from memsweep.data.sequences.labelled import SURE
from memsweep.data.task import Batch, Task
from memsweep.streams import TRAIN, Stream

ORDERS = ("rows", "pixels")


@dataclass(frozen=True)
class Labelled:
    """Images and their classes.

    Attributes:
        images: ``[B, height, width, K]``, bytes or whatever numbers they come in; or ``[B]``, what tells a task that
            reads images when it draws them which they are (``sequences``).
        labels: ``[B]``, int64, 0 ... C-1.
    """

    images: np.ndarray
    labels: np.ndarray

    def chosen(self, rows: np.ndarray) -> Labelled:
        """Some of the images, by position."""
        return Labelled(self.images[rows], self.labels[rows])

    def split(self, held_out: int, stream: Stream) -> tuple[Labelled, Labelled]:
        """Two disjoint parts, the second of this size, by a permutation that the stream decides."""
        order = stream.generator().permutation(len(self.labels))
        return self.chosen(order[held_out:]), self.chosen(order[:held_out])


class SequentialImages(Task):
    """A finite set of labelled images, read row by row or pixel by pixel; cross entropy of the answer.

    The loss is that of the last step's answer, or, with ``answer`` ``every``, the mean over the steps, at each of which
    the class is asked though only a part of the image has been read. The accuracy is that of the last step in both.

    Batch ``index`` of the training stream is a piece of an epoch: every epoch is a permutation of the training images
    that the stream decides, and what does not fill a batch is left out of that epoch. The other streams go through
    their images in a fixed order, round and round: batch 0 is the first ``size`` images, whatever the seed. A size
    beyond the number of images gives all of them, once.
    """

    reports = ("accuracy",)
    classes = 10

    @abstractmethod
    def load(self) -> Mapping[str, Labelled]:
        """The images of the streams ``train``, ``validation`` and ``test``: disjoint, in a fixed order."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image as it is read."""

    @property
    @abstractmethod
    def brightest(self) -> float:
        """The value of a full pixel, which becomes 1."""

    @property
    @abstractmethod
    def order(self) -> str:
        """``rows`` or ``pixels``."""

    @property
    @abstractmethod
    def permutation_seed(self) -> int:
        """Decides the fixed permutation of the pixels; 0 leaves them in their places."""

    @property
    def answer(self) -> str:
        """``last`` or ``every``: at which step the class is asked; the last, unless the task says otherwise."""
        return "last"

    @cached_property
    def splits(self) -> Mapping[str, Labelled]:
        """The images of each stream, read at first use."""
        return self.load()

    @property
    def horizon(self) -> int:
        height, width, _ = self.shape
        return height if self.order == "rows" else height * width

    @property
    def inputs(self) -> int:
        _, width, channels = self.shape
        return width * channels if self.order == "rows" else channels

    @property
    def outputs(self) -> int:
        return self.classes

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        split = self.splits[stream.name]
        rows = epoch_rows(stream, index, size, len(split.labels))
        chosen = split.chosen(rows)
        return Batch(self.sequences(chosen.images), torch.from_numpy(chosen.labels))

    def sequences(self, images: np.ndarray) -> Tensor:
        """Images ``[B, height, width, K]`` as sequences ``[B, T, I]``, float64, 0 ... 1, pixels permuted."""
        pixels_BPK = images.reshape(len(images), -1, images.shape[-1])
        ordered = pixels_BPK[:, self.places()] / self.brightest
        return torch.from_numpy(ordered.reshape(len(images), self.horizon, self.inputs).astype(np.float64))

    def places(self) -> np.ndarray:
        """Which pixel is read when, ``[P]``: the identity, or the fixed permutation."""
        height, width, _ = self.shape
        if self.permutation_seed == 0:
            return np.arange(height * width)
        return Stream(self.permutation_seed, "permutation of the pixels").generator().permutation(height * width)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        if self.answer == "every":
            return mean_cross_entropy(outputs, batch.targets.unsqueeze(-1)).mean(-1)
        return last_step_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of images whose class is answered, 0 ... 1."""
        return {"accuracy": last_step_accuracy(outputs, batch.targets)}

    def chance(self) -> float:
        """Entropy of the classes among the training images, in nats: ln 10 when all of ten are as frequent."""
        return float(scipy.stats.entropy(np.bincount(self.splits[TRAIN].labels)))

    def memoryless_loss(self) -> float:
        """Entropy of the class given the pixel that is read last, among the training images; where every step answers,
        the mean of the entropies given each pixel. nan where a step reads more than one number."""
        if self.inputs > 1:
            return math.nan
        train = self.splits[TRAIN]
        pixels_BP = train.images.reshape(len(train.labels), -1)
        asked = self.places() if self.answer == "every" else self.places()[-1:]
        asked_PB = np.ascontiguousarray(pixels_BP[:, asked].T)
        return float(np.mean([self._unsure(read_B, train.labels) for read_B in asked_PB]))

    def _unsure(self, read_B: np.ndarray, labels_B: np.ndarray) -> float:
        """Entropy of the class given a number, in nats, by the frequencies of the pairs of both."""
        whole = read_B.dtype == np.uint8  # bytes are counted as they are: to look for the different ones is to sort
        seen = read_B.astype(np.int64) if whole else np.unique(read_B, return_inverse=True)[1]
        pairs, alone = np.bincount(seen * self.classes + labels_B), np.bincount(seen)
        return float(scipy.stats.entropy(pairs[pairs > 0]) - scipy.stats.entropy(alone[alone > 0]))

    def oracle(self, inputs: Tensor) -> Tensor:
        """The known class of each sequence, at every step of it; found among all sequences by its numbers."""
        known = {
            sequence.numpy().tobytes(): int(label)
            for split in self.splits.values()
            for sequence, label in zip(self.sequences(split.images), split.labels, strict=True)
        }
        answer = torch.zeros(*inputs.shape[:2], self.classes, dtype=inputs.dtype)
        for row, sequence in enumerate(inputs.contiguous()):
            answer[row, :, known[sequence.numpy().tobytes()]] = SURE
        return answer
