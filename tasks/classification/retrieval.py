"""Document retrieval of the Long Range Arena: two papers of the ACL Anthology Network, character by character.

The files lie in a folder of the data folder, as the arena publishes them (``tsv_data`` in ``lra_release.gz``)::

    <folder>/aan/new_aan_pairs.train.tsv, new_aan_pairs.eval.tsv, new_aan_pairs.test.tsv

They are text in UTF-8, columns with tabs between them and no line of names: the class (1: one paper cites the other),
the names of the two papers, their texts; a field with tabs or ends of lines in it stands between double quotes. Nothing
is downloaded. Files may be shorter than the published ones (147 086, 18 090 and 17 437 pairs).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from memsweep.config.core.fields import setting
from memsweep.data.api import (
    ANSWERS,
    TEST,
    TRAIN,
    VALIDATION,
    Characters,
    DataFolderConfig,
    LabelledSequences,
    Sequences,
    Stream,
    existing,
    lacks,
    published_lines,
    with_times,
)
from memsweep.registry import register_task

FILES = {TRAIN: "new_aan_pairs.train.tsv", VALIDATION: "new_aan_pairs.eval.tsv", TEST: "new_aan_pairs.test.tsv"}
COLUMNS = "the class, the names of two papers, their texts"
CLASSES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
LONGEST = 2**31 - 1  # characters of a field; Python's own limit, 131 072, is less than some papers have


@dataclass(frozen=True)
class Pairs(Sequences):
    """Sequences of two documents each, joined when they are drawn, because a document is in many pairs.

    Attributes:
        symbols, ends: of the documents, each stored once.
        labels: the classes of the pairs, ``[B]``.
        members: the two documents of each pair, ``[B, 2]``.
        between: the number of the symbol between the two.
    """

    members: np.ndarray
    between: int

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self._join(pair) for pair in self.members)

    def select(self, rows: np.ndarray) -> Sequences:
        """The pairs at these positions, joined."""
        pairs = [self._join(pair) for pair in self.members[rows]]
        ends = np.cumsum([len(pair) for pair in pairs], dtype=np.int64)
        return Sequences(np.concatenate(pairs or [self.symbols[:0]]), ends, self.labels[rows])

    def _join(self, pair: np.ndarray) -> np.ndarray:
        first, second = (self.symbols[self.ends[place - 1] if place else 0 : self.ends[place]] for place in pair)
        return np.concatenate([first, np.array([self.between], self.symbols.dtype), second])


@dataclass(frozen=True)
class Papers:
    """The numbers of the characters, and the pairs of each stream."""

    characters: Characters
    splits: Mapping[str, Pairs]


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _pairs(path: Path, length: int) -> Iterator[tuple[int, str, str]]:
    """The class and the two texts of each line, each text cut to ``length`` characters."""
    rows = csv.reader(published_lines(path), delimiter="\t")
    while True:
        try:
            with _long_fields():
                row = next(rows, None)
        except csv.Error as error:
            raise ValueError(f"{path}, line {rows.line_num}: {error}. Get the file again") from None
        if row is None:
            return
        if len(row) != 5:
            raise ValueError(
                f"{path}, line {rows.line_num}: {len(row)} columns where 5 belong ({COLUMNS}), with tabs between them. "
                "Get the file again"
            )
        if row[0] not in CLASSES:
            raise ValueError(
                f"{path}, line {rows.line_num}: the class {row[0][:40]!r} in column 1; allowed: 0 (neither paper cites "
                "the other) or 1 (one does)"
            )
        yield CLASSES[row[0]], row[3][:length], row[4][:length]


@functools.lru_cache(maxsize=2)
def _papers(files: tuple[tuple[Path, int], ...], length: int) -> Papers:
    documents: dict[str, int] = {}
    read: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}
    for (path, _), name in zip(files, FILES, strict=True):
        labels, members = read[name] = [], []
        for label, *texts in _pairs(path, length):
            labels.append(label)
            first, second = (documents.setdefault(text, len(documents)) for text in texts)
            members.append((first, second))
        if not labels:
            raise ValueError(f"{path} holds no pairs: get the file again")
    trained = {document for pair in read[TRAIN][1] for document in pair}
    try:
        characters = Characters.of(text for text, document in documents.items() if document in trained)
    except ValueError as error:
        raise ValueError(f"the texts of {files[0][0]} {error}. Get the file again") from None
    held = characters.sequences(list(documents), [0] * len(documents))
    between = characters.unknown + 1
    splits = {}
    for name, (labels, members) in read.items():
        order = Stream(0, f"retrieval: order of {name}").generator().permutation(len(labels))
        pairs = np.array(labels, np.int64)[order], np.array(members)[order]
        splits[name] = Pairs(held.symbols, held.ends, *pairs, between)
    return Papers(characters, splits)


@register_task("retrieval")
class Retrieval(LabelledSequences):
    """Decide whether one of two papers cites the other, after reading both character by character, one after the other.

    The sequence is the first paper, a symbol between, the second paper, and a symbol that ends it: at the end a
    recurrent model must remember the subject of the first paper. The published task on these data is easier: there a
    model reads each paper by itself, and a network without memory compares the two states. So the published accuracies
    cannot be compared with ours. As there, each paper is cut to half of the horizon (4000 symbols with the symbol that
    ends it), and characters that the training file lacks are the unknown. The pairs of a file are permuted, the same
    for every seed, so that the first test pairs are a fair sample of all.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """The three published files of pairs: 147 086 to train on, 18 090 to validate, 17 437 to test."""

        horizon: int = setting(
            8000,
            "steps of a sequence, T: each of its two papers is cut to half of it, with the symbol that ends it",
            at_least=4,
            at_most=200_000,
        )
        answer: str = setting(
            "last",
            "where the class is asked: last (at the end of both papers), every (after each character, of the first "
            "paper, too)",
            choices=ANSWERS,
        )

        def problems(self) -> Iterable[str]:
            """Problems in the first lines of the files, which are large."""
            try:
                for path, _ in self.files():
                    if next(_pairs(path, 1), None) is None:
                        yield f"{path} holds no pairs: get the file again"
            except ValueError as error:
                yield str(error)

        def files(self) -> tuple[tuple[Path, int], ...]:
            """The three files, and the time of the last change of each.

            Raises:
                ValueError: some are missing.
            """
            folder = Path(self.folder) / "aan"
            if absent := [name for name in FILES.values() if not (folder / name).is_file()]:
                raise ValueError(lacks(folder, absent, "AAN of the Long Range Arena (lra_release.gz: tsv_data)"))
            return with_times(folder / name for name in FILES.values())

        def papers(self) -> Papers:
            """The pairs as numbers, read once for all tasks that read them alike.

            Raises:
                ValueError: a file is missing, or a line of it has another format.
            """
            return _papers(self.files(), self.horizon // 2 - 1)

    classes = 2

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        return existing(Path(config.folder) / "aan" / name for name in FILES.values())

    @property
    def inputs(self) -> int:
        return self.end + 1

    @property
    def end(self) -> int:
        return self.config.papers().characters.unknown + 2

    def load(self) -> Mapping[str, Sequences]:
        return self.config.papers().splits
