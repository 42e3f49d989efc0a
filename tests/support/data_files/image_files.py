"""Small files in the formats of MNIST and CIFAR-10, with random pixels."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def idx(values: np.ndarray) -> bytes:
    """Unsigned bytes as an IDX file."""
    lengths = b"".join(length.to_bytes(4, "big") for length in values.shape)
    return bytes([0, 0, 8, values.ndim]) + lengths + values.astype(np.uint8).tobytes()


def write_mnist(folder: Path, train: int = 240, test: int = 40, compress: bool = False) -> dict[str, np.ndarray]:
    """The four files of MNIST or Fashion-MNIST; gives their arrays by file name."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for kind, count in (("train", train), ("t10k", test)):
        arrays[f"{kind}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{kind}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in arrays.items():
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(values), mtime=0))
        else:
            (folder / name).write_bytes(idx(values))
    return arrays


def write_cifar(folder: Path, each: int = 20) -> dict[str, np.ndarray]:
    """The six files of CIFAR-10's binary version; gives their records ``[each, 3073]`` by file name."""
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    records = {}
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        found = rng.integers(0, 256, (each, 3073), dtype=np.uint8)
        found[:, 0] = np.arange(each) % 10
        (folder / name).write_bytes(found.tobytes())
        records[name] = found
    return records
