"""Prediction of the next character of a text file."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from memsweep.config.core.fields import setting
from memsweep.data.api import DATA_VARIABLE, Corpus, TextTask, data_folder, existing, published_text
from memsweep.registry import register_task


def _default_file() -> str:
    """``text.txt`` in the data folder, or the help texts of the Python installation."""
    own = Path(data_folder()) / "text.txt"
    topics = None if own.is_file() else importlib.util.find_spec("pydoc_data.topics")
    return str(own) if topics is None or topics.origin is None else topics.origin


@functools.lru_cache(maxsize=2)
def _corpus(path: Path, changed: int, validation_share: float, test_share: float) -> Corpus:
    if not path.exists():
        raise ValueError(
            f"there is no file {path}. Put a text there (plain, in UTF-8), or say with the field file where one is"
        )
    text = published_text(path, "Store the text as UTF-8, or name another file")
    validation, test = (round(len(text) * share) for share in (validation_share, test_share))
    train = max(0, len(text) - validation - test)
    try:
        return Corpus.of(text[:train], text[train : train + validation], text[train + validation :])
    except ValueError as error:
        raise ValueError(f"{path} {error}. Take a text in fewer characters") from None


@register_task("char_text")
class CharText(TextTask):
    """Predict every next character of a text file, with the state carried from window to window."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The text, its split by position (training, then validation, then test), and the length of the windows through
        which gradients flow. Characters that the training part lacks count as one symbol, the unknown."""

        file: str = setting(
            factory=_default_file,
            doc=f"the text, UTF-8; default: text.txt in the folder ${DATA_VARIABLE} (data, where that is not set), or "
            "else the help texts that Python brings along, of some 700 000 characters",
            cosmetic=True,
        )
        horizon: int = setting(
            150, "characters of a window, T, through which gradients flow", at_least=2, at_most=100_000
        )
        validation_share: float = setting(0.1, "share of the text that validates", above=0.0, below=1.0)
        test_share: float = setting(0.1, "share of the text, its end, that tests", above=0.0, below=1.0)

        def __post_init__(self) -> None:
            # a worker may run in another working folder than the command
            object.__setattr__(self, "file", str(Path(self.file).absolute()))

        def problems(self) -> Iterable[str]:
            if self.validation_share + self.test_share >= 1.0:
                yield (
                    f"validation_share {self.validation_share} and test_share {self.test_share} leave nothing to "
                    "train on: their sum must be less than 1"
                )
                return
            try:
                corpus = self.corpus()
            except ValueError as error:
                yield str(error)
                return
            for sentence in corpus.short(self.horizon):
                yield f"of {self.file}, {sentence}: take a longer text, a smaller horizon or other shares"

        def corpus(self) -> Corpus:
            """The text, read once for all tasks that split it alike.

            Raises:
                ValueError: the file does not exist or is no text.
            """
            path = Path(self.file)
            changed = path.stat().st_mtime_ns if path.is_file() else 0
            return _corpus(path, changed, self.validation_share, self.test_share)

    @classmethod
    def data_files(cls, config: Config) -> list[Path]:
        """The text, if it exists."""
        return existing([Path(config.file)])
