"""MNIST, Fashion-MNIST and CIFAR-10 as sequences, in order and permuted, from their files in a data folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from memsweep.config.core.fields import setting
from memsweep.data.api import (
    ARCHIVES,
    ORDERS,
    DataFolderConfig,
    GreyImagesConfig,
    Labelled,
    PermutedImages,
    SequentialImages,
    archive_files,
    archive_problems,
    archive_splits,
)
from memsweep.registry import register_task


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

        def problems(self) -> Iterable[str]:
            return archive_problems(Path(self.folder) / self.data, ARCHIVES[self.data]) if self.data in ARCHIVES else ()

    brightest = 255.0

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        return archive_files(Path(config.folder) / config.data, ARCHIVES[config.data])

    @property
    def shape(self) -> tuple[int, int, int]:
        return ARCHIVES[self.config.data].shape

    def load(self) -> Mapping[str, Labelled]:
        return archive_splits(Path(self.config.folder) / self.config.data, ARCHIVES[self.config.data])


@register_task("permuted_mnist")
class PermutedMnist(PermutedImages):
    """Classify an image of MNIST or Fashion-MNIST, read pixel by pixel in a fixed permutation.

    The task of Le, Jaitly and Hinton (2015, arXiv 1504.00941), with the permutation of nnRNN's and the Stair RNN's
    code. The 10 000 training images that validate are others than there, because that code drew them from numpy's
    global generator.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(GreyImagesConfig):
        """Images pixel by pixel in a fixed permutation: 50 000 train, 10 000 validate and 10 000 test."""

        permutation_seed: int = setting(
            1234,
            "decides the permutation of the pixels; 1234: the published one (numpy's RandomState)",
            at_least=1,
            at_most=2**31 - 1,
        )

        def problems(self) -> Iterable[str]:
            return archive_problems(Path(self.folder) / self.data, ARCHIVES[self.data]) if self.data in ARCHIVES else ()

    shape = ARCHIVES["mnist"].shape  # Fashion-MNIST's, too
    brightest = 255.0

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        return archive_files(Path(config.folder) / config.data, ARCHIVES[config.data])

    def load(self) -> Mapping[str, Labelled]:
        return archive_splits(Path(self.config.folder) / self.config.data, ARCHIVES[self.config.data])
