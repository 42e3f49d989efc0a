"""Data that programs write in the form of published sets, which tasks read, and their oracles."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from benchmarks.published import document_twin, image_twin, path_twin, text_twin
from memsweep import registry
from memsweep.data.api import TEST, TRAIN, VALIDATION, Stream
from memsweep.data.task import Task
from paths import ROOT


def run(program: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """The program with these words of a command line."""
    monkeypatch.setattr(sys, "argv", [program.__name__, *words])
    program.main()


def task(name: str, **settings: object) -> Task:
    """A task that reads what was written."""
    registry.discover(ROOT)
    found = registry.get(registry.TASK, name)
    return found(found.Config(**settings))


def test_a_free_text_has_the_form_of_the_treebank_which_its_task_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in text_twin.FILES:
        lines = [f'{n:08d} 03 n 01 word | the {n} old words; "a word, and one more"  ' for n in range(40)]
        (tmp_path / name).write_text("  1 This is a licence\n" + "\n".join(lines) + "\n", "utf-8")
    told = text_twin.sentences(tmp_path)
    assert told[:2] == ["the_N_old_words", "a_word,_and_one_more"]
    monkeypatch.setattr(text_twin, "SIZES", {"train": 300, "valid": 100, "test": 50})
    monkeypatch.setattr(text_twin, "SYMBOLS", 8)
    run(text_twin, monkeypatch, str(tmp_path), str(tmp_path / "data"))
    files = {name: (tmp_path / "data" / "ptb" / f"{name}.txt").read_text("utf-8") for name in text_twin.SIZES}
    symbols = {name: text.replace("\n", " <eos> ").split() for name, text in files.items()}
    assert {name: len(each) >= text_twin.SIZES[name] for name, each in symbols.items()} == dict.fromkeys(files, True)
    assert len({symbol for each in symbols.values() for symbol in each}) == 8
    assert task("ptb", folder=str(tmp_path / "data"), horizon=10).inputs == 8
    with pytest.raises(SystemExit, match="too short: train"):
        [*text_twin.parts(told[:3])]


def test_images_have_the_form_of_cifar_10_which_its_tasks_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(folder: str, *more: str) -> dict[str, bytes]:
        run(image_twin, monkeypatch, str(tmp_path / folder), "--train", "203", "--test", "40", *more)
        return {path.name: path.read_bytes() for path in sorted((tmp_path / folder / "cifar10").iterdir())}

    files = written("data")
    counts = {name: len(held) // 3073 for name, held in files.items()}
    assert counts == {f"data_batch_{number + 1}.bin": 40 + (number < 3) for number in range(5)} | {"test_batch.bin": 40}
    assert written("again") == files
    assert not set(written("other", "--seed", "1").values()) & set(files.values())
    with pytest.raises(SystemExit, match=r"data_batch_1\.bin is there and stays as it is"):
        written("data", "--seed", "2")
    with pytest.raises(SystemExit, match="--train must be 5 or more"):
        written("none", "--train", "4")
    assert (tmp_path / "data" / "cifar10" / "data_batch_1.bin").read_bytes() == files["data_batch_1.bin"]
    for name, settings in (("images", {"data": "cifar10", "order": "pixels"}), ("sequential_cifar", {"colour": True})):
        made = task(name, folder=str(tmp_path / "data"), **settings)
        assert {key: len(split.labels) for key, split in made.splits.items()} == {TRAIN: 183, VALIDATION: 20, TEST: 40}
        batch = made.draw(Stream(0, TEST), 0, 40)
        assert batch.inputs.shape == (40, 1024, 3)
        assert np.bincount(batch.targets).tolist() == [4] * 10


def test_the_class_of_an_image_is_its_wave_and_one_pixel_does_not_tell_it() -> None:
    records = np.concatenate([*image_twin.records(2000, 0, 0)])
    labels, pixels = records[:, 0], records[:, 1:].reshape(-1, 3, 32, 32).astype(float)
    for place in ((0, 0, 0), (1, 16, 15), (2, 31, 31)):
        alike = pixels[:, *place].astype(int) // 16
        seen = np.zeros((16, 10))
        np.add.at(seen, (alike[:1000], labels[:1000]), 1)
        assert np.mean(seen.argmax(1)[alike[1000:]] == labels[1000:]) < 0.2
    rows, columns = np.mgrid[:32, :32]
    turns = image_twin.WAVES[:, :1, None] * columns + image_twin.WAVES[:, 1:, None] * rows
    waves = np.exp(2j * np.pi * turns / image_twin.TURN)
    power = np.abs(np.einsum("bkhw,chw->bkc", pixels - pixels.mean((2, 3), keepdims=True), waves)).sum(1)
    assert np.mean(power.argmax(1) == labels) > 0.98


DOCUMENTS = ("--pairs", "60", "20", "40", "--papers", "30", "--reviews", "40")


def test_pairs_have_the_form_of_the_arenas_and_their_words_say_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("data", "again"):
        run(document_twin, monkeypatch, str(tmp_path / folder), *DOCUMENTS)
    files = {path.name: path.read_text("utf-8") for path in (tmp_path / "data" / "aan").iterdir()}
    assert files == {path.name: path.read_text("utf-8") for path in (tmp_path / "again" / "aan").iterdir()}
    lines = [line.split("\t") for text in files.values() for line in text.splitlines()]
    assert len(lines) == 120
    for length in (5000, 255):  # whole papers, and what half of a short horizon holds
        right = [document_twin.right_pair(first[:length], second[:length]) for *_, first, second in lines]
        assert right == [int(label) for label, *_ in lines]
    made = task("retrieval", folder=str(tmp_path / "data"), horizon=512)
    assert {key: len(split) for key, split in made.splits.items()} == {TRAIN: 60, VALIDATION: 20, TEST: 40}
    targets = made.draw(Stream(0, TEST), 0, 40).targets
    assert targets[targets >= 0].unique(return_counts=True)[1].tolist() == [20, 20]  # other steps are not asked
    with pytest.raises(SystemExit, match="aan is there and stays as it is"):
        run(document_twin, monkeypatch, str(tmp_path / "data"), *DOCUMENTS)


def test_reviews_have_the_form_of_imdbs_and_their_words_say_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(document_twin, monkeypatch, str(tmp_path), *DOCUMENTS)
    for part in ("train", "test"):
        for opinion, name in enumerate(document_twin.OPINIONS):
            texts = [path.read_text("utf-8") for path in (tmp_path / "aclImdb" / part / name).iterdir()]
            assert [document_twin.right_review(text) for text in texts] == [opinion] * 20
    made = task("imdb", folder=str(tmp_path), horizon=512)
    assert {key: len(split) for key, split in made.splits.items()} == {TRAIN: 36, VALIDATION: 4, TEST: 40}


def test_a_length_says_nothing_of_a_document() -> None:
    draw = np.random.RandomState(0)
    lengths = np.array([[len(document_twin.review(draw, opinion)) for opinion in (0, 1)] for _ in range(400)])
    assert abs(lengths[:, 0].mean() - lengths[:, 1].mean()) < 4 * lengths.std() / np.sqrt(200)


def test_images_have_the_form_of_pathfinders_and_a_walk_finds_their_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_twin, "AT_ONCE", 60)
    for folder in ("data", "again"):
        run(path_twin, monkeypatch, str(tmp_path / folder), "--images", "100")
    place = tmp_path / "data" / path_twin.FOLDER
    lines = [line.split() for path in sorted((place / "metadata").iterdir()) for line in path.read_text().splitlines()]
    images = [np.asarray(Image.open(place / folder / name)) for folder, name, *_ in lines]
    again = tmp_path / "again" / path_twin.FOLDER
    for image, (folder, name, *_) in zip(images, lines, strict=True):
        assert (image == np.asarray(Image.open(again / folder / name))).all()
    labels = [int(label) for *_, label in lines]
    assert [path_twin.joined(image) for image in images] == labels
    assert sum(labels) == 50
    assert {int((image == path_twin.DOT).sum()) for image in images} == {18}
    made = task("pathfinder", folder=str(tmp_path / "data"), size=32, answer="last")
    assert {key: len(split.labels) for key, split in made.splits.items()} == {TRAIN: 80, VALIDATION: 10, TEST: 10}
    assert made.draw(Stream(0, TEST), 0, 10).inputs.shape == (10, 1024, 1)
    with pytest.raises(SystemExit, match="is there and stays as it is"):
        run(path_twin, monkeypatch, str(tmp_path / "data"))
