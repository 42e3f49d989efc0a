"""Images read as sequences: one class for a whole sequence, answered at its last step.

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

from memsweep.learning.losses import last_step_accuracy, last_step_cross_entropy
from memsweep.learning.task import Batch, Task
from memsweep.streams import TRAIN, Stream

ORDERS = ("rows", "pixels")


@dataclass(frozen=True)
class Labelled:
    """Images and their classes.

    Attributes:
        images: ``[B, height, width, K]``, bytes or whatever numbers they come in.
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
    """A finite set of labelled images, read row by row or pixel by pixel; cross entropy of the last step's answer.

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
        count = len(split.labels)
        if size >= count:
            rows = np.arange(count) if stream.name != TRAIN else stream.generator(index).permutation(count)
        elif stream.name == TRAIN:
            epoch, place = divmod(index, count // size)
            rows = stream.generator(epoch).permutation(count)[place * size : (place + 1) * size]
        else:
            rows = (index * size + np.arange(size)) % count
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
        return last_step_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of images whose class is answered, 0 ... 1."""
        return {"accuracy": last_step_accuracy(outputs, batch.targets)}

    def chance(self) -> float:
        """Entropy of the classes among the training images, in nats: ln 10 when all of ten are as frequent."""
        return float(scipy.stats.entropy(np.bincount(self.splits[TRAIN].labels)))

    def memoryless_loss(self) -> float:
        """Entropy of the class given the pixel that is read last, among the training images; nan where the last step
        reads more than one number."""
        if self.inputs > 1:
            return math.nan
        train = self.splits[TRAIN]
        last = train.images.reshape(len(train.labels), -1)[:, self.places()[-1]]
        seen = np.unique(last, return_inverse=True)[1]
        pairs = np.bincount(seen * self.classes + train.labels)
        return float(scipy.stats.entropy(pairs[pairs > 0]) - scipy.stats.entropy(np.bincount(seen)))

    def oracle(self, inputs: Tensor) -> Tensor:
        """The known class of each sequence, found among all sequences by its numbers; 50 nats above the others."""
        known = {
            sequence.numpy().tobytes(): int(label)
            for split in self.splits.values()
            for sequence, label in zip(self.sequences(split.images), split.labels, strict=True)
        }
        answer = torch.zeros(*inputs.shape[:2], self.classes, dtype=inputs.dtype)
        for row, sequence in enumerate(inputs.contiguous()):
            answer[row, -1, known[sequence.numpy().tobytes()]] = 50.0
        return answer
