"""MNIST, Fashion-MNIST and CIFAR-10, in the files in which they are published.

The files lie in a data folder, one folder for each data set, compressed (``.gz``) or not::

    <folder>/mnist/train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte
    <folder>/fashion_mnist/  the same four names
    <folder>/cifar10/data_batch_1.bin ... data_batch_5.bin, test_batch.bin

IDX (MNIST): a big-endian header of 32-bit numbers, magic 0x0803 (bytes, 3 axes) or 0x0801 (1 axis), then the length of
each axis; then the bytes. CIFAR-10, binary version: records of 3073 bytes, the label and 1024 bytes each of red, green
and blue, row by row. Nothing is downloaded. Files may have fewer images than the published ones.
"""

from __future__ import annotations

import functools
import gzip
import math
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.folder import DataFolderConfig, lacks, problems_of
from memsweep.data.images.classification import Labelled
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream


@dataclass(frozen=True)
class Archive:
    """The published form of a data set.

    Attributes:
        title: its name, and that of the format.
        train, test: names of the files; of MNIST's kind: images, then labels.
        size: bytes of the first training file, not compressed, as published.
        shape: height, width and channels of an image.
        held_out: share of the training images that validates.
        inspect: checks sizes and headers alone; raises ValueError with a sentence about a damaged file.
        read: images and labels of the files of one kind; raises ValueError likewise.
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
def _read_errors(path: Path) -> Iterator[None]:
    """Errors of reading and decompressing a file, as ValueErrors with a sentence."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: it does not decompress ({error}). Get the file again") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


def _first_bytes(path: Path, count: int) -> tuple[bytes, int]:
    """The first bytes of a file's content, decompressed, and the length of the whole content."""
    with _read_errors(path), path.open("rb") as file:
        if path.suffix != ".gz":
            return file.read(count), path.stat().st_size
        with gzip.open(file) as unpacked:
            first = unpacked.read(count)
        file.seek(-4, os.SEEK_END)  # the last four bytes of gzip's format are the length of what it holds
        return first, int.from_bytes(file.read(4), "little")


def _contents(path: Path) -> bytes:
    with _read_errors(path):
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _idx_lengths(path: Path, axes: int) -> list[int]:
    """The lengths of the axes of an IDX file of unsigned bytes, checked against its size."""
    magic, header = 0x0800 + axes, 4 * (axes + 1)
    first, size = _first_bytes(path, header)
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
    return _check_labels(
        Labelled(images, np.frombuffer(_contents(paths[1]), np.uint8, offset=8).astype(np.int64)), paths[1]
    )


def _inspect_cifar(paths: list[Path]) -> None:
    for path in paths:
        _, size = _first_bytes(path, 1)
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
        parts.append(_check_labels(Labelled(images, records[:, 0].astype(np.int64)), path))
    return Labelled(np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts]))


def _check_labels(data: Labelled, path: Path) -> Labelled:
    if not len(data.labels) or data.labels.max() > 9:
        raise ValueError(f"{path} holds {len(data.labels)} labels up to {data.labels.max(initial=0)}; allowed: 0 ... 9")
    return data


def _idx_archive(title: str) -> Archive:
    names = [f"{kind}-{what}" for kind in ("train", "t10k") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    train, test = (names[0], names[1]), (names[2], names[3])
    return Archive(f"{title} (IDX files)", train, test, 16 + 60_000 * 784, (28, 28, 1), 1 / 6, _inspect_idx, _read_idx)


ARCHIVES = {
    "mnist": _idx_archive("MNIST"),
    "fashion_mnist": _idx_archive("Fashion-MNIST"),
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


@dataclass(frozen=True, kw_only=True)
class GreyImagesConfig(DataFolderConfig):
    """Base of the Config of a task that reads MNIST or a data set in its files' form."""

    data: str = setting("mnist", "which data set: mnist, fashion_mnist", choices=("mnist", "fashion_mnist"))


def archive_problems(folder: Path, archive: Archive) -> Iterator[str]:
    """Problems with the files of a data set that sizes and headers show, one sentence each."""
    if missing := _missing(folder, archive):
        yield missing
        return
    for names in (archive.train, archive.test):
        yield from problems_of(functools.partial(archive.inspect, _paths(folder, names)))


def archive_files(folder: Path, archive: Archive) -> list[Path]:
    """The existing files of a data set in a fixed order, those of training first."""
    return _paths(folder, (*archive.train, *archive.test))


def _paths(folder: Path, names: tuple[str, ...]) -> list[Path]:
    return [path for name in names if (path := _existing(folder, name))]


def _existing(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _missing(folder: Path, archive: Archive) -> str | None:
    """The message about missing files, or None."""
    absent = [name for name in archive.train + archive.test if _existing(folder, name) is None]
    if not absent:
        return None
    how = f", as they are or compressed as .gz ({archive.train[0]} has {archive.size:,} bytes when not compressed)"
    return lacks(folder, absent, archive.title, how)


@functools.lru_cache(maxsize=2)
def archive_splits(folder: Path, archive: Archive) -> Mapping[str, Labelled]:
    """The images of the streams ``train``, ``validation`` and ``test``, read once for all tasks.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: a file is damaged or in another format.
    """
    if missing := _missing(folder, archive):
        raise FileNotFoundError(missing)
    train, test = (archive.read(_paths(folder, names)) for names in (archive.train, archive.test))
    held_out = round(len(train.labels) * archive.held_out)
    if not 0 < held_out < len(train.labels):
        raise ValueError(
            f"of the {len(train.labels)} training images in {folder}, {held_out} would validate: at least one must, "
            "and at least one must train. Get more of the published files, or change the share that validates"
        )
    train, validation = train.split(held_out, Stream(0, "images: validation split"))
    return {TRAIN: train, VALIDATION: validation, TEST: test}
