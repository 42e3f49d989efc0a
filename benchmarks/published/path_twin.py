"""Writes images in the form and the number of Pathfinder's, of the Long Range Arena, which is not to be had by all.

    python -m benchmarks.published.path_twin data
    memsweep sweep arena_small

An image has 32 x 32 pixels and shows two long paths of dashes and some short ones. Two ends of long paths carry a dot:
those of one path (class 1), or one end of each (class 0). On a path, lit pixels are at most ``STEP`` apart; those of
different paths are farther apart. So ``joined`` reads the class from the pixels alone, by walking from dot to dot. It
is the oracle, and it is right for every image.

It is another data set: an accuracy on it says nothing of Pathfinder, and is not comparable with published ones. It
shows that what reads Pathfinder runs at its size.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

IMAGES = 200_000
SIZE = 32
DASHES, SHORT = 9, 3
"""Dashes of a long path, and of a short one."""
SHORT_PATHS = 4
"""Largest number of them."""
STEP, APART = 2, 4
"""Rows or columns: the most between neighbouring pixels on a path, and what lies between different paths at least.

Dots reach one pixel further.
"""
TURN = 0.5
"""Largest turn between dashes, in radians."""
GREY, DOT = (120, 200), 255
MANY, ATTEMPTS = 50_000, 60
"""Paths drawn at a time, and attempts to place one in an image."""
AT_ONCE = 5_000
"""Images of a folder, and of a metadata file."""
FOLDER = Path("pathfinder32") / "curv_contour_length_14"


class Paths:
    """Paths of equally many dashes, drawn many at a time, of which images take some.

    Attributes:
        pixels: two for each dash and none for the gap behind it, in order: ``[N, P, 2]``. Ends are more than ``APART``
            apart, so that their dots do not touch.
    """

    def __init__(self, draw: np.random.RandomState, dashes: int) -> None:
        turns = draw.uniform(-TURN, TURN, (MANY, dashes))
        turns[:, 0] = draw.uniform(0, 2 * np.pi, MANY)
        ways = turns.cumsum(1).repeat(3, 1)  # two pixels and a gap
        moves = np.stack([np.cos(ways), np.sin(ways)], 2).cumsum(1)
        places = np.rint(draw.uniform(1, SIZE - 1, (MANY, 1, 2)) + moves).astype(int)
        pixels = places[:, np.arange(3 * dashes) % 3 < 2]
        within = ((pixels >= 1) & (pixels <= SIZE - 2)).all((1, 2))
        is_open = abs(pixels[:, 0] - pixels[:, -1]).max(1) > APART
        self.pixels = pixels[within & is_open]

    def placed(self, draw: np.random.RandomState, free: np.ndarray) -> np.ndarray | None:
        """A path among the free pixels, ``[P, 2]``; with its surroundings they are then free no more."""
        for choice in draw.randint(len(self.pixels), size=ATTEMPTS):
            pixels = self.pixels[choice]
            if free[pixels[:, 0], pixels[:, 1]].all():
                for row, column in pixels:
                    free[max(0, row - APART) : row + APART + 1, max(0, column - APART) : column + APART + 1] = False
                return pixels
        return None


def images(draw: np.random.RandomState, labels: Sequence[int]) -> Iterator[np.ndarray]:
    """Images of some classes, ``[SIZE, SIZE]``, bytes."""
    long, short = Paths(draw, DASHES), Paths(draw, SHORT)
    for label in labels:
        while True:
            free = np.ones((SIZE, SIZE), bool)
            first, second = long.placed(draw, free), long.placed(draw, free)
            if first is not None and second is not None:
                break
        others = [short.placed(draw, free) for _ in range(draw.randint(SHORT_PATHS + 1))]
        image = np.zeros((SIZE, SIZE), np.uint8)
        for pixels in (first, second, *others):
            if pixels is not None:
                image[pixels[:, 0], pixels[:, 1]] = draw.randint(*GREY)
        for row, column in (first[0], first[-1] if label else second[-1]):
            image[row - 1 : row + 2, column - 1 : column + 2] = DOT
        yield image


def joined(image: np.ndarray) -> int:
    """The class of an image: 1 if a walk over lit pixels, in steps of at most ``STEP``, leads from dot to dot."""
    lit = {(int(row), int(column)) for row, column in np.argwhere(image)}
    dots = {(int(row), int(column)) for row, column in np.argwhere(image == DOT)}
    start = min(dots)
    seen, rest = {start}, [start]
    while rest:
        row, column = rest.pop()
        near = {(row + down, column + right) for down in range(-STEP, STEP + 1) for right in range(-STEP, STEP + 1)}
        rest += (found := (near & lit) - seen)
        seen |= found
    return int(dots <= seen)


def write(folder: Path, count: int, seed: int) -> None:
    """Writes images and their metadata into a folder, half of each class.

    Raises:
        SystemExit: the folder is there.
    """
    if folder.exists():
        raise SystemExit(f"{folder} is there and stays as it is: name another data folder")
    (folder / "metadata").mkdir(parents=True)
    draw = np.random.RandomState(seed)
    labels: Sequence[int] = draw.permutation(np.arange(count) % 2).tolist()
    for number, start in enumerate(range(0, count, AT_ONCE)):
        place, own = folder / "imgs" / str(number), labels[start : start + AT_ONCE]
        place.mkdir(parents=True)
        lines = []
        for index, (label, image) in enumerate(zip(own, images(draw, own), strict=True)):
            Image.fromarray(image).save(place / f"sample_{index}.png")
            lines.append(f"imgs/{number} sample_{index}.png {start + index} {label}\n")
        (folder / "metadata" / f"{number}.npy").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Reads a folder from the command line, and writes ``pathfinder32`` into it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data folder")
    parser.add_argument("--images", type=int, default=IMAGES, help=f"in all ({IMAGES})")
    parser.add_argument("--seed", type=int, default=0, help="decides all images (0)")
    asked = parser.parse_args()
    write(asked.folder / FOLDER, asked.images, asked.seed)


if __name__ == "__main__":
    main()
