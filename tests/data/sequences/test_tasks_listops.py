"""ListOps: values, the law of generated expressions, and the published files."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from memsweep import registry
from memsweep.data.api import EXPRESSION_SYMBOLS, ExpressionLaw, expression_numbers, expression_value
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
from paths import ROOT

registry.discover(ROOT)
LISTOPS = registry.get(registry.TASK, "listops")
FUNCTIONS = {"MIN": np.min, "MAX": np.max, "MED": lambda x: int(np.median(x)), "SM": lambda x: np.sum(x) % 10}
NAMES = ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv")


def worth(text: str) -> int:
    """The value of an expression, by Python's own parser."""
    calls = re.sub(r"\[(\w+) ", r"\1([", text).replace("]", "])")
    calls = re.sub(r"(\d|\)) ?(?=\d|[A-Z])", r"\1, ", calls)
    return int(eval(calls, {}, FUNCTIONS))


def text_of(numbers: Sequence[int]) -> str:
    return " ".join(EXPRESSION_SYMBOLS[number] for number in numbers)


def in_pairs(text: str) -> str:
    """An expression as it is published, with parentheses around pairs."""

    def read(symbols: list[str]) -> str:
        first = symbols.pop(0)
        if not first.startswith("["):
            return first
        pair = first
        while symbols[0] != "]":
            pair = f"( {pair} {read(symbols)} )"
        return f"( {pair} {symbols.pop(0)} )"

    return read(text.split())


def write_listops(folder: Path, count: int = 30) -> dict[str, list[tuple[str, int]]]:
    """The three files with so many expressions each; gives these and their values, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = ExpressionLaw(6, 4, 5, 40).draw(np.random.default_rng(5))
    written = {}
    for name in NAMES:
        texts = [text_of(numbers) for numbers in islice(drawn, count)]
        written[name] = [(text, worth(text)) for text in texts]
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t")
            writer.writerow(["Source", "Target"])
            writer.writerows([in_pairs(text), value] for text, value in written[name])
    return written


def from_files(folder: Path, **fields: object) -> object:
    return LISTOPS(LISTOPS.Config(source="files", folder=str(folder), **fields))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[MED 1 8 3 ]", 3),
        ("[MED 1 2 3 4 ]", 2),
        ("[SM 9 9 ]", 8),
        ("[SM [MED 9 4 ] [MIN 3 [MAX 0 1 ] 5 ] 4 ]", 1),
    ],
)
def test_values_by_hand(text: str, value: int) -> None:
    assert expression_value(expression_numbers(text.split())) == value == worth(text)


@pytest.mark.parametrize("text", ["", "[MAX 1 2", "1 2", "]", "[MAX ]", "[MAX 1 2 ] ]"])
def test_what_is_no_expression_has_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="is no expression"):
        expression_value(expression_numbers(text.split()))


def test_lengths_follow_the_published_law() -> None:
    """The exact law, by convolution: a node is a digit (3/4), or 2 ... 4 nodes one deeper in two brackets."""
    longest, count = 60, 20_000
    length = np.eye(longest + 1)[1]  # at the greatest depth
    for _ in range(3):
        lists, power = np.zeros(longest + 1), length
        for _ in range(2, 5):
            power = np.convolve(power, length)[: longest + 1]
            lists[2:] += power[:-2] / 3
        length = 0.75 * np.eye(longest + 1)[1] + 0.25 * lists
    allowed = np.arange(longest + 1)
    length[(allowed < 6) | (allowed > 25)] = 0
    law = length / length.sum()
    drawn = islice(ExpressionLaw(4, 4, 6, 25).draw(np.random.default_rng(0)), count)
    found = np.bincount([len(expression) for expression in drawn], minlength=longest + 1) / count
    assert np.abs(found - law).max() < 5 * np.sqrt(law.max() / count)
    assert np.all((found > 0) <= (law > 0))
    chi_squared = count * ((found - law)[law > 0] ** 2 / law[law > 0]).sum()
    degrees = (law > 0).sum() - 1
    assert chi_squared < degrees + 5 * np.sqrt(2 * degrees)


def test_no_two_streams_have_an_expression_in_common() -> None:
    """Of 400 expressions that are possible at all, none is drawn for two streams, whatever the seeds."""
    task = LISTOPS(LISTOPS.Config(horizon=5, min_length=4, max_depth=2, max_args=2))
    drawn = [
        {tuple(row) for seed in (0, 1) for row in task.draw(Stream(seed, name), 0, 700).inputs.tolist()}
        for name in (TRAIN, VALIDATION, TEST)
    ]
    assert sum(map(len, drawn)) == len(set.union(*drawn))
    assert min(map(len, drawn)) > 90


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"min_length": 64}, "a horizon of 64 holds expressions of at most 63 symbols"),
        ({"max_depth": 2, "max_args": 3}, "none has 8 ... 63 symbols"),
        ({"horizon": 20_000, "min_length": 19_999}, "among 200 expressions"),  # not 20 000, which take a minute
    ],
)
def test_lengths_out_of_reach_are_refused(fields: dict[str, int], words: str) -> None:
    (problem,) = LISTOPS.Config(**fields).problems()
    assert words in problem


def test_published_files_are_read(tmp_path: Path) -> None:
    written = write_listops(tmp_path / "listops")
    task = from_files(tmp_path, horizon=48, answer="every")
    assert not list(task.config.problems())
    assert [path.name for path in LISTOPS.data_files(task.config)] == list(NAMES)
    for stream, name in zip((TRAIN, VALIDATION, TEST), NAMES, strict=True):
        batch = task.draw(Stream(0, stream), 0, 100)
        read = [text_of([number for number in row if 0 <= number < 15]) for row in batch.inputs.tolist()]
        found = list(zip(read, batch.targets.amax(1).tolist(), strict=True))
        assert sorted(found) == sorted(written[name])
    values = [value for _, value in written["basic_train.tsv"]]
    shares = np.bincount(values) / len(values)
    assert task.chance() == pytest.approx(-sum(share * np.log(share) for share in shares if share))


def test_missing_files_are_named_with_their_place(tmp_path: Path) -> None:
    write_listops(tmp_path / "listops")
    (tmp_path / "listops" / "basic_val.tsv").unlink()
    (problem,) = LISTOPS.Config(source="files", folder=str(tmp_path)).problems()
    for words in (f"the folder {tmp_path / 'listops'} lacks basic_val.tsv", "MEMSWEEP_DATA", "lra_release"):
        assert words in problem
    assert not list(LISTOPS.Config(folder=str(tmp_path)).problems())  # who generates needs none
    assert not LISTOPS.data_files(LISTOPS.Config(folder=str(tmp_path)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "line 1: the column Source and the column Target is missing"),
        (b"Source\tValue\r\n7\t7\r\n", "line 1: the column Target is missing"),
        (b"Source\tTarget\r\n", "holds no expressions"),
        (b"Source\tTarget\r\n7\t7\r\n( ( [MAX 2 ) 3 ) ]\r\n", "line 3: 1 columns, where the first line names 2"),
        (b"Source\tTarget\r\n7\t7\r\n[MEAN 1 2 ]\t1\r\n", "line 3: '[MEAN' in Source is no symbol of ListOps"),
        (b"Source\tTarget\r\n[MAX 12 3 ]\t1\r\n", "line 2: '12' in Source is no symbol of ListOps"),
        (b"Source\tTarget\r\n7\t10\r\n", "line 2: Target is '10'; allowed: 0 ... 9"),
        (b"Source\tTarget\r\n7\t-1\r\n", "line 2: Target is '-1'; allowed: 0 ... 9"),
        (b"Source\tTarget\r\n( )\t1\r\n", "line 2: Source is empty"),
        (b"Source\tTarget\r\n7\t7\r\n\xff\t1\r\n", "line 3: no text in UTF-8 (byte 0 of the line"),
    ],
)
def test_files_in_another_format_are_refused_by_file_and_line(content: bytes, words: str, tmp_path: Path) -> None:
    write_listops(tmp_path / "listops")
    damaged = tmp_path / "listops" / "basic_val.tsv"
    damaged.write_bytes(content)
    config = LISTOPS.Config(source="files", folder=str(tmp_path))
    glance = list(config.problems())
    with pytest.raises(ValueError, match=re.escape(str(damaged))) as caught:
        LISTOPS(config).load()
    assert words in str(caught.value)
    assert glance == (
        [] if "line 3" in words else [str(caught.value)]
    )  # the first lines are seen when a study is planned
