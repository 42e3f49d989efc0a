"""MNIST, Fashion-MNIST and CIFAR-10 as sequences, and permuted MNIST, from the files in which they are published.

The files lie in a data folder, one folder for each data set, compressed (``.gz``) or not::

    <folder>/mnist/train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte
    <folder>/fashion_mnist/  the same four names
    <folder>/cifar10/data_batch_1.bin ... data_batch_5.bin, test_batch.bin

IDX (MNIST): a big-endian header of 32-bit numbers, magic 0x0803 (bytes, 3 axes) or 0x0801 (1 axis), then the length of
each axis; then the bytes. CIFAR-10, binary version: records of 3073 bytes, the label and 1024 bytes each of red, green
and blue, row by row. Nothing is downloaded. Files may hold fewer images than the published ones.
"""

from __future__ import annotations

import functools
import gzip
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from memsweep.config.fields import setting
from memsweep.learning.objectives import (
    DATA_VARIABLE,
    ORDERS,
    TEST,
    TRAIN,
    VALIDATION,
    Labelled,
    PermutedImages,
    SequentialImages,
    Stream,
    data_folder,
)
from memsweep.registry import register_task

LUMA = np.array([0.299, 0.587, 0.114])  # grey of red, green and blue, ITU-R BT.601


@dataclass(frozen=True)
class Archive:
    """How a data set is published.

    Attributes:
        title: its name, and that of the format.
        train, test: names of the files; of MNIST's kind: images, then labels.
        size: bytes of the first training file, not compressed, as published.
        shape: height, width and channels of an image.
        held_out: share of the training images that validates.
        inspect: looks at sizes and headers alone; ValueError with a sentence about a file that is not in order.
        read: images and labels of the files of one kind; ValueError likewise.
    """

    title: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    size: int
    shape: tuple[int, int, int]
    held_out: float
    inspect: Callable[[list[Path]], object]
    read: Callable[[list[Path]], Labelled]


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: it does not decompress ({error}). Get the file again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def _begins(path: Path, count: int) -> tuple[bytes, int]:
    """The first bytes of a file's contents, and how many there are in all."""
    with _blamed(path), path.open("rb") as file:
        if path.suffix != ".gz":
            return file.read(count), path.stat().st_size
        with gzip.open(file) as unpacked:
            first = unpacked.read(count)
        file.seek(-4, os.SEEK_END)  # the last four bytes of gzip's format are the length of what it holds
        return first, int.from_bytes(file.read(4), "little")


def _contents(path: Path) -> bytes:
    with _blamed(path):
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _idx_lengths(path: Path, axes: int) -> list[int]:
    """The lengths of the axes of an IDX file of unsigned bytes, checked against its size."""
    magic, header = 0x0800 + axes, 4 * (axes + 1)
    first, size = _begins(path, header)
    if len(first) < header or int.from_bytes(first[:4], "big") != magic:
        raise ValueError(
            f"{path} is no IDX file of unsigned bytes with {axes} axes: it begins with {first[:4].hex() or 'nothing'}, "
            f"and must begin with {magic:08x}. Get the file again"
        )
    lengths = [int(length) for length in np.frombuffer(first[4:], ">u4")]
    if size - header != math.prod(lengths):
        raise ValueError(
            f"{path} is damaged: its header promises {' x '.join(map(str, lengths))} bytes, but {size - header} "
            "follow. Get the file again"
        )
    return lengths


def _inspect_idx(paths: list[Path]) -> None:
    (images, *shape), (labels,) = _idx_lengths(paths[0], 3), _idx_lengths(paths[1], 1)
    if shape != [28, 28]:
        raise ValueError(f"{paths[0]} holds images of {shape[0]} x {shape[1]} pixels; they must have 28 x 28")
    if images != labels:
        raise ValueError(f"{paths[0]} holds {images} images, but {paths[1]} holds {labels} labels: get both again")


def _read_idx(paths: list[Path]) -> Labelled:
    _inspect_idx(paths)
    images = np.frombuffer(_contents(paths[0]), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return _checked(Labelled(images, np.frombuffer(_contents(paths[1]), np.uint8, offset=8).astype(np.int64)), paths[1])


def _inspect_cifar(paths: list[Path]) -> None:
    for path in paths:
        _, size = _begins(path, 1)
        if not size or size % 3073:
            raise ValueError(
                f"{path} is damaged: {size} bytes are no whole number of records of 3073 bytes (a label, then 32 x 32 "
                "pixels in 3 colours). Get the file again, in CIFAR-10's binary version"
            )


def _read_cifar(paths: list[Path]) -> Labelled:
    _inspect_cifar(paths)
    parts = []
    for path in paths:
        records = np.frombuffer(_contents(path), np.uint8).reshape(-1, 3073)
        images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        parts.append(_checked(Labelled(images, records[:, 0].astype(np.int64)), path))
    return Labelled(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))


def _checked(found: Labelled, path: Path) -> Labelled:
    if not len(found.labels) or found.labels.max() > 9:
        raise ValueError(
            f"{path} holds {len(found.labels)} labels up to {found.labels.max(initial=0)}; allowed: 0 ... 9"
        )
    return found


def _like_mnist(title: str) -> Archive:
    names = [f"{kind}-{what}" for kind in ("train", "t10k") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    train, test = (names[0], names[1]), (names[2], names[3])
    return Archive(f"{title} (IDX files)", train, test, 16 + 60_000 * 784, (28, 28, 1), 1 / 6, _inspect_idx, _read_idx)


ARCHIVES = {
    "mnist": _like_mnist("MNIST"),
    "fashion_mnist": _like_mnist("Fashion-MNIST"),
    "cifar10": Archive(
        title="CIFAR-10 (its binary version, cifar-10-binary.tar.gz)",
        train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        test=("test_batch.bin",),
        size=10_000 * 3073,
        shape=(32, 32, 3),
        held_out=1 / 10,
        inspect=_inspect_cifar,
        read=_read_cifar,
    ),
}


def _inspected(folder: Path, archive: Archive) -> Iterator[str]:
    """What is wrong with the files of a data set, as far as sizes and headers tell."""
    if missing := _missing(folder, archive):
        yield missing
        return
    for names in (archive.train, archive.test):
        try:
            archive.inspect(_paths(folder, names))
        except ValueError as error:
            yield str(error)


def _paths(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [path for name in names if (path := _found(folder, name))]


def _found(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _missing(folder: Path, archive: Archive) -> str | None:
    """The sentence that says which files are not there, or None."""
    absent = [name for name in archive.train + archive.test if _found(folder, name) is None]
    if not absent:
        return None
    return (
        f"the folder {folder} lacks {', '.join(absent)}, of {archive.title}. Put the published files there, "
        f"as they are or compressed as .gz ({archive.train[0]} has {archive.size:,} bytes when not compressed), or say "
        f"with the field folder, or with the environment variable {DATA_VARIABLE}, where the folder above it is"
    )


@functools.lru_cache(maxsize=2)
def _splits(data: str, folder: Path) -> Mapping[str, Labelled]:
    archive = ARCHIVES[data]
    if missing := _missing(folder, archive):
        raise FileNotFoundError(missing)
    train, test = (archive.read(_paths(folder, names)) for names in (archive.train, archive.test))
    held_out = round(len(train.labels) * archive.held_out)
    if not held_out:
        raise ValueError(f"the {len(train.labels)} training images in {folder} are too few to hold some out")
    train, validation = train.split(held_out, Stream(0, "images: validation split"))
    return {TRAIN: train, VALIDATION: validation, TEST: test}


@register_task("images")
class Images(SequentialImages):
    """Say what an image of MNIST, Fashion-MNIST or CIFAR-10 shows, after reading it row by row or pixel by pixel."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
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
        folder: str = setting(
            factory=data_folder,
            doc=f"where the data sets' folders lie; ${DATA_VARIABLE} where that is set, else data",
            cosmetic=True,
        )

        def __post_init__(self) -> None:
            # a worker may run in another folder than the command that was given
            object.__setattr__(self, "folder", str(Path(self.folder).absolute()))

        def problems(self) -> Iterable[str]:
            """What is wrong between the fields, or with the files, one sentence each."""
            if self.grayscale and self.data != "cifar10":
                yield f"grayscale is true, but the images of {self.data} have no colours: leave it out"
            if self.data in ARCHIVES:
                yield from _inspected(Path(self.folder) / self.data, ARCHIVES[self.data])

    brightest = 255.0

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        """The files that the data set is read from, as far as they are there."""
        archive = ARCHIVES[config.data]
        return _paths(Path(config.folder) / config.data, (*archive.train, *archive.test))

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width, channels = ARCHIVES[self.config.data].shape
        return height, width, 1 if self.config.grayscale else channels

    @property
    def order(self) -> str:
        return self.config.order

    @property
    def permutation_seed(self) -> int:
        return self.config.permutation_seed

    def load(self) -> Mapping[str, Labelled]:
        return _splits(self.config.data, Path(self.config.folder) / self.config.data)

    def sequences(self, images: np.ndarray) -> Tensor:
        return super().sequences(images @ LUMA[:, None] if self.config.grayscale else images)


@register_task("permuted_mnist")
class PermutedMnist(PermutedImages):
    """Say which digit an image of MNIST shows, after reading its 784 pixels one by one in a fixed disorder.

    The task of Le, Jaitly and Hinton (2015, arXiv 1504.00941), with the permutation of nnRNN's and the Stair RNN's
    code. The 10 000 training images that validate are others than there, where numpy's generator went on.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """MNIST, pixel by pixel in a fixed disorder: 50 000 images to train on, 10 000 to validate, 10 000 to test."""

        permutation_seed: int = setting(
            1234,
            "decides the permutation of the pixels; 1234: the published one (numpy's RandomState)",
            at_least=1,
            at_most=2**31 - 1,
        )
        folder: str = setting(
            factory=data_folder,
            doc=f"where the folder mnist lies; ${DATA_VARIABLE} where that is set, else data",
            cosmetic=True,
        )

        def __post_init__(self) -> None:
            object.__setattr__(self, "folder", str(Path(self.folder).absolute()))

        def problems(self) -> Iterable[str]:
            """What is wrong with the files, one sentence each."""
            return _inspected(Path(self.folder) / "mnist", ARCHIVES["mnist"])

    shape = ARCHIVES["mnist"].shape
    brightest = 255.0

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        """The files of MNIST, as far as they are there."""
        archive = ARCHIVES["mnist"]
        return _paths(Path(config.folder) / "mnist", (*archive.train, *archive.test))

    def load(self) -> Mapping[str, Labelled]:
        return _splits("mnist", Path(self.config.folder) / "mnist")
