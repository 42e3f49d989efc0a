"""Permuted pixels: the published permutation, on the images that the tasks in order show."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from image_files import write_mnist
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.data.api import Task
from memsweep.errors import ConfigError
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from memsweep.sweep.planning.fingerprint import data_fingerprint
from memsweep.sweep.planning.identity import identifying
from paths import ROOT

registry.discover(ROOT)


def task(name: str, **fields: object) -> Task:
    made = registry.get(registry.TASK, name)
    return made(made.Config(**fields))


def test_the_default_permutation_of_mnist_is_the_published_one(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    places = task("permuted_mnist", folder=str(tmp_path)).reading_order()
    # the first numbers of numpy.random.RandomState(1234).permutation(784), as the published code draws it
    assert places[:10].tolist() == [529, 511, 328, 133, 532, 378, 156, 305, 143, 582]
    assert sorted(places) == list(range(784))


@pytest.mark.parametrize(
    ("permuted", "plain", "pixels"), [("permuted_mnist", "images", 784), ("permuted_digits", "digits", 64)]
)
def test_pixels_are_those_of_the_task_in_order_at_permuted_places(
    permuted: str, plain: str, pixels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))
    mixed, ordered = task(permuted), task(plain, order="pixels")
    assert (mixed.horizon, mixed.inputs, mixed.outputs) == (pixels, 1, 10)
    assert mixed.chance() == ordered.chance()
    for name in (TRAIN, VALIDATION, TEST):
        ours, theirs = (made.draw(Stream(2, name), 1, 16) for made in (mixed, ordered))
        assert torch.equal(ours.targets, theirs.targets)
        assert torch.equal(ours.inputs, theirs.inputs[:, mixed.reading_order()])
        assert not torch.equal(ours.inputs, theirs.inputs)
    assert not np.array_equal(mixed.reading_order(), task(permuted, permutation_seed=1).reading_order())


def test_missing_files_are_named_with_the_place_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path / "here"))
    study = tmp_path / "search_spaces" / "permuted.yaml"
    study.parent.mkdir()
    study.write_text("task: {name: permuted_mnist}\nmodel: {name: vanilla_rnn, width: 4}\n")
    with pytest.raises(ConfigError) as caught:
        load_study(str(study))
    message = str(caught.value)
    assert f"the folder {tmp_path / 'here' / 'mnist'} lacks train-images-idx3-ubyte" in message
    assert "of MNIST (IDX files)" in message
    assert "47,040,016 bytes" in message
    write_mnist(tmp_path / "here" / "mnist")
    assert load_study(str(study)).rows[0].task.permutation_seed == 1234
    with pytest.raises(ConfigError, match="permutation_seed"):  # 0 would leave the pixels in their places
        load_study(str(study), ["task.permutation_seed=0"])


def test_what_the_files_hold_is_part_of_a_trials_identity_and_not_where_they_lie(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_mnist(tmp_path / name / "mnist")
    one, other = (task("permuted_mnist", folder=str(tmp_path / name)).config for name in ("a", "b"))
    assert identifying(one) == identifying(other)
    assert data_fingerprint(one) == data_fingerprint(other) != ""
    for path in sorted((tmp_path / "b" / "mnist").iterdir()):  # each of the four files counts
        kept = path.read_bytes()
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        os.utime(path, ns=(1, 1))
        assert data_fingerprint(one) != data_fingerprint(other)
        path.write_bytes(kept)
