"""Texts as long sequences: which characters stand in which window, and what is said of a file that does not do."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.api import Batch, Corpus, TextTask
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from memsweep.sweep.planning.identity import data_fingerprint, identifying
from paths import ROOT
from text_files import spaced, write_ptb, write_text

registry.discover(ROOT)
TEXT = registry.get(registry.TASK, "char_text")
PTB = registry.get(registry.TASK, "ptb")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def text(path: Path, content: str | None = None, **fields: object) -> TextTask:
    """The task on a file of this content, or on the file as it is."""
    if content is not None:
        path.write_bytes(content.encode())
    return TEXT(TEXT.Config(file=str(path), **fields))


def read(task: TextTask, batch: Batch) -> list[str]:
    """The windows of a batch in letters, each with the symbol behind it."""
    alphabet = task.corpus.alphabet
    inputs, targets = batch.inputs.argmax(-1), batch.targets
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(batch.inputs.sum(-1), torch.ones(inputs.shape, dtype=torch.float64))
    return ["".join(alphabet[place] for place in (*row, last[-1])) for row, last in zip(inputs, targets, strict=True)]


def test_windows_by_hand(tmp_path: Path) -> None:
    """40 letters: 20 train, 10 validate, 10 test. Windows of 3 steps, two rows."""
    task = text(tmp_path / "t", "abcdefghijklmnopqrst" + "abcdefghij" + "klmnopqrst", horizon=3, **SHARES)
    assert (task.horizon, task.inputs, task.outputs) == (3, 20, 20)
    seen = [read(task, task.draw(Stream(7, TRAIN), index, 2)) for index in range(4)]
    assert seen == [["abcd", "klmn"], ["defg", "nopq"], ["ghij", "qrst"], ["abcd", "klmn"]]
    assert [task.begins(index, 2) for index in range(7)] == [True, False, False, True, False, False, True]
    # ten letters hold two sequences with a window each; a batch of two windows is one of each
    assert task.runs(2) == 2
    assert read(task, task.draw(Stream(7, VALIDATION), 0, 2)) == ["abcd", "fghi"]
    assert read(task, task.draw(Stream(7, TEST), 0, 100)) == ["klmn", "pqrs"]
    # one sequence in one run, and on where the batch before it ended
    assert [read(task, task.draw(Stream(7, TEST), index, 1)) for index in range(4)] == [
        ["klmn"], ["nopq"], ["qrst"], ["klmn"]
    ]  # fmt: skip


SHARES = {"validation_share": 0.25, "test_share": 0.25}


@pytest.mark.parametrize(("rows", "horizon"), [(1, 150), (4, 37), (13, 2), (10_000, 20)])
def test_an_epoch_is_the_training_text_in_rows_without_gap_or_overlap(tmp_path: Path, rows: int, horizon: int) -> None:
    content = write_text(tmp_path / "t", lines=60)
    task = text(tmp_path / "t", horizon=horizon)
    train = content[: len(content) - 2 * round(0.1 * len(content))]
    windows = [read(task, task.draw(Stream(0, TRAIN), 0, rows))]
    while not task.begins(len(windows), rows):
        windows.append(read(task, task.draw(Stream(0, TRAIN), len(windows), rows)))
    held = min(rows, len(train) // (horizon + 1))
    length = len(train) // held
    for row in range(held):
        joined = "".join(batch[row][:-1] for batch in windows) + windows[-1][row][-1]
        assert joined == train[row * length :][: len(joined)]
        assert 0 <= length - len(joined) < horizon  # the rest does not fill a window
    assert all(len(batch) == held for batch in windows)
    again = task.draw(Stream(5, TRAIN), len(windows), rows)  # the next epoch, and another seed
    assert read(task, again) == windows[0]


@pytest.mark.parametrize("name", [VALIDATION, TEST])
@pytest.mark.parametrize("size", [1, 3, 9, 10, 11, 25, 60, 10_000])
def test_an_evaluation_batch_is_runs_of_windows_that_follow_each_other(tmp_path: Path, name: str, size: int) -> None:
    content = write_text(tmp_path / "t", lines=100)
    task = text(tmp_path / "t", horizon=9)
    held = round(0.1 * len(content))
    part = content[len(content) - held :] if name == TEST else content[len(content) - 2 * held : len(content) - held]
    batch = task.draw(Stream(0, name), 0, size)
    windows, runs = read(task, batch), task.runs(size)
    assert runs == min(10, size) == task.runs(len(windows))
    assert len(windows) % runs == 0
    each = len(windows) // runs
    length = len(part) // runs
    assert each == min(size // runs, (length - 1) // 9)
    for run in range(runs):
        mine = windows[run * each : (run + 1) * each]
        assert "".join(window[:-1] for window in mine) + mine[-1][-1] == part[run * length :][: each * 9 + 1]
    assert torch.equal(task.draw(Stream(3, name), 0, size).inputs, batch.inputs)  # no seed draws anything
    if 2 * each <= (length - 1) // 9:
        behind = read(task, task.draw(Stream(0, name), 1, size))
        assert [window[0] for window in behind[::each]] == [window[-1] for window in windows[each - 1 :: each]]


def test_chance_and_memoryless_loss_are_what_the_best_such_answers_pay_on_the_training_text(tmp_path: Path) -> None:
    content = write_text(tmp_path / "t", lines=30)
    cut = 1 + 20 * ((len(content) * 8 // 10) // 20)  # one row of whole windows: nothing is left out
    share = (len(content) - cut) / 2 / len(content)
    content = content[: cut + 2 * round(share * len(content))]
    share = (len(content) - cut) / 2 / len(content)
    task = text(tmp_path / "t", content, horizon=20, validation_share=share, test_share=share)
    train = content[:cut]
    assert len(task.corpus.parts[TRAIN]) == cut
    pairs, first = Counter(itertools.pairwise(train)), Counter(train[:-1])
    table = torch.tensor(
        [[math.log((pairs[a, b] or 1e-300) / first[a]) for b in task.corpus.alphabet] for a in task.corpus.alphabet],
        dtype=torch.float64,
    )
    batches = [task.draw(Stream(0, TRAIN), index, 1) for index in range((cut - 1) // 20)]
    assert task.begins(len(batches), 1)
    paid = [float(task.loss(batch.inputs @ table, batch)) for batch in batches]
    assert task.memoryless_loss() == pytest.approx(np.mean(paid), rel=1e-10)
    entropy = -sum(count / cut * math.log(count / cut) for count in Counter(train).values())
    assert task.chance() == pytest.approx(entropy, rel=1e-12)
    assert 0 < task.memoryless_loss() < task.chance() < math.log(task.inputs)


def test_characters_that_training_lacks_are_one_symbol(tmp_path: Path) -> None:
    known, strange = "abcd" * 40, "abcä" * 5 + "abcö" * 5
    task = text(tmp_path / "t", known + strange + "abcd" * 10, horizon=4, validation_share=1 / 6, test_share=1 / 6)
    assert task.corpus.alphabet == ("a", "b", "c", "d", Corpus.UNKNOWN)
    assert task.inputs == task.outputs == 5
    batch = task.draw(Stream(0, VALIDATION), 0, 100)
    assert set(batch.targets.flatten().tolist()) == {0, 1, 2, 4}  # both letters are symbol 4
    assert text(tmp_path / "u", known, horizon=4).inputs == 4  # without strangers there is no such symbol


@pytest.mark.parametrize("names", ["{}.txt", "ptb.char.{}.txt"])
def test_ptb_is_characters_with_a_symbol_at_the_end_of_each_line(tmp_path: Path, names: str) -> None:
    written = write_ptb(tmp_path / "ptb", names)
    task = PTB(PTB.Config(folder=str(tmp_path), horizon=12))
    assert not list(task.config.problems())
    for name, part in zip((TRAIN, VALIDATION, TEST), ("train", "valid", "test"), strict=True):
        found = [task.corpus.alphabet[place] for place in task.corpus.parts[name]]
        expected: list[str] = []
        for sentence in written[part]:
            expected += [*sentence.replace(" ", "_"), "<eos>"]
        assert found == expected
    assert task.inputs == len({symbol for sentence in written["train"] for symbol in spaced(sentence).split()}) + 1
    assert TEXT.reports[0] == PTB.reports[0] == "bits_per_character"
    assert PTB.Config().horizon == 150


def _latin(folder: Path) -> None:
    (folder / "text.txt").write_bytes("Größe\n".encode("latin-1") * 1000)


def _many(folder: Path) -> None:
    (folder / "text.txt").write_text("".join(map(chr, range(0x4E00, 0x4E00 + 5000))) * 2, encoding="utf-8")


def _folder(folder: Path) -> None:
    (folder / "text.txt").unlink()
    (folder / "text.txt").mkdir()


BAD_TEXTS: dict[str, tuple[Callable[[Path], object], dict[str, object], str]] = {
    "missing": (
        lambda folder: (folder / "text.txt").unlink(),
        {},
        r"there is no file .*text\.txt\. Put a text there \(plain, in UTF-8\), or say with the field file where one is",
    ),
    "a folder": (_folder, {}, r"text\.txt cannot be read: Is a directory"),
    "another encoding": (_latin, {}, r"text\.txt is no text in UTF-8: its byte 2 \(0xf6\) fits into no character"),
    "empty": (
        lambda folder: (folder / "text.txt").write_text(""),
        {},
        r"text\.txt, the train part has 0 symbols; windows of 9 steps need at least 10: take a longer text",
    ),
    "too many symbols": (_many, {}, r"text\.txt holds 5000 different symbols; at most 4096 are allowed"),
    "windows too long": (
        lambda folder: None,
        {"horizon": 3000},
        r"the (validation|test) part has 4\d\d symbols; windows of 3000 steps need at least 3,001",
    ),
    "nothing to train on": (
        lambda folder: None,
        {"validation_share": 0.5, "test_share": 0.5},
        "validation_share 0.5 and test_share 0.5 leave nothing to train on: their sum must be less than 1",
    ),
}


@pytest.mark.parametrize("fault", BAD_TEXTS)
def test_a_text_that_does_not_do_is_named_when_the_config_is_checked(tmp_path: Path, fault: str) -> None:
    write_text(tmp_path / "text.txt", lines=90)
    harm, fields, words = BAD_TEXTS[fault]
    config = TEXT.Config(file=str(tmp_path / "text.txt"), **({"horizon": 9} | fields))
    harm(tmp_path)
    problems = list(config.problems())
    assert problems
    assert any(re.search(words, sentence) for sentence in problems), problems


def _whole_words(folder: Path) -> None:
    (folder / "train.txt").write_text(" the gains of an old gate <unk> \n" * 50)


BAD_TREEBANKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (
        lambda folder: (folder / "valid.txt").unlink(),
        r"ptb lacks valid\.txt or ptb\.char\.valid\.txt, of the Penn Treebank at the level of characters \(text in "
        r"UTF-8: .*Put the published files there, .*MEMSWEEP_DATA",
    ),
    "whole words": (
        _whole_words,
        r"train\.txt is not the Penn Treebank at the level of characters .*: it holds 'an', of 2 characters, where one "
        r"is allowed \(6 such symbols in all",
    ),
    "another encoding": (
        lambda folder: (folder / "test.txt").write_bytes(b"\xff\xfe" + b"a b c \n" * 99),
        r"test\.txt is no text in UTF-8: its byte 0 \(0xff\) fits into no character",
    ),
    "cut short": (
        lambda folder: (folder / "test.txt").write_text("a b c\n"),
        r"of the files in .*ptb, the test part has 4 symbols; windows of 150 steps need at least 151: get them again",
    ),
}


@pytest.mark.parametrize("fault", BAD_TREEBANKS)
def test_treebank_files_that_do_not_do_are_named_when_the_config_is_checked(tmp_path: Path, fault: str) -> None:
    write_ptb(tmp_path / "ptb")
    config = PTB.Config(folder=str(tmp_path))
    assert not list(config.problems())
    harm, words = BAD_TREEBANKS[fault]
    harm(tmp_path / "ptb")
    (sentence,) = config.problems()
    assert re.search(words, sentence), sentence
    with pytest.raises(ValueError, match=r"ptb|symbols"):  # and again at use, where nobody checked
        PTB(config).draw(Stream(0, TRAIN), 0, 4)


def test_content_is_identity_and_place_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        write_text(tmp_path / name / "text.txt")
        write_ptb(tmp_path / name / "ptb")
    for kind, field in ((TEXT, {"file": "text.txt"}), (PTB, {"folder": "."})):
        configs = []
        for name in ("a", "b"):
            monkeypatch.chdir(tmp_path / name)
            configs.append(kind.Config(**field))  # relative; a worker may run elsewhere
        monkeypatch.chdir(tmp_path)
        one, other = configs
        assert not list(one.problems())
        assert identifying(one) == identifying(other)
        assert data_fingerprint(one) == data_fingerprint(other) != ""
    write_text(tmp_path / "b" / "text.txt", seed=1)
    configs = [TEXT.Config(file=str(tmp_path / name / "text.txt")) for name in ("a", "b")]
    assert data_fingerprint(configs[0]) != data_fingerprint(configs[1])


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    assert text(tmp_path / "t", LETTERS * 10, horizon=4).inputs == 26
    before = (tmp_path / "t").stat().st_mtime_ns
    made = text(tmp_path / "t", "ab" * 200, horizon=4)
    os.utime(tmp_path / "t", ns=(before + 1, before + 1))
    assert made.inputs == 2


def test_without_a_text_of_ones_own_there_is_one_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = registry.get(registry.TASK, "char_text").Config
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))
    assert Path(config().file).name == "topics.py"
    assert not list(config().problems())
    write_text(tmp_path / "text.txt")
    assert config().file == str(tmp_path / "text.txt")


def test_a_batch_that_the_text_cannot_feed_is_refused(tmp_path: Path) -> None:
    write_text(tmp_path / "text.txt")
    config = registry.get(registry.TASK, "char_text").Config(file=str(tmp_path / "text.txt"), horizon=20)
    model = registry.get(registry.MODEL, "vanilla_rnn").Config(width=4)
    held = len(registry.get(registry.TASK, "char_text")(config).corpus.parts[TRAIN]) // 21
    told = {
        size: [*TrialConfig(task=config, model=model, training=TrainingConfig(batch_size=size)).problems()]
        for size in (held, held + 1)
    }
    assert not told[held]
    assert f"are enough for {held} sequences of one window each" in told[held + 1][0]
