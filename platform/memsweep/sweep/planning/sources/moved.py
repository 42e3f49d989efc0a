"""Code that moved: the lines that it had in identities before, in the place of those that it has now.

A digest is made from the lines of a closure (``memsweep.sweep.planning.sources.source_graph``). Where code is taken
apart or put elsewhere, and computes what it computed, its lines change, and with them the identity of its trials.
``moved.txt`` says, for each set of lines that trials have now, which ones they had: so stored results are found under
the identities that they have. A rule counts where all of its lines are there: as soon as one of them is changed, the
trials have identities of their own. What a name stands for counts in a line where the trial runs it, so the rules write
all that a name may stand for. ``tests/sweep/planning/sources/moved/write_moved.py`` writes the file.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LISTED = Path(__file__).with_name("moved.txt")
_NOW, _BEFORE, _UNLESS = "now ", "before ", "unless "
_LINE = re.compile(r"(.*?) (\[\]|\[\(.*\)\])", re.DOTALL)

_CACHED = 1 << 12
"""Lines of which the hash and the text are kept: all shipped trials together have about 1,400."""


@dataclass(frozen=True)
class Moved:
    """A rule.

    Attributes:
        now: hashes of the lines that trials have now.
        before: lines that they had in the place of these, each name with all that it may stand for.
        unless: hashes of lines of other trials that have all of ``now``, too, and had others before.
    """

    now: frozenset[str]
    before: frozenset[str]
    unless: frozenset[str] = frozenset()

    def holds(self, names: Set[str]) -> bool:
        """Whether it is the rule of a trial whose lines have these hashes."""
        return self.now <= names and not self.unless & names


@functools.lru_cache(maxsize=_CACHED)
def hash_of(line: str) -> str:
    """16 hexadecimal digits."""
    return hashlib.sha256(line.encode()).hexdigest()[:16]


def as_before(lines: Iterable[str]) -> set[str]:
    """The lines that code had before it moved, of lines that it has now."""
    kept = {hash_of(line): line for line in lines}
    added: set[str] = set()
    for rule in listed():
        if rule.holds(kept.keys()):
            kept = {name: line for name, line in kept.items() if name not in rule.now}
            added |= rule.before
    if not added:
        return {*kept.values()}
    runs = {_text_of(line) for line in (*kept.values(), *added)}
    return {*kept.values(), *(_as_run(line, runs) for line in added)}


@functools.lru_cache(maxsize=_CACHED)
def _text_of(line: str) -> str:
    """A line without what its names stand for."""
    return _LINE.sub(r"\1", line)


def _as_run(line: str, runs: Set[str]) -> str:
    """A line with what its names stand for where these texts run; that of a kernel's file has no names."""
    if not is_of_definition(line):
        return line
    text, meanings = parts_of(line)
    run = [(name, found, [each for each in found if each in runs]) for name, found in meanings]
    return line_of(text, [(name, (own or "") if found else found) for name, found, own in run])


def is_of_definition(line: str) -> bool:
    """Whether a line is a definition's, and no file's in another language."""
    return _LINE.fullmatch(line) is not None


def parts_of(line: str) -> tuple[str, list[tuple[str, Any]]]:
    """The text of a line, or its hash, and what the names in it stand for, in order."""
    found = _LINE.fullmatch(line)
    assert found is not None, f"please report this: no line of a definition: {line}"
    return found[1], ast.literal_eval(found[2])


def line_of(text: str, meanings: list[tuple[str, Any]]) -> str:
    """The line of ``parts_of``."""
    return f"{text} {meanings}"


@functools.cache
def listed() -> list[Moved]:
    """The rules of ``moved.txt``, those of the most lines first: they hold for the fewest trials."""
    lines = _LISTED.read_text(encoding="utf-8").splitlines()
    texts = {name: line for name, _, line in (line.partition(": ") for line in lines if line[:1] not in ("", "#"))}
    rules = []
    for name, numbers in texts.items():
        if name.startswith(_NOW):
            place = name.removeprefix(_NOW)
            before = frozenset(texts[number] for number in texts[f"{_BEFORE}{place}"].split())
            rules.append(Moved(frozenset(numbers.split()), before, frozenset(texts[f"{_UNLESS}{place}"].split())))
    return sorted(rules, key=lambda rule: len(rule.now), reverse=True)


def written(rules: Iterable[Moved], head: str) -> str:
    """The text of ``moved.txt`` with these rules, each line that code had before once."""
    rules = sorted(rules, key=lambda rule: (len(rule.now), sorted(rule.now)))
    lines = {line: str(number) for number, line in enumerate(sorted({each for rule in rules for each in rule.before}))}
    said = [f"# {head}"]
    for place, rule in enumerate(rules):
        said.append(f"{_NOW}{place}: {' '.join(sorted(rule.now))}")
        said.append(f"{_BEFORE}{place}: {' '.join(sorted((lines[line] for line in rule.before), key=int))}")
        said.append(f"{_UNLESS}{place}: {' '.join(sorted(rule.unless))}")
    said += [f"{number}: {line}" for line, number in lines.items()]
    return "\n".join(said) + "\n"
