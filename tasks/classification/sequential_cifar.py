"""Sequential CIFAR-10: classify an image after reading its 1024 pixels one by one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import (
    ANSWERS,
    ARCHIVES,
    Archive,
    DataFolderConfig,
    Labelled,
    SequentialImages,
    archive_files,
    archive_problems,
    archive_splits,
)
from memsweep.registry import register_task

CIFAR = ARCHIVES["cifar10"]
LUMA, HALF = np.array([19595, 38470, 7471]), 2**15  # grey of red, green and blue, ITU-R BT.601, in units of 2^-16
COLOUR_MEAN, COLOUR_DEVIATION = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
GREY_MEAN, GREY_DEVIATION = (122.6 / 255.0,), (61.0 / 255.0,)


@register_task("sequential_cifar")
class SequentialCifar(SequentialImages):
    """Classify an image of CIFAR-10 after reading its 1024 pixels one by one, row by row.

    The task of table 2 of Zucchet et al. (2023, arXiv 2305.15947), with the normalization of their code: grey is
    torchvision's (the luminance, rounded to a byte); then mean and deviation over the training images, as constants.
    Their sweeps read colours and validate on 1 % of the training images (``validation_share`` 0.01).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """The files of CIFAR-10's binary version, pixel by pixel: 45 000 images to train on, 5 000 to validate (or as
        ``validation_share`` says; the same for every seed), 10 000 to test."""

        colour: bool = setting(False, "read red, green and blue at each step (3 numbers); false: one grey number")
        answer: str = setting(
            "every",
            "where the class is asked: last (after the last pixel), every (after each pixel, as "
            "rules that go forward in time need it; the published choice)",
            choices=ANSWERS,
        )
        validation_share: float = setting(0.1, "share of the training images that validates", above=0.0, below=1.0)

        def problems(self) -> Iterable[str]:
            return archive_problems(Path(self.folder) / "cifar10", CIFAR)

    brightest = 255.0
    order = "pixels"

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        return archive_files(Path(config.folder) / "cifar10", CIFAR)

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width, channels = CIFAR.shape
        return height, width, channels if self.config.colour else 1

    def load(self) -> Mapping[str, Labelled]:
        folder = Path(self.config.folder) / "cifar10"
        archive = dataclasses.replace(CIFAR, held_out=self.config.validation_share)
        return archive_splits(folder, archive) if self.config.colour else _grey_splits(folder, archive)

    def sequences(self, images: np.ndarray) -> Tensor:
        """Images ``[B, 32, 32, K]`` as sequences ``[B, 1024, K]``, float64, each channel less its mean, by its
        deviation."""
        mean, deviation = (COLOUR_MEAN, COLOUR_DEVIATION) if self.config.colour else (GREY_MEAN, GREY_DEVIATION)
        pixels_BTK = super().sequences(images)
        return (pixels_BTK - torch.tensor(mean, dtype=torch.float64)) / torch.tensor(deviation, dtype=torch.float64)


@functools.lru_cache(maxsize=1)
def _grey_splits(folder: Path, archive: Archive) -> Mapping[str, Labelled]:
    splits = archive_splits(folder, archive)
    return {name: Labelled(grey(split.images), split.labels) for name, split in splits.items()}


def grey(images: np.ndarray) -> np.ndarray:
    """Images ``[B, height, width, 3]``, bytes, as bytes of grey, rounded: ``[B, height, width, 1]``."""
    grey_images = np.empty(images.shape[:-1], np.uint8)
    # one by one: the int64 sums take eight times the memory of an image
    for image, grey_image in zip(images, grey_images, strict=True):
        grey_image[:] = image @ LUMA + HALF >> 16
    return grey_images[..., None]
