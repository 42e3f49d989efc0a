"""Writes documents in the form and the numbers of two tasks of the Long Range Arena, which are not to be had by all.

    python -m benchmarks.published.document_twin data
    memsweep sweep arena_small

They are pairs of papers (AAN) and reviews of films (IMDB). Their words are made up: all documents share common ones,
and in each fifth place stands a word that tells. A paper has one of ``SUBJECTS`` subjects, and its telling words belong
to it. A pair is of the class 1 if both papers have the same subject. A review has words of praise and of blame, and
two thirds of them are of its class. ``right_pair`` and ``right_review`` read the class from the words: they are the
oracles. The first 255 characters of a paper named its subject in all of 4,000 draws. Whole reviews named their opinion
in all but 2 of 20,000, both short; those of a run that were cut to 1,023 characters, in 99.6 %.

They are other data sets: an accuracy on them says nothing of AAN or IMDB, and is not comparable with published ones.
They show that what reads the arena's files runs at their size.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

PAIRS = {"train": 147_086, "eval": 18_090, "test": 17_437}
"""Of each published file."""
PAPERS = 18_000
REVIEWS = 25_000
"""In each of the two published parts."""
SUBJECTS = 4
COMMON, TELLING = 200, 3
"""Words that all documents share, and words of each subject and of each opinion."""
EVERY = 5
"""In one of so many places stands a word that tells."""
PAPER, REVIEW = (1500, 5000), (300, 3000)
"""Least and largest number of characters."""
OPINIONS = ("neg", "pos")
_VOWELS, _CONSONANTS = "aeiou", "bdfgklmnprstvz"


class Words:
    """The words of all documents, drawn once.

    Attributes:
        common: that tell nothing.
        subjects: of each subject.
        opinions: of blame and of praise.
    """

    def __init__(self) -> None:
        draw, kinds = np.random.RandomState(7), SUBJECTS + len(OPINIONS)
        found: dict[str, None] = {}
        while len(found) < COMMON + kinds * TELLING:
            letters = ("".join(map(str, draw.choice([*_CONSONANTS]) + draw.choice([*_VOWELS]))) for _ in range(3))
            found.setdefault("".join(letters)[: draw.randint(4, 7)])
        words = [*found]
        self.common = words[:COMMON]
        told = [words[start : start + TELLING] for start in range(COMMON, len(words), TELLING)]
        self.subjects, self.opinions = told[:SUBJECTS], told[SUBJECTS:]


WORDS = Words()


def document(draw: np.random.RandomState, telling: Sequence[str], size: tuple[int, int]) -> str:
    """A text of common words, with the telling ones in turn; it is cut to a drawn number of characters."""
    length = draw.randint(*size)
    count = length // 4  # words have at least four letters
    words = np.array(WORDS.common)[draw.randint(COMMON, size=count)].astype(object)
    places = np.arange(draw.randint(EVERY), count, EVERY)
    words[places] = [telling[place] for place in draw.permutation(np.arange(len(places)) % len(telling))]
    return " ".join(words)[:length]


def paper(draw: np.random.RandomState, subject: int) -> str:
    """A paper of a subject."""
    return document(draw, WORDS.subjects[subject], PAPER)


def review(draw: np.random.RandomState, opinion: int) -> str:
    """A review: two thirds of what tells is of its opinion (0: blame, 1: praise), a third of the other one."""
    own, other = WORDS.opinions[opinion], WORDS.opinions[1 - opinion]
    return document(draw, [*own, *own, *other], REVIEW)


def subject_of(text: str) -> int:
    """The subject with the most words in a text."""
    return _most(text, WORDS.subjects)


def right_pair(first: str, second: str) -> int:
    """The class of a pair of papers: 1 if they have one subject."""
    return int(subject_of(first) == subject_of(second))


def right_review(text: str) -> int:
    """The class of a review: 1 if it praises."""
    return _most(text, WORDS.opinions)


def _most(text: str, kinds: Sequence[Sequence[str]]) -> int:
    count = Counter(text.split())
    return int(np.argmax([sum(count[word] for word in words) for words in kinds]))


def pairs(count: int, papers: Sequence[str], subjects: np.ndarray, seed: Sequence[int]) -> Iterator[str]:
    """Lines of a file of pairs; half of them are of each class."""
    draw = np.random.RandomState(seed)
    of_subject = [np.flatnonzero(subjects == subject) for subject in range(SUBJECTS)]
    for label in draw.permutation(np.arange(count) % 2):
        first = draw.randint(len(papers))
        subject = subjects[first] if label else (subjects[first] + draw.randint(1, SUBJECTS)) % SUBJECTS
        second = draw.choice(of_subject[subject])
        yield "\t".join([str(label), f"P{first}", f"P{second}", papers[first], papers[second]]) + "\n"


def write_pairs(folder: Path, counts: Sequence[int], papers: int, seed: int) -> None:
    """Writes the three files of pairs into ``aan`` of a folder, of ``papers`` papers in all."""
    place = _new(folder / "aan")
    draw = np.random.RandomState([seed, 0])
    subjects = np.arange(papers) % SUBJECTS
    texts = [paper(draw, subject) for subject in subjects]
    for number, (name, count) in enumerate(zip(PAIRS, counts, strict=True), 1):
        with (place / f"new_aan_pairs.{name}.tsv").open("w", encoding="utf-8") as file:
            file.writelines(pairs(count, texts, subjects, [seed, number]))


def write_reviews(folder: Path, count: int, seed: int) -> None:
    """Writes ``count`` reviews to train on, and as many to test, into ``aclImdb`` of a folder."""
    place = _new(folder / "aclImdb")
    for number, part in enumerate(("train", "test")):
        draw = np.random.RandomState([seed, number, 1])
        for opinion, name in enumerate(OPINIONS):
            (place / part / name).mkdir(parents=True)
            for index in range(count // len(OPINIONS)):
                (place / part / name / f"{index}.txt").write_text(review(draw, opinion), encoding="utf-8")


def _new(folder: Path) -> Path:
    if folder.exists():
        raise SystemExit(f"{folder} is there and stays as it is: name another data folder")
    folder.mkdir(parents=True)
    return folder


def main() -> None:
    """Reads a folder from the command line, and writes ``aan`` and ``aclImdb`` into it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the data folder")
    of = "to train on, to validate, to test"
    parser.add_argument("--pairs", type=int, nargs=3, default=[*PAIRS.values()], help=f"pairs {of} (as published)")
    parser.add_argument("--papers", type=int, default=PAPERS, help=f"papers in all ({PAPERS})")
    parser.add_argument("--reviews", type=int, default=REVIEWS, help=f"to train on, and as many to test ({REVIEWS})")
    parser.add_argument("--seed", type=int, default=0, help="decides all documents (0)")
    asked = parser.parse_args()
    write_pairs(asked.folder, asked.pairs, asked.papers, asked.seed)
    write_reviews(asked.folder, asked.reviews, asked.seed)


if __name__ == "__main__":
    main()
