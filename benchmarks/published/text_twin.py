"""Writes a free text in the form and the size of the Penn Treebank by characters, which is not to be had by all.

    python -m benchmarks.published.text_twin /usr/share/wordnet data
    memsweep sweep ptb_150

The source is WordNet (the Debian package wordnet-base, or its published archive): the definitions and examples of its
words in an order that is drawn once, in lower case, digits as N. A sentence a line, a space between each two
characters, ``_`` between words. The rarest characters are left out, so that as many symbols are left as the Treebank
has. It is another text: its numbers are not comparable with published ones.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

FILES = ("data.adj", "data.adv", "data.noun", "data.verb")
SIZES = {"train": 5_017_000, "valid": 393_000, "test": 442_000}
"""Symbols of each file, the ends of its lines among them, as published (Mikolov et al., 2012)."""
SYMBOLS = 50
"""Different ones, the end of a line among them."""


def sentences(folder: Path) -> list[str]:
    """The definitions and examples in the order of the files, a sentence each, with ``_`` for spaces."""
    found = []
    for name in FILES:
        for line in (folder / name).read_text(encoding="latin-1").splitlines():
            gloss = line.partition(" | ")[2]
            parts = (re.sub(r"\d+", "N", part.strip(' "').lower()) for part in gloss.split("; "))
            found += [re.sub(r"\s+", "_", part) for part in parts if part]
    return found


def parts(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The text of each file by its name.

    Raises:
        SystemExit: the lines are too short for them.
    """
    common = {symbol for symbol, _ in Counter("".join(lines)).most_common(SYMBOLS - 1)}
    rest = iter(lines)
    for name, size in SIZES.items():
        told, count = list[str](), 0
        while count < size:
            if (line := next(rest, None)) is None:
                raise SystemExit(f"the source is too short: {name} has {count:,} of {size:,} symbols")
            kept = [symbol for symbol in line if symbol in common]
            told.append(" ".join(kept))
            count += len(kept) + 1
        yield name, "\n".join(told) + "\n"


def main() -> None:
    """Reads two folders from the command line, and writes the files into ``ptb`` of the second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder of WordNet's files")
    parser.add_argument("folder", type=Path, help="the data folder")
    asked = parser.parse_args()
    lines = sentences(asked.source)
    random.Random(0).shuffle(lines)
    (asked.folder / "ptb").mkdir(parents=True, exist_ok=True)
    for name, text in parts(lines):
        (asked.folder / "ptb" / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
