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
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning.identity import identifying
from memsweep.sweep.planning.sources import moved
from paths import ROOT

registry.discover(ROOT)


def task(name: str, **fields: object) -> Task:
    made = registry.get(registry.TASK, name)
    return made(made.Config(**fields))


def lines_of_task(name: str) -> set[str]:
    """The lines of a task's own code, as identities count them."""
    cut = fingerprint._Cut(frozenset(fingerprint.EXEMPT))
    roots = fingerprint._definitions_of(registry.get(registry.TASK, name))
    return fingerprint.GRAPH.lines(fingerprint.GRAPH.closure(roots, cut), cut)


def test_the_default_permutation_of_mnist_is_the_published_one(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    places = task("permuted_mnist", folder=str(tmp_path)).reading_order()
    # the first numbers of numpy.random.RandomState(1234).permutation(784), as the published code draws it
    assert places[:10].tolist() == [529, 511, 328, 133, 532, 378, 156, 305, 143, 582]
    assert sorted(places) == list(range(784))


@pytest.mark.parametrize(
    ("permuted", "plain", "pixels", "fields"),
    [
        ("permuted_mnist", "images", 784, {}),
        ("permuted_mnist", "images", 784, {"data": "fashion_mnist"}),
        ("permuted_digits", "digits", 64, {}),
    ],
)
def test_pixels_are_those_of_the_task_in_order_at_permuted_places(
    permuted: str, plain: str, pixels: int, fields: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / fields.get("data", "mnist"))  # the other data set is not there
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))
    mixed, ordered = task(permuted, **fields), task(plain, order="pixels", **fields)
    assert (mixed.horizon, mixed.inputs, mixed.outputs) == (pixels, 1, 10)
    assert mixed.chance() == ordered.chance()
    for name in (TRAIN, VALIDATION, TEST):
        ours, theirs = (made.draw(Stream(2, name), 1, 16) for made in (mixed, ordered))
        assert torch.equal(ours.targets, theirs.targets)
        assert torch.equal(ours.inputs, theirs.inputs[:, mixed.reading_order()])
        assert not torch.equal(ours.inputs, theirs.inputs)
    assert not np.array_equal(mixed.reading_order(), task(permuted, permutation_seed=1, **fields).reading_order())


def test_mnist_is_in_no_identity_and_another_data_set_is() -> None:
    config = registry.get(registry.TASK, "permuted_mnist").Config
    assert identifying(config()) == identifying(config(data="mnist"))
    assert "data" not in identifying(config())
    assert identifying(config(data="fashion_mnist"))["data"] == "fashion_mnist"


def test_the_code_of_permuted_mnist_stands_for_what_it_was_before_the_data_set_was_a_field() -> None:
    before = moved.as_before(lines_of_task("permuted_mnist"))
    assert not any("GreyImagesConfig" in line for line in before)
    assert any("DataFolderConfig" in line and "PermutedImages" in line for line in before)
