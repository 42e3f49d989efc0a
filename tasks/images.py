"""MNIST, Fashion-MNIST and CIFAR-10 as sequences, and permuted MNIST, from their files in a data folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import (
    ARCHIVES,
    ORDERS,
    DataFolderConfig,
    Labelled,
    PermutedImages,
    SequentialImages,
    archive_files,
    archive_problems,
    archive_splits,
)
from memsweep.registry import register_task

LUMA = np.array([0.299, 0.587, 0.114])  # grey of red, green and blue, ITU-R BT.601


@register_task("images")
class Images(SequentialImages):
    """Classify an image of MNIST, Fashion-MNIST or CIFAR-10, read row by row or pixel by pixel."""

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """A published data set of images: one sixth of MNIST's and Fashion-MNIST's training images validate (10 000 of
        60 000), one tenth of CIFAR-10's (5 000 of 50 000), the same for every seed; the test files test."""

        data: str = setting("mnist", "which data set: mnist, fashion_mnist, cifar10", choices=tuple(ARCHIVES))
        order: str = setting(
            "rows",
            "how an image is read: rows (28 steps of 28 numbers; cifar10 32 of 96), "
            "pixels (784 steps of 1; cifar10 1024 of 3)",
            choices=ORDERS,
        )
        permutation_seed: int = setting(
            0, "decides a fixed permutation of the pixels before they are read; 0: none", at_least=0, at_most=2**31 - 1
        )
        grayscale: bool = setting(False, "cifar10 only: one grey number a pixel (0.299 R + 0.587 G + 0.114 B)")

        def problems(self) -> Iterable[str]:
            """Contradictions between the fields, and problems with the files, one sentence each."""
            if self.grayscale and self.data != "cifar10":
                yield f"grayscale is true, but the images of {self.data} have no colours: leave it out"
            if self.data in ARCHIVES:
                yield from archive_problems(Path(self.folder) / self.data, ARCHIVES[self.data])

    brightest = 255.0

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        """The existing files of the data set."""
        return archive_files(Path(config.folder) / config.data, ARCHIVES[config.data])

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width, channels = ARCHIVES[self.config.data].shape
        return height, width, 1 if self.config.grayscale else channels

    def load(self) -> Mapping[str, Labelled]:
        return archive_splits(Path(self.config.folder) / self.config.data, ARCHIVES[self.config.data])

    def sequences(self, images: np.ndarray) -> Tensor:
        return super().sequences(images @ LUMA[:, None] if self.config.grayscale else images)


@register_task("permuted_mnist")
class PermutedMnist(PermutedImages):
    """Classify the digit of an image of MNIST, read pixel by pixel in a fixed permutation.

    The task of Le, Jaitly and Hinton (2015, arXiv 1504.00941), with the permutation of nnRNN's and the Stair RNN's
    code. The 10 000 training images that validate are others than there, because that code drew them from numpy's
    global generator.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """MNIST, pixel by pixel in a fixed permutation: 50 000 images train, 10 000 validate and 10 000 test."""

        permutation_seed: int = setting(
            1234,
            "decides the permutation of the pixels; 1234: the published one (numpy's RandomState)",
            at_least=1,
            at_most=2**31 - 1,
        )

        def problems(self) -> Iterable[str]:
            """Problems with the files, one sentence each."""
            return archive_problems(Path(self.folder) / "mnist", ARCHIVES["mnist"])

    shape = ARCHIVES["mnist"].shape
    brightest = 255.0

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        """The existing files of MNIST."""
        return archive_files(Path(config.folder) / "mnist", ARCHIVES["mnist"])

    def load(self) -> Mapping[str, Labelled]:
        return archive_splits(Path(self.config.folder) / "mnist", ARCHIVES["mnist"])
