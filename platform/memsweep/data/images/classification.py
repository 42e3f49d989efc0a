"""Images read as sequences, with one class for a sequence, answered at its last step or at every step.

Letters: N leading dimensions (replicas, copies), B batch, T time, I inputs, C classes, P pixels, K channels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts are imported when they are used
import torch
from torch import Tensor

from memsweep.data.losses import last_step_accuracy, last_step_cross_entropy, mean_cross_entropy
from memsweep.data.sequences.labelled import SURE
from memsweep.data.task import Batch, Task, epoch_rows
from memsweep.streams import TRAIN, Stream

ORDERS = ("rows", "pixels")


@dataclass(frozen=True)
class Labelled:
    """Images and their classes.

    Attributes:
        images: ``[B, height, width, K]``, bytes or other numbers; or ``[B]``, names of images for a task that reads
            them when it draws them (``sequences``).
        labels: ``[B]``, int64, 0 ... C-1.
    """

    images: np.ndarray
    labels: np.ndarray

    def select(self, rows: np.ndarray) -> Labelled:
        """The images at these positions."""
        return Labelled(self.images[rows], self.labels[rows])

    def split(self, held_out: int, stream: Stream) -> tuple[Labelled, Labelled]:
        """Two disjoint sets, the second with ``held_out`` members, by a permutation that the stream decides."""
        order = stream.generator().permutation(len(self.labels))
        return self.select(order[held_out:]), self.select(order[:held_out])


class SequentialImages(Task):
    """A finite set of labelled images, read row by row or pixel by pixel; cross entropy of the answer.

    The loss is that of the last step's answer, or, with ``answer`` ``every``, the mean over all steps, though most of
    them have read only a part of the image. The accuracy is that of the last step in both. Batches are drawn as in
    ``epoch_rows``. The config has ``order`` and ``answer``, unless the task defines them.
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
        """The largest value of a pixel, which becomes 1."""

    @property
    def order(self) -> str:
        """How an image is read: ``rows`` or ``pixels``."""
        order: str = self.config.order
        return order

    @property
    def answer(self) -> str:
        """At which steps the class is asked, ``last`` or ``every``; the last where the config has no such field."""
        return str(getattr(self.config, "answer", "last"))

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
        batch = split.select(epoch_rows(stream, index, size, len(split.labels)))
        return Batch(self.sequences(batch.images), torch.from_numpy(batch.labels))

    def sequences(self, images: np.ndarray) -> Tensor:
        """Images ``[B, height, width, K]`` as sequences ``[B, T, I]``, float64, 0 ... 1."""
        pixels_BPK = images.reshape(len(images), -1, images.shape[-1])
        read_BPK = pixels_BPK[:, self.reading_order()] / self.brightest
        return torch.from_numpy(read_BPK.reshape(len(images), self.horizon, self.inputs).astype(np.float64))

    def reading_order(self) -> np.ndarray:
        """Positions of the pixels in the order in which they are read, ``[P]``; as they are by default."""
        height, width, _ = self.shape
        return np.arange(height * width)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        if self.answer == "every":
            return mean_cross_entropy(outputs, batch.targets.unsqueeze(-1)).mean(-1)
        return last_step_cross_entropy(outputs, batch.targets).mean(-1)

    def metrics(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """``accuracy``: the share of images that are classified correctly, 0 ... 1."""
        return {"accuracy": last_step_accuracy(outputs, batch.targets)}

    def metric_levels(self) -> dict[str, tuple[float, float]]:
        """1, and the share of the most frequent class."""
        counts = np.bincount(self.splits[TRAIN].labels)
        return {"accuracy": (1.0, float(counts.max() / counts.sum()))}

    def chance(self) -> float:
        """Entropy of the classes among the training images, in nats: ln 10 when all of ten are as frequent."""
        return float(scipy.stats.entropy(np.bincount(self.splits[TRAIN].labels)))

    def memoryless_loss(self) -> float:
        """Entropy of the class given the last pixel, among the training images; where every step answers, the mean of
        the entropies given each pixel. nan where a step reads more than one number."""
        if self.inputs > 1:
            return math.nan
        train = self.splits[TRAIN]
        pixels_BP = train.images.reshape(len(train.labels), -1)
        asked = self.reading_order() if self.answer == "every" else self.reading_order()[-1:]
        asked_PB = np.ascontiguousarray(pixels_BP[:, asked].T)
        return float(np.mean([self._conditional_entropy(read_B, train.labels) for read_B in asked_PB]))

    def _conditional_entropy(self, read_B: np.ndarray, labels_B: np.ndarray) -> float:
        """Entropy of the class given a number, in nats, by their joint frequencies."""
        is_byte = read_B.dtype == np.uint8  # bytes are counted as they are; other numbers must be sorted first
        seen = read_B.astype(np.int64) if is_byte else np.unique(read_B, return_inverse=True)[1]
        pairs, alone = np.bincount(seen * self.classes + labels_B), np.bincount(seen)
        return float(scipy.stats.entropy(pairs[pairs > 0]) - scipy.stats.entropy(alone[alone > 0]))

    def oracle(self, inputs: Tensor) -> Tensor:
        """The known class of each sequence, at every step of it, looked up by the sequence's numbers."""
        known = {
            sequence.numpy().tobytes(): int(label)
            for split in self.splits.values()
            for sequence, label in zip(self.sequences(split.images), split.labels, strict=True)
        }
        answer = torch.zeros(*inputs.shape[:2], self.classes, dtype=inputs.dtype)
        for row, sequence in enumerate(inputs.contiguous()):
            answer[row, :, known[sequence.numpy().tobytes()]] = SURE
        return answer


class PermutedImages(SequentialImages):
    """Images read pixel by pixel in the permutation of the published code: neighbours are far apart in time.

    The permutation is the first that numpy's ``RandomState`` of the seed gives, a generator whose numbers numpy has
    promised to keep; seed 1234 is that of the experiments with unitary and orthogonal networks.
    """

    order = "pixels"

    def reading_order(self) -> np.ndarray:
        height, width, _ = self.shape
        return np.random.RandomState(self.config.permutation_seed).permutation(height * width)
