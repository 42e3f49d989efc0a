"""Small texts in the formats of the text tasks: sentences from a few words, drawn by a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SUBJECTS = [
    "a slow mode",
    "the stair",
    "an old gate",
    "the quiet matrix",
    "every second unit",
    "no window",
    "the last gain",
]
VERBS = ["keeps", "forgets", "turns", "carries", "repeats", "weighs", "hands on", "asks for"]
OBJECTS = [
    "the first symbol",
    "a long delay",
    "its own shadow",
    "what was read",
    "the sum of the gains",
    "eight blanks",
]
ENDS = [
    "until the cue",
    "at each step",
    "without a word",
    "by halves",
    "in turn",
    "before noon",
    "once more",
    "for 20 steps",
]


def sentences(count: int, seed: int = 0) -> list[str]:
    """Lines of text without their ends."""
    rng = np.random.default_rng(seed)
    parts = (SUBJECTS, VERBS, OBJECTS, ENDS)
    return [" ".join(part[rng.integers(len(part))] for part in parts) + "." for _ in range(count)]


def write_text(path: Path, lines: int = 400, seed: int = 0) -> str:
    """A text file of so many lines; gives its content."""
    text = "".join(f"{sentence}\n" for sentence in sentences(lines, seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return text


def spaced(sentence: str) -> str:
    """A sentence as character-level PTB has it: a space between each two characters, ``_`` between words."""
    return " ".join(sentence.replace(" ", "_"))


def write_ptb(folder: Path, names: str = "{}.txt", lines: tuple[int, int, int] = (400, 40, 40)) -> dict[str, list[str]]:
    """The three files of character-level PTB; gives the sentences of each, by ``train``, ``valid``, ``test``."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for seed, (part, count) in enumerate(zip(("train", "valid", "test"), lines, strict=True)):
        written[part] = sentences(count, seed)
        content = "".join(f" {spaced(sentence)} \n" for sentence in written[part])
        (folder / names.format(part)).write_text(content, encoding="utf-8")
    return written
