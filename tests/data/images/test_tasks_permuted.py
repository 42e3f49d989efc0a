"""Permuted pixels: the published permutation, on the images that the tasks in order show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from image_files import write_mnist
from memsweep import registry
from memsweep.data.api import Task
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
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
