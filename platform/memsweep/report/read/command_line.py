"""The command line that a study was made by, as advice types it again."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from memsweep.config.load.study_files import MODULE
from memsweep.config.schema.canonical import flatten

Rows = Mapping[str, Mapping[str, Any]]
"""Identity -> canonical config of a trial."""
_OF_WORDS = ("measure", "atlas", "decide")
"""The verbs whose study may be made of the command line alone."""
_LIMIT = re.compile(r"--max-(?!nodes\b)[a-z-]+(=.*)?")
"""An option that ends a run. Its value stands behind it or is the next word."""
_SEEDS = "training.seeds"
_OF_SEEDS = (_SEEDS, "training.first_seed", "perturbation.stronger_every")
"""The fields by which trials of one condition and size may differ."""
_OF_ONE_RUN = frozenset({"--json", "--no-page"})


def is_of_words(command: str, source: str | None) -> bool:
    """Whether a command line made a study, which no file holds.

    Args:
        command: the line.
        source: of the study, as it was named there, if it was.
    """
    named = not source or MODULE.fullmatch(source) is not None
    verb = shlex.split(command)[1:2]
    return named and bool(verb) and verb[0] in _OF_WORDS


def without_run_options(command: str, *, limits: bool = True) -> list[str]:
    """The words of a command line without what it prints and, with ``limits``, without the limits of its run."""
    kept, words = list[str](), iter(shlex.split(command))
    for word in words:
        if word in _OF_ONE_RUN:
            continue
        limit = _LIMIT.fullmatch(word) if limits else None
        if limit is None:
            kept.append(word)
        elif limit[1] is None:
            next(words, None)
    return kept


def in_place(words: Iterable[str], added: Sequence[str]) -> list[str]:
    """Words of a command line with overrides in the place of those of the same paths, or of what holds these."""
    paths = [*map(_path, added)]

    def goes(word: str) -> bool:
        name = _path(word)
        return name in paths or (word.startswith("~") and any(path.startswith(f"{name}.") for path in paths))

    return [*(word for word in words if not goes(word)), *added]


def _path(word: str) -> str:
    return word.partition("=")[0].lstrip("+~").removeprefix("grid.")


def with_words(command: str, added: Sequence[str]) -> str:
    """A command line as of ``in_place``, without the limits of its run."""
    return shlex.join(in_place(without_run_options(command), added))


def grown_words(rows: Rows, added: Collection[str], paths: Collection[str]) -> list[str]:
    """Words for the sizes along which a study was extended, with all their values: its file does not name the new ones.

    Args:
        rows: identity -> canonical config of every trial.
        added: identities of those that came with extensions and rounds.
        paths: of the fields that are asked for anyway. ``extend`` brings more seeds, and nothing else, to all trials.
    """
    if {*paths} == {_SEEDS}:
        return []
    return [_word(path, values) for path, values in _grown(rows, added).items() if path not in paths]


def words_left_out(rows: Rows, added: Collection[str], asked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Words as of ``grown_words`` for the fields of which a study that is asked for has what its file says."""
    own, before = _sizes(asked), _sizes([row for name, row in rows.items() if name not in added])
    return [_word(path, values) for path, values in _grown(rows, added).items() if own.get(path) == before.get(path)]


def _grown(rows: Rows, added: Collection[str]) -> dict[str, set[int]]:
    """The paths along which extensions brought values, with all of them."""
    now, before = _sizes([*rows.values()]), _sizes([row for name, row in rows.items() if name not in added])
    return {path: values for path, values in now.items() if values - before.get(path, set())}


def _word(path: str, values: Collection[int]) -> str:
    """``model.width=2,4,8``; of seeds, the largest number."""
    return f"{path}={','.join(map(str, sorted(values)[-1:] if path == _SEEDS else sorted(values)))}"


def has_other_conditions(rows: Rows, added: Collection[str]) -> bool:
    """Whether an extension brought conditions, by more than sizes and seeds, that the trials before do not have.

    No word of sizes brings more of them to all conditions: ``extend`` would cross the fields. Arguments as of
    ``grown_words``.
    """
    sizes = {*_sizes([*rows.values()]), *_OF_SEEDS}

    def conditions(names: Iterable[str]) -> set[str]:
        told = ({path: value for path, value in flatten(rows[name]).items() if path not in sizes} for name in names)
        return {json.dumps(each, sort_keys=True) for each in told}

    return not conditions(rows.keys() & {*added}) <= conditions(rows.keys() - {*added})


def _sizes(rows: Sequence[Mapping[str, Any]]) -> dict[str, set[int]]:
    """The sizes of trials by the path of their field; of seeds, their number from the first one of all trials on.

    Those of a task are sizes where all trials have the same task: a task may lack the field of another.
    """
    sizes, tasks = dict[str, set[int]](), {row["task"]["name"] for row in rows}
    first = min((row["training"].get("first_seed", 0) for row in rows), default=0)
    for row in rows:
        training = row["training"]
        own = {"model.width": row["model"].get("width")}
        own |= {f"task.{field}": value for field, value in row["task"].items() if len(tasks) == 1}
        own[_SEEDS] = training["seeds"] + training.get("first_seed", 0) - first
        for path, value in own.items():
            if type(value) is int:
                sizes.setdefault(path, set()).add(value)
    return sizes


def made_by(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """How a study was made, as fields of ``Study``: ``command`` to ``measured``."""
    return {
        "command": str(provenance.get("command") or ""),
        "source": provenance.get("source"),
        "overrides": tuple(map(str, provenance.get("overrides") or ())),
        "address": str(provenance.get("address") or ""),
        "measured": str(provenance.get("measured") or ""),
    }
