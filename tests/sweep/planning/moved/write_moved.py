"""Writes ``moved.txt``: which lines the code of trials had before it moved, by what they are in a checkout of then.

Run it where code has moved and computes what it computed, with the folder of a checkout of the commit before:
``python tests/sweep/planning/moved/write_moved.py FOLDER``. It compares the closures of trials of every built-in
study, as they are and with all measures in every company, in both. That the code computes the same, golden losses and
stored tables show: this file does not. ``--trainings`` after the folder compares the closures of trainings alone:
where every measurement is a new one, no line of it stands for a line of before.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import operator
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
MEASURES = (
    {"roundings": ["fixed_weights"]},
    {"memory_over_inputs": {}},
    {"worst_inputs": {}, "balls": ["recurrent"]},
    {"capacity": {"bits": [4], "radii": [0.1]}},
)
"""Settings under ``perturbation`` that reach the code of each measure."""
SHARPNESS, ALIGNMENT = {"sharpness_every": 1, "validate_every": 1}, {"alignment_every": 1}
TRAININGS = ({}, SHARPNESS, ALIGNMENT, SHARPNESS | ALIGNMENT)
"""Settings under ``training`` that reach what is measured in training."""
ANEW = frozenset({"min_gru", "min_lstm", "hgrn", "rg_lru"})
"""Units whose trials have other numbers than then: no line of theirs stands for a line of before."""
LISTED = ROOT / "platform" / "memsweep" / "sweep" / "planning" / "moved.txt"
HEAD = "Lines of code that moved: see moved.py. Written by tests/sweep/planning/moved/write_moved.py."


def trials() -> Iterator[dict[str, Any]]:
    """Trials of every built-in study, as they are and with each measure, as plain data."""
    from memsweep import registry
    from memsweep.config.load.study import load_study
    from memsweep.config.schema.canonical import to_dict
    from memsweep.errors import ConfigError

    registry.discover(ROOT)
    seen = set[str]()
    for file in sorted((ROOT / "search_spaces").rglob("*.yaml")):
        try:
            rows = load_study(str(file), workspace=ROOT).rows or ()
        except ConfigError:  # its data are not here
            continue
        for row in rows:
            kind = _kind(row)
            if kind not in seen and not _is_anew(row):
                seen.add(kind)
                yield from _varied(to_dict(row))


def _kind(row: Any) -> str:
    """The choices that decide which code runs, as far as the code that measures and trains asks for it."""
    from memsweep import registry
    from memsweep.config.schema.batch_loss import way_of
    from memsweep.config.schema.trial import mixes_models

    task, model = registry.get(registry.TASK, row.task.name), registry.get(registry.MODEL, row.model.name)
    closed = row.has_closed_form, row.trains_in_closed_form, way_of(row) if row.has_closed_form else ""
    named = row.training.rule == "bptt", row.chain is None, row.training.weights is None
    return str([closed, named, task.carries_states, mixes_models(row.model), hasattr(model, "frozen_weights")])


def _is_anew(row: Any) -> bool:
    """Whether a layer of its model has one of the units ``ANEW``."""
    from memsweep.models.deep.unit import is_deep, units_of

    return is_deep(row.model) and any(unit.name in ANEW for unit in units_of(row.model))


def _varied(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from memsweep.config.schema.canonical import trial_from_dict
    from memsweep.errors import ConfigError

    some = itertools.chain.from_iterable(itertools.combinations(MEASURES, size) for size in range(len(MEASURES) + 1))
    asked = [functools.reduce(operator.or_, each, {}) for each in some]
    for measured, trained in itertools.product(asked, TRAININGS):
        sections = {"perturbation": row["perturbation"] | measured, "training": row["training"] | trained}
        try:
            trial_from_dict(row | sections)
        except ConfigError:  # this model or this task cannot be measured so
            continue
        yield row | sections


def print_lines(trials: list[dict[str, Any]]) -> None:
    """The lines of each trial's closure, and of that of its training, in the memsweep that is imported, as JSON."""
    from memsweep import registry
    from memsweep.config.schema.canonical import trial_from_dict
    from memsweep.errors import ConfigError
    from memsweep.sweep.planning import fingerprint

    registry.discover(ROOT)
    numbers, found = dict[str, int](), list[list[int] | None]()
    halves = (True,) if "--trainings" in sys.argv else (False, True)
    for given, training in itertools.product(map(_known, trials), halves):
        try:
            trial = trial_from_dict(given)
        except ConfigError:  # a part of it came later
            found.append(None)
            continue
        reached = fingerprint.code_closure(trial, training=training)
        cut = fingerprint._Cut.of(trial, "cpu", training=training)
        own = {line for definition in reached for line in fingerprint.GRAPH._lines(definition, cut)}
        if "--as-before" in sys.argv and importlib.util.find_spec("memsweep.sweep.planning.moved") is not None:
            own = importlib.import_module("memsweep.sweep.planning.moved").as_before(own)
        found.append([numbers.setdefault(line, len(numbers)) for line in own])
    json.dump({"lines": [*numbers], "trials": found}, sys.stdout)


def _known(trial: dict[str, Any]) -> dict[str, Any]:
    """A trial without the settings that the memsweep that is imported does not have yet: of its measurement, and those
    of its model that are null.
    """
    from memsweep import registry
    from memsweep.config.core import reflect
    from memsweep.config.schema.trial import PerturbationConfig

    known = {*reflect.keys(PerturbationConfig)}
    measured = {name: value for name, value in trial["perturbation"].items() if name in known}
    fields = {*reflect.keys(registry.get(registry.MODEL, trial["model"]["name"]).Config), "name"}
    model = {name: value for name, value in trial["model"].items() if name in fields or value is not None}
    return trial | {"perturbation": measured, "model": model}


def lines_in(folder: Path, given: str, *words: str) -> list[set[str] | None]:
    """The lines of the trials in the checkout in a folder, each with its training's after it, or of trainings alone;
    None for a trial that it does not know.
    """
    told = subprocess.run(
        [sys.executable, __file__, "--lines", *words],
        env=os.environ | {"PYTHONPATH": str(folder / "platform"), "MEMSWEEP_KERNELS": "plain"},
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(told.stdout)
    return [None if own is None else {said["lines"][number] for number in own} for own in said["trials"]]


def write(before: Path, *words: str) -> None:
    """Compares this checkout with that of then, and writes what moved."""
    from memsweep.sweep.planning import moved

    given = json.dumps([*trials()])
    both = zip(lines_in(ROOT, given, *words), lines_in(before, given, "--as-before", *words), strict=True)
    compared = [(now, then) for now, then in both if now is not None and then is not None]
    groups = dict[frozenset[str], list[tuple[set[str], set[str]]]]()
    for now, then in compared:
        if now != then:
            groups.setdefault(frozenset(map(moved.hash_of, now - then)), []).append((now, then))
    names = {own: {moved.hash_of(line) for now, _ in group for line in now} for own, group in groups.items()}
    rules = []
    for own, group in groups.items():
        later = [found for other, found in groups.items() if other != own and len(other) <= len(own)]
        others = [{*map(moved.hash_of, now)} for found in later for now, _ in found]
        unless = frozenset(min(each - names[own]) for each in others if own <= each)
        lines = set[str]().union(*(then - now for now, then in group))
        rules.append(moved.Moved(own, frozenset(_whole(lines)), unless))
    rules += [rule for rule in moved.listed() if rule.now not in groups and rule.now <= lines_of_tasks()]
    LISTED.write_text(moved.written(rules, HEAD), encoding="utf-8")
    moved.listed.cache_clear()
    for now, then in compared:
        if wrong := moved.as_before(now) ^ then:
            raise SystemExit(f"no rule says what these trials had before: {sorted(wrong)}")


@functools.cache
def lines_of_tasks() -> frozenset[str]:
    """Hashes of the lines of every task: a rule of these alone stays, for the task's data may not be here."""
    from memsweep import registry
    from memsweep.sweep.planning import fingerprint, moved

    registry.discover(ROOT)
    tasks = (registry.get(registry.TASK, name) for name in registry.names(registry.TASK))
    roots = {each for task in tasks for each in fingerprint._definitions_of(task)}
    cut = fingerprint._Cut(frozenset(fingerprint.EXEMPT))
    return frozenset(map(moved.hash_of, fingerprint.GRAPH.lines(fingerprint.GRAPH.closure(roots, cut), cut)))


def _whole(lines: set[str]) -> set[str]:
    """Lines whose names stand for all that they stand for in any of those that are alike but for this."""
    from memsweep.sweep.planning import moved

    found = dict[tuple[str, tuple[str, ...]], list[tuple[str, Any]]]()
    files = {line for line in lines if not moved.is_of_definition(line)}
    for text, meanings in map(moved.parts_of, lines - files):
        key = text, tuple(name for name, _ in meanings)
        known = found.setdefault(key, meanings)
        found[key] = [max(pair, key=lambda each: len(each[1])) for pair in zip(known, meanings, strict=True)]
    return files | {moved.line_of(text, meanings) for (text, _), meanings in found.items()}


if __name__ == "__main__":
    if "--lines" in sys.argv:
        print_lines(json.load(sys.stdin))
    else:
        write(Path(sys.argv[1]).resolve(), *sys.argv[2:])
