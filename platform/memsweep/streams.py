"""Random numbers that cannot overlap.

Every stream (train, validation, test, initial weights, ...) of every seed has a key of its own in the counter-based
generator Philox 4x64, and every index of a stream starts 2^128 counts after the one before. Two streams, or two
indices of one, share no number by construction, and a batch can be made again at any time, on any machine, without
making those before it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

TRAIN, VALIDATION, TEST = "train", "validation", "test"


@dataclass(frozen=True)
class Stream:
    """A named sequence of independent generators.

    Attributes:
        seed: 0 ... 2^63-1.
        name: what the numbers are for; streams of different names are independent.
    """

    seed: int
    name: str

    def generator(self, index: int = 0) -> np.random.Generator:
        """The generator of one item (a batch, a replica's initial weights), always in its initial state."""
        key = np.array([self.seed, zlib.crc32(self.name.encode())], dtype=np.uint64)
        counter = np.array([0, 0, index, 0], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))
