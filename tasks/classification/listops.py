"""ListOps: read a nested operation on lists of digits symbol by symbol, and output its value, a digit.

In the form of the Long Range Arena (Tay et al., 2020, arXiv 2011.04006). Its symbols are ten digits, four operations
and the bracket that closes a list; here, as in the published code of Zucchet et al. (2023, arXiv 2305.15947), one more
ends every expression. Expressions are drawn by the law of the arena's generator, or read from its files, which lie in a
folder of the data folder::

    <folder>/listops/basic_train.tsv, basic_val.tsv, basic_test.tsv

They are text: columns between tabs, the first line their names, of which ``Source`` is the expression and ``Target``
its digit. Parentheses, which show how the published generator nests its pairs, are left out of the expressions. Nothing
is downloaded. Files may be shorter than the published ones (96 000, 2 000, 2 000 expressions of 501 to 1 999 symbols).
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.data.api import (
    ANSWERS,
    EXPRESSION_SYMBOLS,
    TEST,
    TRAIN,
    VALIDATION,
    Batch,
    DataFolderConfig,
    ExpressionLaw,
    LabelledSequences,
    Sequences,
    Stream,
    existing,
    expression_numbers,
    expression_value,
    lacks,
    problems_of,
    published_lines,
    with_times,
)
from memsweep.registry import register_task

SOURCES = ("generated", "files")
STREAMS = (TRAIN, VALIDATION, TEST)
FILES = dict(zip(STREAMS, ("basic_train.tsv", "basic_val.tsv", "basic_test.tsv"), strict=True))
COLUMNS = ("Source", "Target")
DIGITS = 10
TYPICAL = 4096  # generated expressions whose frequencies give chance and the memoryless loss
ATTEMPTS = 20_000  # largest number of draws for one expression of an allowed length
WORK = 4_000_000  # largest number of symbols in all of these draws: a second


def _missing(folder: Path) -> str | None:
    """The message about missing files, or None."""
    absent = [name for name in FILES.values() if not (folder / name).is_file()]
    if not absent:
        return None
    published = "ListOps (the Long Range Arena's lra_release, its folder listops-1000)"
    return f"{lacks(folder, absent, published)}; with source generated no files are needed"


def _expressions(path: Path) -> Iterator[tuple[np.ndarray, int]]:
    """The expressions of a file and their digits, one by one; a file of published length is read for many seconds."""
    lines = (line.rstrip("\r\n").split("\t") for line in published_lines(path))
    names = next(lines, [""])
    if lacking := [name for name in COLUMNS if name not in names]:
        raise ValueError(
            f"{path}, line 1: the column {' and the column '.join(lacking)} is missing; the first line must name the "
            f"columns, with tabs between them, and begins with {chr(9).join(names)[:40]!r}. Get the file again"
        )
    source, target = map(names.index, COLUMNS)
    number = 1
    for number, columns in enumerate(lines, 2):
        if len(columns) != len(names):
            raise ValueError(
                f"{path}, line {number}: {len(columns)} columns, where the first line names {len(names)}. Get the file "
                "again"
            )
        expression = _expression(columns[source], f"{path}, line {number}")
        if columns[target] not in EXPRESSION_SYMBOLS[:DIGITS]:
            raise ValueError(f"{path}, line {number}: Target is {columns[target]!r}; allowed: 0 ... 9")
        yield expression, int(columns[target])
    if number == 1:
        raise ValueError(f"{path} holds no expressions: get the file again")


def _expression(text: str, place: str) -> np.ndarray:
    try:
        numbers = expression_numbers(text.replace("(", " ").replace(")", " ").split())
    except KeyError as error:
        raise ValueError(
            f"{place}: {error.args[0]!r} in Source is no symbol of ListOps; allowed, with spaces between them: "
            f"{' '.join(EXPRESSION_SYMBOLS)}"
        ) from None
    if not numbers:
        raise ValueError(f"{place}: Source is empty")
    return np.frombuffer(bytes(numbers), np.uint8)


@functools.lru_cache(maxsize=1)
def _splits(files: tuple[tuple[Path, int], ...]) -> Mapping[str, Sequences]:
    return {
        name: Sequences.of(*zip(*_expressions(path), strict=True)) for name, (path, _) in zip(FILES, files, strict=True)
    }


def _stream_of(expression: tuple[int, ...]) -> str:
    """The stream of an expression, by a checksum: each has a third of all expressions, and no two share one."""
    return STREAMS[zlib.crc32(bytes(expression)) % len(STREAMS)]


def _sequences(expressions: list[tuple[int, ...]]) -> Sequences:
    return Sequences.of(expressions, [expression_value(expression) for expression in expressions])


@functools.lru_cache(maxsize=8)
def _typical(law: ExpressionLaw) -> Sequences:
    return _sequences(list(islice(law.draw(Stream(0, "listops: typical expressions").generator()), TYPICAL)))


@functools.lru_cache(maxsize=64)
def _in_reach(law: ExpressionLaw) -> bool:
    """Whether the law gives an expression of an allowed length within the allowed draws."""
    return next(law.draw(Stream(0, "listops: attempts").generator(), _attempts(law)), None) is not None


def _attempts(law: ExpressionLaw) -> int:
    """Draws for an expression of an allowed length, after which the lengths are refused."""
    return min(ATTEMPTS, WORK // law.longest)


@register_task("listops")
class ListOps(LabelledSequences):
    """Output the value of a nested operation on lists, a digit; cross entropy over ten classes.

    Generated expressions are new in every batch (``training.train_size`` makes a fixed set of them), and training,
    validation and test have none in common: a checksum of its symbols decides the stream of an expression. Chance and
    the memoryless loss are those of 4096 fixed expressions; with files, those of the training file.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """The source of the expressions, and their law. The defaults are small; published: horizon 2000, min_length
        501, max_depth 10, max_args 10."""

        source: str = setting(
            "generated", "where expressions come from: generated, files (the published ones)", choices=SOURCES
        )
        horizon: int = setting(
            64,
            "steps of a sequence, T: a generated expression has at most T - 1 symbols, one more ends it; of files, "
            "what is longer loses its end",
            at_least=5,
            at_most=100_000,
        )
        min_length: int = setting(8, "symbols of the shortest generated expression", at_least=1, at_most=100_000)
        max_depth: int = setting(
            10, "depth of generated expressions at most; a digit alone has depth 1", at_least=1, at_most=50
        )
        max_args: int = setting(
            5, "arguments of a generated operation at most; at least 2, each number as likely", at_least=2, at_most=100
        )
        answer: str = setting(
            "every",
            "which steps are asked for the class: last (that of the end), every (all, as published)",
            choices=ANSWERS,
        )

        @property
        def law(self) -> ExpressionLaw:
            """The law of generated expressions."""
            return ExpressionLaw(self.max_depth, self.max_args, self.min_length, self.horizon - 1)

        def problems(self) -> Iterable[str]:
            if self.source == "files":
                yield from problems_of(lambda: [next(_expressions(path)) for path, _ in self.files()])
            elif self.min_length > self.horizon - 1:
                yield (
                    f"min_length is {self.min_length}, but a horizon of {self.horizon} holds expressions of at most "
                    f"{self.horizon - 1} symbols: raise horizon or lower min_length"
                )
            elif not _in_reach(self.law):
                yield (
                    f"among {_attempts(self.law):,} expressions with max_depth {self.max_depth} and max_args "
                    f"{self.max_args}, none has {self.min_length} ... {self.horizon - 1} symbols: raise max_depth, "
                    "max_args or horizon, or lower min_length"
                )

        def files(self) -> tuple[tuple[Path, int], ...]:
            """The files of the three streams, and the time of the last change of each.

            Raises:
                ValueError: some are missing.
            """
            folder = Path(self.folder) / "listops"
            if missing := _missing(folder):
                raise ValueError(missing)
            return with_times(folder / file for file in FILES.values())

    classes = DIGITS
    inputs = len(EXPRESSION_SYMBOLS) + 1
    end = len(EXPRESSION_SYMBOLS)

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        if config.source != "files":
            return []
        return existing(Path(config.folder) / "listops" / name for name in FILES.values())

    def load(self) -> Mapping[str, Sequences]:
        return _splits(self.config.files())

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        if self.config.source == "files":
            return super().draw(stream, index, size)
        expressions = self.config.law.draw(stream.generator(index))
        own = (expression for expression in expressions if _stream_of(expression) == stream.name)
        return self.laid_out(_sequences(list(islice(own, size))))

    def typical(self) -> Sequences:
        return super().typical() if self.config.source == "files" else _typical(self.config.law)

    def oracle(self, inputs: Tensor) -> Tensor:
        """The value of each expression, computed from its symbols; of files, where it may be cut, the known one."""
        if self.config.source == "files":
            return super().oracle(inputs)
        read = [[number for number in row if 0 <= number < self.end] for row in inputs.tolist()]
        return self.sure([expression_value(expression) for expression in read])
