"""The Penn Treebank, character by character, from the files of its publication at this level (Mikolov et al., 2012).

The files lie in a folder of the data folder, under one of their two names::

    <folder>/ptb/train.txt, valid.txt, test.txt
    <folder>/ptb/ptb.char.train.txt, ptb.char.valid.txt, ptb.char.test.txt

A line is a sentence: characters with a space between each two, and ``_`` where a word ends. The end of a line is a
symbol, too, ``<eos>``. Nothing is downloaded. Files may be shorter than the published ones (5017, 393 and 442 thousand
characters, 50 symbols).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from memsweep.config.core.fields import setting
from memsweep.data.api import Corpus, DataFolderConfig, TextTask, existing, lacks, published_text, with_times
from memsweep.registry import register_task

PARTS = ("train", "valid", "test")
END_OF_LINE = "<eos>"
WORDS = {"<unk>"}  # the only symbol of several characters that a file may have
FORMAT = (
    "the Penn Treebank at the level of characters (text in UTF-8: a sentence a line, a space between each two "
    "characters, _ between words)"
)


def _names(part: str) -> tuple[str, str]:
    return f"{part}.txt", f"ptb.char.{part}.txt"


def _paths(folder: Path) -> list[Path]:
    """The existing files, in their order."""
    return [path for part in PARTS for path in existing(folder / name for name in _names(part))[:1]]


def _symbols(path: Path) -> list[str]:
    """The symbols of a file, with one at the end of each line."""
    text = published_text(path)
    if text and not text.endswith("\n"):
        text += "\n"
    # checked before line ends become symbols: a file that has such symbols already is another version
    if strange := sorted(symbol for symbol in set(text.split()) - WORDS if len(symbol) > 1):
        raise ValueError(
            f"{path} is not {FORMAT}: it holds {strange[0]!r}, of {len(strange[0])} characters, where one is allowed "
            f"({len(strange):,} such symbols in all; {END_OF_LINE} comes by itself at the end of each line). The "
            "version with whole words has the same file names: get the one with characters"
        )
    return text.replace("\n", f" {END_OF_LINE} ").split()


@functools.lru_cache(maxsize=2)
def _corpus(files: tuple[tuple[Path, int], ...]) -> Corpus:
    return Corpus.of(*(_symbols(path) for path, _ in files))


@register_task("ptb")
class PennTreebank(TextTask):
    """Predict every next character of the Penn Treebank, with the state carried from window to window."""

    @dataclass(frozen=True, kw_only=True)
    class Config(DataFolderConfig):
        """The three published files, read in windows of T symbols through which gradients flow (150 or 300, as
        published). Symbols that the training file lacks count as one, the unknown."""

        horizon: int = setting(150, "symbols of a window, T, through which gradients flow", at_least=2, at_most=100_000)

        def problems(self) -> Iterable[str]:
            try:
                corpus = self.corpus()
            except ValueError as error:
                yield str(error)
                return
            for sentence in corpus.short(self.horizon):
                yield f"of the files in {Path(self.folder) / 'ptb'}, {sentence}: get them again, or lower the horizon"

        def corpus(self) -> Corpus:
            """The files' symbols, read once for all tasks.

            Raises:
                ValueError: files are missing or in another format.
            """
            folder = Path(self.folder) / "ptb"
            absent = [
                " or ".join(_names(part)) for part in PARTS if not existing(folder / name for name in _names(part))
            ]
            if absent:
                raise ValueError(lacks(folder, absent, FORMAT))
            return _corpus(with_times(_paths(folder)))

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        return _paths(Path(config.folder) / "ptb")
