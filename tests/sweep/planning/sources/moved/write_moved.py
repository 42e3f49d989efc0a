"""Writes ``moved.txt``: which lines the code of trials had before it moved, by what they are in a checkout of then.

Run it where code has moved and computes what it computed, with the folder of a checkout of the commit before:
``python tests/sweep/planning/sources/moved/write_moved.py FOLDER``. It compares the closures of trials of every
built-in study, one of each closure, in both; and, of one trial of each closure that measures add to a study's, those
with all measures in every company. That the code computes the same, golden losses and stored tables show: this file
does not.
``--trainings`` after the folder compares the closures of trainings alone: where every measurement is a new one, no line
of it stands for a line of before. ``--kernels`` compares nothing but the files of kernels, and adds a rule for each
that differs or is new: for a kernel that was changed and gives the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import json
import operator
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

ROOT = Path(__file__).resolve().parents[5]
Setting = tuple[str, dict[str, Any]]
SETTINGS: tuple[Setting, ...] = (
    ("perturbation", {"roundings": ["fixed_weights"]}),
    ("perturbation", {"memory_over_inputs": {}}),
    ("perturbation", {"worst_inputs": {}, "balls": ["recurrent"]}),
    ("perturbation", {"capacity": {"bits": [4], "radii": [0.1]}}),
    ("training", {"sharpness_every": 1, "validate_every": 1}),
    ("training", {"alignment_every": 1}),
)
"""Settings of a section that reach the code of each measure, and of what is measured in training."""
ANEW = frozenset({"min_gru", "min_lstm", "hgrn", "rg_lru"})
"""Units whose trials have other numbers than then: no line of theirs stands for a line of before."""
LISTED = ROOT / "platform" / "memsweep" / "sweep" / "planning" / "sources" / "moved.txt"
HEAD = "Lines of code that moved: see moved.py. Written by tests/sweep/planning/sources/moved/write_moved.py."


def rows() -> Iterator[TrialConfig]:
    """The trials of every built-in study whose data are here."""
    from memsweep import registry
    from memsweep.config.load.study import load_study
    from memsweep.errors import ConfigError

    registry.discover(ROOT)
    for file in sorted((ROOT / "search_spaces").rglob("*.yaml")):
        try:
            yield from load_study(str(file), workspace=ROOT).rows or ()
        except ConfigError:  # its data are not here
            continue


def grown(trials: Iterable[TrialConfig]) -> Iterator[TrialConfig]:
    """Trials, and after each the larger ones that ``extend`` and ``decide`` add, where they run other code."""
    from memsweep.config.schema.canonical import to_dict

    for trial in trials:
        yield trial
        given, own = to_dict(trial), ways_of(trial)
        for horizons, widths in ((2, 1), (4, 1), (1, 2), (2, 2)):
            larger = _times(given, ("task", "horizon", horizons), ("model", "width", widths))
            if (added := _trial_of(larger)) is not None and ways_of(added) != own:
                yield added


def _times(given: dict[str, Any], *sizes: tuple[str, str, int]) -> dict[str, Any]:
    """A trial with sizes of its sections multiplied, as far as it has them."""
    result = dict(given)
    for section, name, factor in sizes:
        if isinstance(size := given[section].get(name), int):
            result[section] = result[section] | {name: factor * size}
    return result


def modules() -> Iterator[TrialConfig]:
    """Trials of plain modules, of which no shipped study has one: by every reference, with and without a wrapper, and
    as a unit of a stack.

    One has a layer of torch that compiled recurrences compute.
    """
    from memsweep import registry

    registry.discover(ROOT)
    nets = ("min_gru.py:MinGRU", "frozen.py:Net", "torch_rnn.py:lstm")
    plain = [{"name": "module", "factory": f"{ROOT}/tests/support/nets/{net}"} for net in nets]
    wrapped = {"name": "module", "factory": "torch.nn:GRU", "wrap": True}
    layer = {"factory": f"{ROOT}/tests/support/nets/mixer.py:Mixer"}
    stack = {"name": "residual_stack"}
    stacks = [stack | {"unit": layer}, stack | {"layers": 2, "units": [layer, "attention"]}]
    memory, copying = {"name": "linear_functional"}, {"name": "copying_memory", "encoding": "one_hot"}
    tasks = {"target": memory, "self": memory, "metric": copying}
    models, dtypes = [*plain, wrapped, *stacks], ("float64", "float32")
    for model, (reference, task), dtype in itertools.product(models, tasks.items(), dtypes):
        given = {"task": task, "model": {"width": 4, **model}, "training": {"dtype": dtype}}
        trial = _trial_of(given | {"perturbation": {"reference": reference}})
        if trial is not None:
            yield trial


def chosen(trials: Iterable[TrialConfig]) -> Iterator[dict[str, Any]]:
    """Of trials, one of each code, and, of one of each code that settings add, those with all settings in every
    company; as plain data, without later settings at their defaults, which a memsweep of before does not know.
    """
    from memsweep.config.schema.canonical import to_dict
    from memsweep.sweep.planning.identity import without_later

    reached, codes, additions = set[Any](), set[int](), set[int]()
    for trial in itertools.filterfalse(_is_anew, trials):
        given = without_later(to_dict(trial), trial)
        ways = ways_of(trial), *(_ways_with(given, setting) for setting in SETTINGS)
        if ways in reached:
            continue
        reached.add(ways)
        own, *others = (None if each is None else tuple(itertools.starmap(lines_of, each)) for each in ways)
        if hash(own) not in codes:
            yield given
        added = hash(tuple(other and tuple(map(operator.xor, own, other)) for other in others))
        if added not in additions:
            yield from _varied(given)
        codes.add(hash(own))
        additions.add(added)


def ways_of(trial: TrialConfig) -> tuple[tuple[Any, Any], ...]:
    """The roots and the cut of the closure of a trial, and of its training: by plain code, and by compiled code.

    Some branches run where code is compiled alone, such as that for torch's layers in a module.
    """
    from memsweep.sweep.planning import fingerprint

    found = []
    for kernels, training in itertools.product(("plain", "compiled"), (False, True)):
        with mock.patch.object(fingerprint, "kernels_of", return_value=kernels):
            cut = fingerprint._Cut.of(trial, "cpu", training=training)
        found.append((fingerprint.code_roots(trial, training=training), cut))
    return tuple(found)


@functools.lru_cache(maxsize=64)
def lines_of(roots: Any, cut: Any) -> frozenset[str]:
    """The lines of the definitions of a closure."""
    from memsweep.sweep.planning.fingerprint import GRAPH

    return frozenset(line for definition in GRAPH.closure(roots, cut) for line in GRAPH._lines(definition, cut))


def _is_anew(row: Any) -> bool:
    """Whether a layer of its model has one of the units ``ANEW``."""
    from memsweep.models.deep.unit import is_deep, units_of

    return is_deep(row.model) and any(unit.name in ANEW for unit in units_of(row.model))


def _varied(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for size in range(1, len(SETTINGS) + 1):
        companies = itertools.combinations(SETTINGS, size)
        yield from (asked for each in companies if _trial_of(asked := _with(given, *each)) is not None)


def _ways_with(given: dict[str, Any], setting: Setting) -> Any:
    """``ways_of`` a trial that is measured so, too; None where it cannot be."""
    trial = _trial_of(_with(given, setting))
    return None if trial is None else ways_of(trial)


def _with(given: dict[str, Any], *settings: Setting) -> dict[str, Any]:
    result = dict(given)
    for section, values in settings:
        result[section] = result[section] | values
    return result


def _trial_of(given: dict[str, Any]) -> TrialConfig | None:
    """The trial of plain data; None where its model or its task cannot be measured so, or a part of it came later."""
    from memsweep.config.schema.canonical import trial_from_dict
    from memsweep.errors import ConfigError

    try:
        return trial_from_dict(given)
    except ConfigError:
        return None


def print_lines(trials: list[dict[str, Any]]) -> None:
    """The lines of each trial's closure, and of that of its training, in the memsweep that is imported, as JSON."""
    from memsweep import registry

    registry.discover(ROOT)
    numbers, found = dict[str, int](), list[list[int] | None]()
    places = (1, 3) if "--trainings" in sys.argv else (0, 1, 2, 3)
    for given, place in itertools.product(map(_known, trials), places):
        trial = _trial_of(given)
        if trial is None:
            found.append(None)
            continue
        own: Iterable[str] = lines_of(*ways_of(trial)[place])
        if "--as-before" in sys.argv and (moved := _moved()) is not None:
            own = moved.as_before(own)
        found.append([numbers.setdefault(line, len(numbers)) for line in own])
    json.dump({"lines": [*numbers], "trials": found}, sys.stdout)


def _moved() -> Any:
    """The rules of the checkout that runs; None where it has none yet."""
    for folder in ("memsweep.sweep.planning.sources", "memsweep.sweep.planning"):  # where it is, and where it was
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"{folder}.moved")
    return None


def _known(trial: dict[str, Any]) -> dict[str, Any]:
    """A trial without the settings of its measurement that the memsweep that is imported does not have yet."""
    from memsweep.config.core import reflect
    from memsweep.config.schema.trial import PerturbationConfig

    known = {*reflect.keys(PerturbationConfig)}
    measured = {name: value for name, value in trial["perturbation"].items() if name in known}
    return trial | {"perturbation": measured}


def lines_in(folder: Path, given: str, *words: str) -> list[frozenset[str] | None]:
    """The lines of the trials in the checkout in a folder, each with its training's after it, or of trainings alone,
    and the same by compiled code; None for a trial that it does not know.
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
    return [None if own is None else frozenset(said["lines"][number] for number in own) for own in said["trials"]]


def write(before: Path, *words: str) -> None:
    """Compares this checkout with that of then, and writes what moved."""
    from memsweep.sweep.planning.sources import moved

    given = json.dumps([*chosen(itertools.chain(grown(rows()), modules()))])
    both = zip(lines_in(ROOT, given, *words), lines_in(before, given, "--as-before", *words), strict=True)
    compared = {(now, then) for now, then in both if now is not None and then is not None}
    hashed = {now: frozenset(map(moved.hash_of, now)) for now, _ in compared}
    groups = dict[frozenset[str], list[tuple[frozenset[str], frozenset[str]]]]()
    for now, then in compared:
        if now != then:
            groups.setdefault(frozenset(map(moved.hash_of, now - then)), []).append((now, then))
    names = {own: frozenset[str]().union(*(hashed[now] for now, _ in group)) for own, group in groups.items()}
    rules = []
    for own, group in groups.items():
        later = [found for other, found in groups.items() if other != own and len(other) <= len(own)]
        others = {hashed[now] for found in later for now, _ in found}
        unless = frozenset(min(each - names[own]) for each in others if own <= each)
        lines = set[str]().union(*(then - now for now, then in group))
        rules.append(moved.Moved(own, frozenset(_whole(lines)), unless))
    alone = lines_of_tasks() | {moved.hash_of(line) for line in lines_of_kernels(ROOT).values()}
    rules += [rule for rule in moved.listed() if rule.now not in groups and rule.now <= alone]
    LISTED.write_text(moved.written(rules, HEAD), encoding="utf-8")
    moved.listed.cache_clear()
    for now, then in compared:
        if wrong := moved.as_before(now) ^ then:
            raise SystemExit(f"no rule says what these trials had before: {sorted(wrong)}")


def write_kernels(before: Path) -> None:
    """Adds what the kernels that were changed were called, in place of what was said of them."""
    from memsweep.sweep.planning.sources import moved

    known = {name: rule.before for rule in moved.listed() for name in rule.now if len(rule.now) == 1}
    then, rules = lines_of_kernels(before), moved.listed()
    for name, line in lines_of_kernels(ROOT).items():
        if line != then.get(name):
            # a new file of a kernel that gives the bits of before stands for no line
            first = known.get(moved.hash_of(then[name]), frozenset({then[name]})) if name in then else frozenset[str]()
            rules = [rule for rule in rules if not first or rule.before != first]
            rules.append(moved.Moved(frozenset({moved.hash_of(line)}), first))
    LISTED.write_text(moved.written(rules, HEAD), encoding="utf-8")
    moved.listed.cache_clear()


def lines_of_kernels(folder: Path) -> dict[str, str]:
    """The lines, by file, of the kernels in a checkout."""
    from memsweep.sweep.planning.sources import source_graph

    found = source_graph._other_code(folder / "platform" / "memsweep" / "recurrence" / "compiled")
    return {path.name: line for path, line in found}


@functools.cache
def lines_of_tasks() -> frozenset[str]:
    """Hashes of the lines of every task: a rule of these alone stays, for the task's data may not be here."""
    from memsweep import registry
    from memsweep.sweep.planning import fingerprint
    from memsweep.sweep.planning.sources import moved

    registry.discover(ROOT)
    tasks = (registry.get(registry.TASK, name) for name in registry.names(registry.TASK))
    roots = {each for task in tasks for each in fingerprint._definitions_of(task)}
    cut = fingerprint._Cut(frozenset(fingerprint.EXEMPT))
    return frozenset(map(moved.hash_of, fingerprint.GRAPH.lines(fingerprint.GRAPH.closure(roots, cut), cut)))


def _whole(lines: set[str]) -> set[str]:
    """Lines whose names stand for all that they stand for in any of those that are alike but for this."""
    from memsweep.sweep.planning.sources import moved

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
    elif "--kernels" in sys.argv:
        write_kernels(Path(sys.argv[1]).resolve())
    else:
        write(Path(sys.argv[1]).resolve(), *sys.argv[2:])
