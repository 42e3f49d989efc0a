"""Reviews of films, character by character: the text task of the Long Range Arena, on the files of its publication.

The files lie in a folder of the data folder, as they come out of ``aclImdb_v1.tar.gz`` (Maas et al., 2011)::

    <folder>/aclImdb/train/neg/*.txt, train/pos/*.txt, test/neg/*.txt, test/pos/*.txt

A file is a review, UTF-8. Nothing is downloaded. There may be fewer reviews than the published 25 000 and 25 000.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
    problems_of,
    published_text,
    with_times,
)
from memsweep.registry import register_task

PARTS = ("train", "test")
OPINIONS = ("neg", "pos")  # class 0 and class 1
HELD_OUT = 0.1  # share of the training reviews that validates


@dataclass(frozen=True)
class Reviews:
    """The numbers of the characters, and the sequences of each stream."""

    characters: Characters
    splits: Mapping[str, Sequences]


def _folders(folder: Path) -> list[Path]:
    return [folder / part / opinion for part in PARTS for opinion in OPINIONS]


@functools.lru_cache(maxsize=4)
def _files(folders: tuple[tuple[Path, int], ...]) -> Mapping[Path, list[Path]]:
    """The reviews in each folder, by name."""
    return {folder: sorted(folder.glob("*.txt")) for folder, _ in folders}


@functools.lru_cache(maxsize=2)
def _reviews(folders: tuple[tuple[Path, int], ...], length: int, min_count: int) -> Reviews:
    texts: dict[str, list[str]] = {part: [] for part in PARTS}
    labels: dict[str, list[int]] = {part: [] for part in PARTS}
    for folder, paths in _files(folders).items():
        part, opinion = folder.parts[-2:]
        texts[part] += [published_text(path)[:length] for path in paths]
        labels[part] += [OPINIONS.index(opinion)] * len(paths)
    try:
        characters = Characters.of(texts["train"], min_count)
    except ValueError as error:
        raise ValueError(f"the reviews in {folders[0][0].parent} {error}. Raise min_count") from None
    every, test = (characters.sequences(texts[part], labels[part]) for part in PARTS)
    train, validation = every.split(round(len(every) * HELD_OUT), Stream(0, "imdb: validation split"))
    test, _ = test.split(0, Stream(0, "imdb: order of the test reviews"))
    return Reviews(characters, {TRAIN: train, VALIDATION: validation, TEST: test})


@register_task("imdb")
class Imdb(LabelledSequences):
    """Decide whether a review praises a film, after reading it character by character.

    The inputs are those of the code of Zucchet et al. (2023, arXiv 2305.15947), which follows S4's: the text without
    changes, cut to one character less than the horizon, then the symbol that ends it. A character that occurs less than
    ``min_count`` times in the cut training files is the unknown. The published files give 134 symbols; there one more,
    number 135, fills up short reviews, where ours read zeros.

    That code validates on the test files, and so selects by its reported score. Here one tenth of the training files
    validates, the same for every seed, and the test files only test, in a permuted order, so that the first of them
    have both classes.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """The reviews of aclImdb: 22 500 to train on, 2 500 to validate, 25 000 to test; half of them praise."""

        horizon: int = setting(
            4096, "steps of a sequence, T: longer reviews lose their ends", at_least=2, at_most=100_000
        )
        min_count: int = setting(
            15, "how often a character must occur in the training files not to be the unknown", at_least=1
        )
        answer: str = setting(
            "every",
            "where the class is asked: last (at the end of a review), every (after each character, as a rule that goes "
            "forward in time wants it; the published choice)",
            choices=ANSWERS,
        )

        def problems(self) -> Iterable[str]:
            return problems_of(self.folders)

        def folders(self) -> tuple[tuple[Path, int], ...]:
            """The four folders with reviews, and the time of the last change of each.

            Raises:
                ValueError: there are no reviews, or too few.
            """
            top = Path(self.folder) / "aclImdb"
            folders = with_times(existing(_folders(top)))
            files = _files(folders)
            absent = [f"{folder.relative_to(top)}/*.txt" for folder in _folders(top) if not files.get(folder)]
            if absent:
                raise ValueError(lacks(top, absent, "the reviews of IMDB (aclImdb_v1.tar.gz, a text for each)"))
            count = sum(len(paths) for folder, paths in files.items() if folder.parent.name == "train")
            if not round(count * HELD_OUT):
                raise ValueError(f"the {count} training reviews in {top} are too few to hold a tenth of them out")
            return folders

        def reviews(self) -> Reviews:
            """The reviews as numbers, read once for all tasks that read them alike.

            Raises:
                ValueError: a file is missing or no text.
            """
            return _reviews(self.folders(), self.horizon - 1, self.min_count)

    classes = 2

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        """The four folders, for the names and sizes of their 50 000 files."""
        return existing(_folders(Path(config.folder) / "aclImdb"))

    @property
    def inputs(self) -> int:
        return self.end + 1

    @property
    def end(self) -> int:
        return self.config.reviews().characters.unknown + 1

    def load(self) -> Mapping[str, Sequences]:
        return self.config.reviews().splits
