"""Writes images in the form and the size of CIFAR-10, which is not to be had by all.

    python -m benchmarks.published.image_twin data
    memsweep sweep stable_ssm_cifar

An image has 32 x 32 pixels in 3 colours and is a noisy grating. Its class, one of ten, is the direction of the grating
and its wavelength (5 directions, 2 wavelengths), each a little off from image to image. Colours, contrast and noise are
drawn, whatever the class, and a phase within half a turn. So one pixel tells next to nothing of the class (14 % of
images are right by the best of a hundred of them); a linear model of all pixels at once has 90 %, and one that knows
the waves has all. A class shows in two neighbouring rows: read by rows, it
asks for no long memory. The numbers are integers throughout, so that a seed gives the same bytes on every machine.

It is another data set: an accuracy on it says nothing of CIFAR-10, and is not comparable with published ones. It shows
that what reads CIFAR-10 runs at CIFAR-10's size.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from memsweep.data.api import ARCHIVES, archive_files

CIFAR = ARCHIVES["cifar10"]
TURN = 1024
"""Parts of a whole turn in which phases are counted."""
SINE = np.array([round(1024 * math.sin(2 * math.pi * part / TURN)) for part in range(TURN)])
LENGTHS = (10, 6)
"""Wavelengths, in pixels."""
WAVES = np.array(
    [
        [round(TURN / length * of(math.pi * direction / 5)) for of in (math.cos, math.sin)]
        for length in LENGTHS
        for direction in range(5)
    ]
)
"""Parts of a turn from a pixel to the next in its row, and to the one below it, of each class: ``[10, 2]``."""
OFF = 6
"""Largest difference of an image's wave from its class's, each way, in parts of a turn a pixel."""
PHASES = TURN // 2
"""Phases that an image may have, in parts of a turn."""
AT_ONCE = 1000


def records(count: int, *seed: int) -> Iterator[np.ndarray]:
    """Images with their labels in CIFAR-10's binary form, at most ``AT_ONCE`` at a time: ``[B, 3073]``, bytes.

    Classes are as frequent as the count allows. ``seed`` are the numbers that decide everything.
    """
    height, width, colours = CIFAR.shape
    draw = np.random.RandomState(seed)  # a generator whose numbers numpy has promised to keep
    labels = draw.permutation(np.arange(count) % len(WAVES))
    rows, columns = np.mgrid[:height, :width]
    for start in range(0, count, AT_ONCE):
        label_B = labels[start : start + AT_ONCE]
        across_B, down_B = (WAVES[label_B] + draw.randint(-OFF, OFF + 1, (len(label_B), 2))).T[..., None, None]
        phase_B = draw.randint(PHASES, size=(len(label_B), 1, 1))
        wave_BHW = SINE[(across_B * columns + down_B * rows + phase_B) % TURN]
        middle_BK, contrast_BK = (draw.randint(*span, (len(label_B), colours, 1, 1)) for span in ((80, 171), (15, 61)))
        noise = draw.randint(-40, 41, (2, len(label_B), colours, height, width)).sum(0)
        images = np.clip(middle_BK + (contrast_BK * wave_BHW[:, None] >> 10) + noise, 0, 255)
        yield np.concatenate([label_B[:, None], images.reshape(len(label_B), -1)], axis=1).astype(np.uint8)


def write(folder: Path, train: int, test: int, seed: int) -> None:
    """Writes the files of CIFAR-10's binary version into a folder, ``train`` images over those of training.

    Raises:
        SystemExit: the folder has one of them, or a file of training would have no image.
    """
    names = [*CIFAR.train, *CIFAR.test]
    if there := archive_files(folder, CIFAR):
        raise SystemExit(f"{there[0]} is there and stays as it is: name another data folder")
    files = len(CIFAR.train)
    if min(train // files, test) < 1:
        raise SystemExit(f"--train must be {files} or more and --test 1 or more")
    folder.mkdir(parents=True, exist_ok=True)
    counts = [(train + files - 1 - number) // files for number in range(files)] + [test]
    for number, (name, count) in enumerate(zip(names, counts, strict=True)):
        with (folder / name).open("wb") as file:
            for part in records(count, seed, number):
                file.write(part.tobytes())


def main() -> None:
    """Reads a folder from the command line, and writes the files into ``cifar10`` of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data folder")
    parser.add_argument("--train", type=int, default=50_000, help="images to train on (50000)")
    parser.add_argument("--test", type=int, default=10_000, help="images to test on (10000)")
    parser.add_argument("--seed", type=int, default=0, help="decides all images (0)")
    asked = parser.parse_args()
    write(asked.folder / "cifar10", asked.train, asked.test, asked.seed)


if __name__ == "__main__":
    main()
