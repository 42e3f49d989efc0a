"""Images as sequences: digits of scikit-learn, and files of MNIST, Fashion-MNIST and CIFAR-10 in their true format."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from image_files import idx, write_cifar, write_mnist
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.data.api import Batch, Task
from memsweep.errors import ConfigError
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from memsweep.sweep.planning.identity import identifying
from paths import ROOT

registry.discover(ROOT)
DIGITS = registry.get(registry.TASK, "digits")
IMAGES = registry.get(registry.TASK, "images")


def digits(**fields: object) -> Task:
    return DIGITS(DIGITS.Config(**fields))


def images(folder: Path, **fields: object) -> Task:
    return IMAGES(IMAGES.Config(folder=str(folder), **fields))


def rows_of(batch: Batch) -> set[bytes]:
    return {row.numpy().tobytes() for row in batch.inputs}


def test_digits_are_split_into_disjoint_parts_that_make_up_the_whole() -> None:
    parts = {name: digits().draw(Stream(0, name), 0, 10_000) for name in (TRAIN, VALIDATION, TEST)}
    assert [len(part.inputs) for part in parts.values()] == [1197, 300, 300]
    everything = load_digits().images / 16.0
    assert set.union(*map(rows_of, parts.values())) == {image.tobytes() for image in everything}
    labels = torch.cat([part.targets for part in parts.values()])
    assert torch.equal(labels.bincount(), torch.from_numpy(np.bincount(load_digits().target)))


def test_an_epoch_shows_every_training_image_once_in_an_order_of_its_own() -> None:
    made, size = digits(), 399  # 1197 = 3 x 399
    epochs = [[made.draw(Stream(4, TRAIN), 3 * epoch + part, size) for part in range(3)] for epoch in range(2)]
    for epoch in epochs:
        assert len(set.union(*map(rows_of, epoch))) == 1197
    assert not torch.equal(epochs[0][0].inputs, epochs[1][0].inputs)
    other = made.draw(Stream(5, TRAIN), 0, size)
    assert not torch.equal(epochs[0][0].inputs, other.inputs)


def test_pixels_are_the_rows_one_by_one_and_a_permutation_is_fixed() -> None:
    stream = Stream(0, TRAIN)
    rows, pixels = digits().draw(stream, 0, 8), digits(order="pixels").draw(stream, 0, 8)
    assert rows.inputs.shape == (8, 8, 8)
    assert pixels.inputs.shape == (8, 64, 1)
    assert torch.equal(rows.inputs.flatten(1), pixels.inputs.flatten(1))


@pytest.mark.parametrize("data", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("compress", [False, True])
def test_mnist_files_are_read_as_they_were_written(tmp_path: Path, data: str, compress: bool) -> None:
    arrays = write_mnist(tmp_path / data, compress=compress)
    made = images(tmp_path, data=data)
    assert not list(made.config.problems())
    parts = {name: made.draw(Stream(0, name), 0, 1000) for name in (TRAIN, VALIDATION, TEST)}
    assert [len(part.targets) for part in parts.values()] == [200, 40, 40]
    assert parts[TEST].inputs.shape == (40, 28, 28)
    np.testing.assert_array_equal(parts[TEST].inputs, arrays["t10k-images-idx3-ubyte"] / 255.0)
    np.testing.assert_array_equal(parts[TEST].targets, arrays["t10k-labels-idx1-ubyte"])
    pictures, labels = arrays["train-images-idx3-ubyte"] / 255.0, arrays["train-labels-idx1-ubyte"]
    written = {picture.tobytes(): int(label) for picture, label in zip(pictures, labels, strict=True)}
    read = [
        (row.numpy().tobytes(), int(label))
        for name in (TRAIN, VALIDATION)
        for row, label in zip(parts[name].inputs, parts[name].targets, strict=True)
    ]
    assert dict(read) == written
    assert made.chance() == pytest.approx(math.log(10), rel=0.01)


def test_cifar_records_are_read_colour_by_colour(tmp_path: Path) -> None:
    records = write_cifar(tmp_path / "cifar10")
    pixels = images(tmp_path, data="cifar10", order="pixels")
    batch = pixels.draw(Stream(0, TEST), 0, 20)
    assert batch.inputs.shape == (20, 1024, 3)
    colours = records["test_batch.bin"][:, 1:].reshape(20, 3, 1024) / 255.0
    np.testing.assert_array_equal(batch.inputs, colours.transpose(0, 2, 1))
    np.testing.assert_array_equal(batch.targets, records["test_batch.bin"][:, 0])
    assert [len(pixels.draw(Stream(0, name), 0, 1000).targets) for name in (TRAIN, VALIDATION)] == [90, 10]
    by_rows = images(tmp_path, data="cifar10").draw(Stream(0, TEST), 0, 20)
    assert by_rows.inputs.shape == (20, 32, 96)
    assert torch.equal(by_rows.inputs.flatten(1), batch.inputs.flatten(1))


LABELS, PICTURES = "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda folder: (folder / LABELS).unlink(), rf"lacks {LABELS}, of MNIST .IDX files.* 47,040,016 bytes"),
    "cut short": (
        lambda folder: (folder / PICTURES).write_bytes((folder / PICTURES).read_bytes()[:-100]),
        rf"{PICTURES} is damaged: its header promises 40 x 28 x 28 bytes, but 31260 follow",
    ),
    "empty": (lambda folder: (folder / PICTURES).write_bytes(b""), "is no IDX file.* begins with nothing"),
    "a web page": (
        lambda folder: (folder / PICTURES).write_bytes(b"<html>Not found</html>"),
        "begins with 3c68746d, and must begin with 00000803",
    ),
    "labels and images swapped": (
        lambda folder: (folder / PICTURES).write_bytes((folder / LABELS).read_bytes()),
        "begins with 00000801, and must begin with 00000803",
    ),
    "another size": (
        lambda folder: (folder / PICTURES).write_bytes(idx(np.zeros((40, 32, 32)))),
        "holds images of 32 x 32 pixels; they must have 28 x 28",
    ),
    "too few labels": (
        lambda folder: (folder / LABELS).write_bytes(idx(np.zeros(239))),
        "holds 240 images, but .* holds 239 labels",
    ),
    "not compressed at all": (
        lambda folder: (folder / PICTURES).rename(folder / f"{PICTURES}.gz"),
        r"\.gz is damaged: it does not decompress",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_missing_or_damaged_is_named_when_the_config_is_checked(tmp_path: Path, damage: str) -> None:
    write_mnist(tmp_path / "mnist")
    assert not list(IMAGES.Config(folder=str(tmp_path)).problems())
    harm, words = DAMAGE[damage]
    harm(tmp_path / "mnist")
    (sentence,) = IMAGES.Config(folder=str(tmp_path)).problems()
    assert re.search(words, sentence)
    assert str(tmp_path / "mnist") in sentence
    with pytest.raises((ValueError, FileNotFoundError), match=words):  # and again at use, where nobody checked
        images(tmp_path).draw(Stream(0, TRAIN), 0, 4)


def test_damage_inside_a_file_is_found_when_it_is_read(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", compress=True)
    path = tmp_path / "mnist" / f"{PICTURES}.gz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="does not decompress"):
        images(tmp_path).draw(Stream(0, TRAIN), 0, 4)
    labels = tmp_path / "mnist" / f"{LABELS}.gz"
    labels.write_bytes(gzip.compress(idx(np.full(240, 10))))
    with pytest.raises(ValueError, match=r"240 labels up to 10; allowed: 0 \.\.\. 9"):
        images(tmp_path).draw(Stream(0, TRAIN), 0, 4)


def test_a_study_without_its_files_is_refused_with_the_place_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path / "here"))
    study = tmp_path / "search_spaces" / "read.yaml"
    study.parent.mkdir()
    study.write_text("task: {name: images, data: cifar10}\nmodel: {name: vanilla_rnn, width: 4}\n")
    with pytest.raises(ConfigError) as caught:
        load_study(str(study))
    message = str(caught.value)
    assert f"the folder {tmp_path / 'here' / 'cifar10'} lacks data_batch_1.bin" in message
    assert "test_batch.bin" in message
    assert "cifar-10-binary.tar.gz" in message
    assert "30,730,000 bytes" in message
    write_cifar(tmp_path / "here" / "cifar10")
    assert load_study(str(study)).rows[0].task.data == "cifar10"


def test_where_the_data_lie_is_no_part_of_a_trials_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (identifying(IMAGES.Config(folder=str(tmp_path / name))) for name in ("a", "b"))
    assert one == other
    assert "folder" not in one
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMSWEEP_DATA", raising=False)
    assert IMAGES.Config().folder == str(tmp_path / "data")  # for workers that run elsewhere
