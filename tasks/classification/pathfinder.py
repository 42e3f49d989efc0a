"""Pathfinder and Path-X of the Long Range Arena, from the files in which they are published.

The files lie in a data folder, as they come out of ``lra_release.gz``::

    <folder>/pathfinder32/curv_contour_length_14/metadata/0.npy, 1.npy ...
    <folder>/pathfinder32/curv_contour_length_14/imgs/0/sample_0.png ...

and beside them ``pathfinder64``, ``pathfinder128`` (Path-X), ``pathfinder256``. The metadata are text whatever their
names say: a line for each image, with columns parted by spaces: folder, file, number, class (1: the two dots are joined
by a path), and more. Nothing is downloaded. There may be fewer images than the published 200 000.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import (
    ANSWERS,
    TEST,
    TRAIN,
    VALIDATION,
    DataFolderConfig,
    Labelled,
    SequentialImages,
    Stream,
    lacks,
    problems_of,
    published_text,
    with_times,
)
from memsweep.registry import register_task

SIZES = (32, 64, 128, 256)
DIFFICULTY = "curv_contour_length_14"  # the published choice among the lengths of the path
COLUMNS = "the image's folder, its file, its number, its class"
HELD_OUT = 0.1  # share of the images that validates, and share that tests, as published


@dataclass(frozen=True)
class Listing:
    """The content of a folder's metadata.

    Attributes:
        pictures: file names below the folder, ``[B]``, text.
        labels: ``[B]``, int64: 0 or 1.
        first: the first picture of each metadata file.
    """

    pictures: np.ndarray
    labels: np.ndarray
    first: tuple[str, ...]


def _metadata(folder: Path) -> list[Path]:
    """The metadata files, in the order of their numbers."""
    return sorted((folder / "metadata").glob("*.npy"), key=lambda path: (len(path.stem), path.stem))


@functools.lru_cache(maxsize=4)
def _listing(files: tuple[tuple[Path, int], ...]) -> Listing:
    by_file = [list(_lines(path)) for path, _ in files]
    pairs = [pair for each in by_file for pair in each]
    first = tuple(each[0][0] for each in by_file if each)
    return Listing(np.array([name for name, _ in pairs]), np.array([label for _, label in pairs], np.int64), first)


def _lines(path: Path) -> Iterator[tuple[str, int]]:
    """Picture and class of each line."""
    for number, line in enumerate(published_text(path).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) < 4:
            raise ValueError(
                f"{path}, line {number}: {len(words)} columns where at least 4 belong ({COLUMNS}). Get the file again"
            )
        if words[3] not in ("0", "1"):
            raise ValueError(
                f"{path}, line {number}: the class {words[3]!r} in column 4; allowed: 0 (no path) or 1 (a path)"
            )
        yield f"{words[0]}/{words[1]}", int(words[3])


def _picture(path: Path, size: int) -> np.ndarray:
    """The bytes of grey of an image, ``[size, size]``."""
    from PIL import Image

    try:
        with Image.open(path, formats=("PNG",)) as image:
            if image.size == (size, size) and not image.mode.startswith("I"):
                return np.asarray(image.convert("L"))
            width, height = image.size
            what = f"an image of {width} x {height} pixels in the mode {image.mode}"
    except FileNotFoundError:
        raise ValueError(
            f"there is no image {path}, which the metadata name. Unpack all of the published files"
        ) from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises on damage
        raise ValueError(f"{path} is no PNG image that can be read ({error}). Get the file again") from None
    raise ValueError(f"{path} holds {what}; it must have {size} x {size} pixels of one byte each")


@register_task("pathfinder")
class Pathfinder(SequentialImages):
    """Decide whether a path of dashes joins the two dots of an image, read pixel by pixel; Path-X with size 128.

    Of the Long Range Arena (Tay et al., 2021, arXiv 2011.04006; the images of Linsley et al., 2018). Grey of 0 ... 255
    becomes -1 ... 1, as in the code of Zucchet et al. (2023). One tenth of the images validates and one tests, as
    there, but other images, because torch's generator chose there. Images are decoded when they are drawn, and not
    kept.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """Which images: 8 of 10 to train on, 1 to validate, 1 to test, the same for every seed. Their metadata and the
        first image of each metadata file are part of a trial's identity; the other 200 000 files are not looked at."""

        size: int = setting(
            32,
            "height and width of an image in pixels: 32 (Pathfinder, 1024 steps), 64, 128 (Path-X, 16384 steps), 256",
            at_least=32,
            at_most=256,
        )
        answer: str = setting(
            "last",
            "where the class is asked: last (after the last pixel), every (after each pixel)",
            choices=ANSWERS,
        )

        @property
        def place(self) -> Path:
            """The folder that holds ``metadata`` and ``imgs``."""
            return Path(self.folder) / f"pathfinder{self.size}" / DIFFICULTY

        def problems(self) -> Iterable[str]:
            """Problems with the size, the metadata or the first image."""
            if self.size not in SIZES:
                yield f"size is {self.size}; published are {', '.join(map(str, SIZES))}"
                return
            yield from problems_of(lambda: _picture(self.place / self.listing().pictures[0], self.size))

        def listing(self) -> Listing:
            """The metadata, read once for all tasks.

            Raises:
                ValueError: there are no metadata, or a file of them has another format.
            """
            files = _metadata(self.place)
            if not files:
                of = f"Pathfinder, {self.size} x {self.size} pixels, of the Long Range Arena (lra_release.gz)"
                raise ValueError(lacks(self.place, ["metadata/0.npy ..."], of))
            listing = _listing(with_times(files))
            if not round(len(listing.labels) * HELD_OUT):
                raise ValueError(
                    f"the metadata in {self.place / 'metadata'} name {len(listing.labels)} images: too few to hold a "
                    "tenth of them out. Get the files again"
                )
            return listing

    brightest = 255.0
    order = "pixels"
    classes = 2

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        """The metadata, and the first image of each metadata file, which differs between generations of the images."""
        try:
            first = config.listing().first
        except ValueError:  # the config's problems report it
            first = ()
        return [*_metadata(config.place), *(config.place / name for name in first)]

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.config.size, self.config.size, 1

    def load(self) -> Mapping[str, Labelled]:
        """The names of the images of each stream, and their classes."""
        listing = self.config.listing()
        held_out = round(len(listing.labels) * HELD_OUT)
        rest, test = Labelled(listing.pictures, listing.labels).split(held_out, Stream(0, "pathfinder: test split"))
        train, validation = rest.split(held_out, Stream(0, "pathfinder: validation split"))
        return {TRAIN: train, VALIDATION: validation, TEST: test}

    def sequences(self, images: np.ndarray) -> Tensor:
        """The images of these names, ``[B]``, as sequences ``[B, T, 1]``, float64, -1 ... 1.

        Raises:
            ValueError: an image is missing or damaged.
        """
        read = [_picture(self.config.place / name, self.config.size) for name in images]
        return 2.0 * super().sequences(np.stack(read)[..., None]) - 1.0

    def memoryless_loss(self) -> float:
        """Unknown: it would need all images, decoded. One pixel says almost nothing about a path."""
        return math.nan
