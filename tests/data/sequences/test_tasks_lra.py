"""Sequential CIFAR, and reviews, papers and paths of the Long Range Arena: files in their true format, and damaged."""

from __future__ import annotations

import io
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from arena_files import png, write_aan, write_imdb, write_pathfinder
from image_files import write_cifar
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.api import Batch, Labelled, SequentialImages, Task
from memsweep.errors import ConfigError
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from memsweep.sweep.planning.identity import identifying, identity
from paths import ROOT

registry.discover(ROOT)
HARD = "curv_contour_length_14"


def built(name: str, folder: Path, **fields: Any) -> Any:
    task = registry.get(registry.TASK, name)
    return task(task.Config(folder=str(folder), **fields))


def everything(task: Task, name: str) -> Batch:
    return task.draw(Stream(0, name), 0, 10_000)


def rows_of(batch: Batch) -> list[bytes]:
    return [row.numpy().tobytes() for row in batch.inputs]


# Sequential CIFAR


def test_a_pixel_of_cifar_is_grey_as_torchvision_makes_it_then_normalized(tmp_path: Path) -> None:
    """torchvision's Grayscale is Pillow's conversion; the constants are those of the published loader."""
    records = write_cifar(tmp_path / "cifar10")["test_batch.bin"]
    task = built("sequential_cifar", tmp_path)
    assert (task.horizon, task.inputs, task.outputs) == (1024, 1, 10)
    batch = everything(task, TEST)
    colours = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    grey = np.stack([np.asarray(Image.fromarray(np.ascontiguousarray(each)).convert("L")) for each in colours])
    wanted = (grey.reshape(-1, 1024, 1) / 255.0 - 122.6 / 255.0) / (61.0 / 255.0)
    np.testing.assert_allclose(batch.inputs, wanted, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(batch.targets, records[:, 0])
    in_colour = built("sequential_cifar", tmp_path, colour=True)
    assert in_colour.inputs == 3
    red = (colours[..., 0].reshape(-1, 1024) / 255.0 - 0.4914) / 0.247
    np.testing.assert_allclose(everything(in_colour, TEST).inputs[..., 0], red, rtol=0, atol=1e-12)


class Spots(SequentialImages):
    """Images of 3 x 3 pixels that say something of their classes."""

    shape, brightest, order, classes = (3, 3, 1), 3.0, "pixels", 3

    def __init__(self, answer: str, kind: type = np.uint8) -> None:
        super().__init__(None)
        self.asked, self.kind = answer, kind

    @property
    def answer(self) -> str:
        return self.asked

    def load(self) -> Mapping[str, Labelled]:
        rng = np.random.default_rng(6)
        labels = rng.integers(0, 3, 200)
        images = rng.integers(0, 3, (200, 3, 3, 1)) + (rng.random((200, 3, 3, 1)) < labels[:, None, None, None] / 9)
        return {TRAIN: Labelled(images.astype(self.kind), labels)}


@pytest.mark.more
def test_an_answer_at_every_step_is_asked_at_every_step(tmp_path: Path) -> None:
    every, last = Spots("every"), Spots("last")
    batch = every.draw(Stream(0, TRAIN), 0, 20)
    outputs = torch.randn(2, 20, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for replica, loss, final in zip(outputs, every.loss(outputs, batch), last.loss(outputs, batch), strict=True):
        nats = [torch.nn.functional.cross_entropy(replica[:, step], batch.targets) for step in range(9)]
        torch.testing.assert_close(loss, torch.stack(nats).mean())
        torch.testing.assert_close(final, nats[-1])
    assert torch.equal(every.metrics(outputs, batch)["accuracy"], last.metrics(outputs, batch)["accuracy"])
    train = everything(every, TRAIN)
    entropies = [unsure(column.tolist(), train.targets.tolist()) for column in train.inputs[..., 0].T]
    assert every.memoryless_loss() == pytest.approx(np.mean(entropies), rel=1e-12)
    assert last.memoryless_loss() == pytest.approx(entropies[-1], rel=1e-12)
    assert Spots("every", np.float64).memoryless_loss() == every.memoryless_loss()
    write_cifar(tmp_path / "cifar10")
    write_pathfinder(tmp_path / "pathfinder32" / HARD)
    for name in ("sequential_cifar", "pathfinder"):
        for answer in ("every", "last"):
            assert built(name, tmp_path, answer=answer).answer == answer


def unsure(reads: list[float], labels: list[int]) -> float:
    """Entropy of the class given what is read, by counting."""
    pairs, alone = Counter(zip(reads, labels, strict=True)), Counter(reads)
    return -sum(n / len(reads) * np.log(n / alone[read]) for (read, _), n in pairs.items())


# Reviews


def test_reviews_are_read_character_by_character_as_they_stand(tmp_path: Path) -> None:
    written = write_imdb(tmp_path / "aclImdb")
    task = built("imdb", tmp_path, horizon=100)
    known = task.config.reviews().characters.known
    assert "V" in known  # nothing is lower-cased
    assert task.inputs == len(known) + 2  # the unknown, and the end
    parts = {name: everything(task, name) for name in (TRAIN, VALIDATION, TEST)}
    assert [len(part.inputs) for part in parts.values()] == [117, 13, 20]
    for names, prefix in (((TRAIN, VALIDATION), "train"), ((TEST,), "test")):
        wanted = Counter((text[:99], "/pos/" in name) for name, text in written.items() if name.startswith(prefix))
        assert Counter(review for name in names for review in told(parts[name], known)) == wanted
    for name in parts:  # the files are in order of their classes; the first that validate or test are of both
        first = task.draw(Stream(0, name), 0, 9).targets[:, 0].tolist()
        assert set(first) == {0, 1}


def told(batch: Batch, known: str) -> list[tuple[str, bool]]:
    """Texts and classes of a batch whose sequences all fill their steps, but for the symbol that ends them."""
    assert (batch.inputs[:, -1] == len(known) + 1).all()
    assert (batch.targets == batch.targets[:, :1]).all()
    letters = np.array([*known, "?"])
    return [
        ("".join(letters[row]), bool(label))
        for row, label in zip(batch.inputs[:, :-1].numpy(), batch.targets[:, 0], strict=True)
    ]


def test_a_rare_character_is_the_unknown_and_a_short_review_ends_early(tmp_path: Path) -> None:
    """Counted are the training files, cut as they are read."""
    folder = tmp_path / "aclImdb"
    for part in ("train", "test"):
        for kind in ("neg", "pos"):
            (folder / part / kind).mkdir(parents=True)
            for place in range(10):
                (folder / part / kind / f"{place}_1.txt").write_text("ab" if place else "ccz")
    (folder / "train" / "neg" / "0_1.txt").write_text("cccbbbbbbbbbbzzzzzzzzzzzzz")  # 13 b, z behind the cut
    (folder / "test" / "pos" / "9_1.txt").write_text("cab")
    (folder / "train" / "unsup").mkdir()
    (folder / "train" / "unsup" / "0_0.txt").write_text("c" * 50)
    task = built("imdb", tmp_path, horizon=14, min_count=5)
    assert task.config.reviews().characters.known == "bac"  # 28, 18 and 5 of them; z once
    batch = everything(task, TEST)
    unknown, end, nothing = 3, 4, -1
    cab = [2, 1, 0, end] + 10 * [nothing]
    row = batch.inputs.tolist().index(cab)
    assert [2, 2, unknown, end] + 10 * [nothing] in batch.inputs.tolist()
    assert batch.targets[row].tolist() == 4 * [1] + 10 * [-1]
    last = everything(built("imdb", tmp_path, horizon=14, min_count=5, answer="last"), TEST)
    assert last.inputs[row].tolist() == cab
    assert last.targets[row].tolist() == 3 * [-1] + [1] + 10 * [-1]


# Papers


def test_two_papers_stand_behind_each_other_in_one_sequence(tmp_path: Path) -> None:
    written = write_aan(tmp_path / "aan")
    task = built("retrieval", tmp_path, horizon=200)
    papers = task.config.papers()
    known = papers.characters.known
    assert {"\t", "\n", '"'} <= set(known)  # from fields in quotes
    letters = np.array([*known, "?", "|", "."])  # the unknown, the symbol between, the end
    assert task.inputs == len(letters)
    for name, part in ((VALIDATION, "eval"), (TEST, "test")):
        batch = everything(task, name)
        assert (batch.targets[:, :-1] == -1).all()
        found = ["".join(letters[row]) for row in batch.inputs], batch.targets[:, -1].tolist()
        wanted = [(f"{one[:99]}|{two[:99]}.", label) for label, one, two in written[part]]
        assert sorted(zip(*found, strict=True)) == sorted(wanted)
        assert [text for text, _ in wanted] != found[0]  # a file may be in an order that says something of the classes
    train = papers.splits[TRAIN]
    assert len(train) == 60
    assert len(train.ends) == len({text for part in written.values() for pair in part for text in pair[1:]})
    assert len(next(iter(train))) == 199


def test_a_paper_longer_than_pythons_limit_of_a_field_is_read(tmp_path: Path) -> None:
    write_aan(tmp_path / "aan")
    path = tmp_path / "aan" / "new_aan_pairs.train.tsv"
    path.write_text(path.read_text() + f'1\tA\tB\t"{"long " * 40_000}"\tshort\n')
    task = built("retrieval", tmp_path, horizon=40)
    assert len(task.config.papers().splits[TRAIN]) == 61


# Paths


@pytest.mark.parametrize(("size", "horizon"), [(32, 1024), (128, 16384)])
def test_images_of_paths_are_read_pixel_by_pixel(tmp_path: Path, size: int, horizon: int) -> None:
    """The files use all five filters of PNG, and were not written by the library that reads them."""
    pictures = write_pathfinder(tmp_path / f"pathfinder{size}" / HARD, size, count=30)
    task = built("pathfinder", tmp_path, size=size)
    assert not list(task.config.problems())
    assert (task.horizon, task.inputs, task.outputs) == (horizon, 1, 2)
    written = {
        (2.0 * pixels.reshape(-1, 1) / 255.0 - 1.0).tobytes(): int(re.findall(r"\d+", name)[-1]) % 2
        for name, pixels in pictures.items()
    }
    parts = [everything(task, name) for name in (TRAIN, VALIDATION, TEST)]
    assert [len(part.targets) for part in parts] == [24, 3, 3]
    read = [pair for part in parts for pair in zip(rows_of(part), part.targets.tolist(), strict=True)]
    assert len(read) == 30
    assert dict(read) == written


def test_an_image_cut_or_changed_anywhere_is_read_right_or_named(tmp_path: Path) -> None:
    folder = tmp_path / "pathfinder32" / HARD
    name, pixels = next(iter(write_pathfinder(folder, count=12).items()))
    whole, task, refused = png(pixels), built("pathfinder", tmp_path), 0
    damaged = [whole[:length] for length in range(0, len(whole) - 12, 9)]  # the last chunk is empty
    damaged += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(0, len(whole), 9)]
    for content in damaged:
        (folder / name).write_bytes(content)
        try:
            read = task.sequences(np.array([name]))
        except ValueError as error:
            refused += str(folder / name) in str(error)
        else:
            np.testing.assert_array_equal(read[0, :, 0], 2.0 * pixels.ravel() / 255.0 - 1.0)
    assert refused > 0.9 * len(damaged)


# Missing and damaged files


WRITERS: dict[str, Callable[[Path], object]] = {
    "sequential_cifar": lambda folder: write_cifar(folder / "cifar10"),
    "imdb": lambda folder: write_imdb(folder / "aclImdb"),
    "retrieval": lambda folder: write_aan(folder / "aan"),
    "pathfinder": lambda folder: write_pathfinder(folder / "pathfinder32" / HARD),
}
ABSENT = {
    "sequential_cifar": ("cifar10", "data_batch_1.bin", "cifar-10-binary.tar.gz"),
    "imdb": ("aclImdb", "train/neg/*.txt, train/pos/*.txt, test/neg/*.txt, test/pos/*.txt", "aclImdb_v1.tar.gz"),
    "retrieval": ("aan", "new_aan_pairs.train.tsv, new_aan_pairs.eval.tsv, new_aan_pairs.test.tsv", "lra_release.gz"),
    "pathfinder": (f"pathfinder32/{HARD}", "metadata/0.npy", "lra_release.gz"),
}


@pytest.mark.parametrize("name", ABSENT)
def test_a_study_without_its_files_is_refused_with_what_belongs_where(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "here"
    monkeypatch.setenv("MEMSWEEP_DATA", str(data))
    study = tmp_path / "search_spaces" / "read.yaml"
    study.parent.mkdir()
    study.write_text(f"task: {name}\nmodel: {{name: vanilla_rnn, width: 4}}\n")
    with pytest.raises(ConfigError) as caught:
        load_study(str(study))
    folder, files, source = ABSENT[name]
    message = " ".join(str(caught.value).split())
    assert f"the folder {data / folder} lacks {files}" in message
    assert source in message
    assert "MEMSWEEP_DATA" in message
    WRITERS[name](data)
    assert load_study(str(study)).rows[0].task.name == name


def wide() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((32, 32), 40_000, np.uint16)).save(file, "PNG")
    return file.getvalue()


AAN, PATHS = Path("aan/new_aan_pairs.eval.tsv"), Path(f"pathfinder32/{HARD}")
PICTURE = PATHS / "imgs/0/sample_0.png"
DAMAGE: dict[str, tuple[str, Path, Callable[[bytes], bytes], str]] = {
    "a class that is none": ("retrieval", AAN, lambda old: b"2" + old[1:], r"line \d+: the class '2.0' in column 1"),
    "a column too few": ("retrieval", AAN, lambda old: b"1\ta\tb\tc\n", "line 1: 4 columns where 5 belong"),
    "a line of names": ("retrieval", AAN, lambda old: b"label\tid1\tid2\ta\tb\n" + old, "line 1: the class 'label'"),
    "no lines": ("retrieval", AAN, lambda old: b"", "holds no pairs"),
    "another encoding": (
        "retrieval",
        AAN,
        lambda old: b"1\ta\tb\tc\tna\xefve\n",
        r"line 1: no text in UTF-8 \(byte 10 ",
    ),
    "a quote without end": ("retrieval", AAN, lambda old: b'1\ta\tb\t"c\td\n', "line 1: 4 columns where 5 belong"),
    "columns gone": ("pathfinder", PATHS / "metadata/1.npy", lambda old: b"\n\nimgs/1 a.png 1\n", "line 3: 3 columns"),
    "another class": (
        "pathfinder",
        PATHS / "metadata/1.npy",
        lambda old: old + b"imgs/1 a.png 1 1.8\n",
        r"line 66: the class '1.8' in column 4; allowed: 0 \(no path\) or 1",
    ),
    "a binary array": (
        "pathfinder",
        PATHS / "metadata/0.npy",
        lambda old: b"\x93NUMPY",
        "no text in UTF-8: its byte 0",
    ),
    "another size": (
        "pathfinder",
        PICTURE,
        lambda old: png(np.zeros((64, 32))),
        "of 32 x 64 pixels in the mode L; it must",
    ),
    "two bytes a pixel": ("pathfinder", PICTURE, lambda old: wide(), "of 32 x 32 pixels in the mode I;16; it must"),
    "a cut image": ("pathfinder", PICTURE, lambda old: old[:-300], "is no PNG image that can be read"),
    "a web page": ("pathfinder", PICTURE, lambda old: b"<html>", "is no PNG image that can be read"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_when_the_config_is_checked(damage: str, tmp_path: Path) -> None:
    name, place, harm, words = DAMAGE[damage]
    WRITERS[name](tmp_path)
    config = registry.get(registry.TASK, name).Config(folder=str(tmp_path))
    assert not list(config.problems())
    path = tmp_path / place
    path.write_bytes(harm(path.read_bytes()))
    (sentence,) = config.problems()
    assert str(path) in sentence
    assert re.search(words, sentence)


def test_damage_that_no_glance_finds_is_named_when_the_data_are_read(tmp_path: Path) -> None:
    write_aan(tmp_path / "aan")
    path = tmp_path / "aan" / "new_aan_pairs.train.tsv"
    count = path.read_text().count("\n")
    path.write_text(path.read_text() + "1\ta\tb\n")
    task = built("retrieval", tmp_path, horizon=40)
    assert not list(task.config.problems())
    with pytest.raises(ValueError, match=rf"train\.tsv, line {count + 1}: 3 columns where 5 belong"):
        everything(task, TRAIN)
    write_imdb(tmp_path / "aclImdb")
    review = tmp_path / "aclImdb" / "test" / "pos" / "3_9.txt"
    review.write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=rf"{re.escape(str(review))} is no text in UTF-8: its byte 3 \(0xe9\)"):
        everything(built("imdb", tmp_path), TEST)


@pytest.mark.parametrize("name", ["imdb", "pathfinder"])
def test_too_few_to_hold_some_out_are_refused(name: str, tmp_path: Path) -> None:
    write_imdb(tmp_path / "aclImdb", train=4)
    write_pathfinder(tmp_path / "pathfinder32" / HARD, count=4)
    (sentence,) = registry.get(registry.TASK, name).Config(folder=str(tmp_path)).problems()
    assert "too few to hold a tenth of them out" in sentence


# Identity


def of(name: str, folder: Path) -> str:
    model = registry.get(registry.MODEL, "vanilla_rnn").Config(width=4)
    return identity(TrialConfig(task=registry.get(registry.TASK, name).Config(folder=str(folder)), model=model))


@pytest.mark.more
def test_many_files_are_identified_without_reading_them_all(tmp_path: Path) -> None:
    """Reviews by names and sizes; images by their metadata and the first of each file of them. Not where they lie."""
    one, two = tmp_path / "one", tmp_path / "two"
    write_imdb(one / "aclImdb")
    write_pathfinder(one / PATHS)
    shutil.copytree(one, two)
    for name in ("imdb", "pathfinder"):
        assert of(name, one) == of(name, two)
        task = registry.get(registry.TASK, name)
        assert len(task.data_files(task.Config(folder=str(one)))) == 4
        assert "folder" not in identifying(task.Config(folder=str(one)))
    (two / "aclImdb" / "test" / "neg" / "x.txt").write_text("one more")
    assert of("imdb", one) != of("imdb", two)
    known = of("pathfinder", two)
    (two / PATHS / "imgs" / "1" / "sample_1.png").write_bytes(png(np.zeros((32, 32))))
    redrawn = of("pathfinder", two)
    metadata = two / PATHS / "metadata" / "0.npy"
    metadata.write_text(metadata.read_text().replace(" 0 1.8", " 1 1.8", 1))
    assert len({known, redrawn, of("pathfinder", two)}) == 3
