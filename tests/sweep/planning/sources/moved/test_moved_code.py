"""Code that moved has the lines that it had before, as long as nothing of it is changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import write_moved
from write_moved import SETTINGS, _is_anew, chosen, grown, lines_of, modules, rows, ways_of

from engine import trial
from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning.fingerprint import code_closure
from memsweep.sweep.planning.sources import moved

TRIALS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of bits": {"roundings": ("fixed_weights",)},
}


def own_lines_of(perturbation: dict[str, Any]) -> set[str]:
    config = trial(perturbation=perturbation)
    cut = fingerprint._Cut.of(config, "cpu", training=False)
    return fingerprint.GRAPH.lines(code_closure(config), cut)


@pytest.mark.parametrize("perturbation", TRIALS.values(), ids=TRIALS)
def test_a_rule_holds_until_one_of_its_lines_is_changed(perturbation: dict[str, Any]) -> None:
    lines = own_lines_of(perturbation)
    before = moved.as_before(lines)
    assert before != lines
    names = {moved.hash_of(line): line for line in lines}
    rule = next(rule for rule in moved.listed() if rule.holds(names.keys()))
    for name in rule.now:
        changed = {*lines - {names[name]}, "changed []"}
        assert not rule.holds({*map(moved.hash_of, changed)})
        made = moved.as_before(changed)  # another rule may hold where a line has only come
        assert "changed []" in made
        assert made != before


def test_rules_are_read_as_they_are_written() -> None:
    rules = moved.listed()
    assert (
        moved.written(rules, moved._LISTED.read_text().splitlines()[0].removeprefix("# ")) == moved._LISTED.read_text()
    )


def test_what_a_name_stands_for_counts_where_it_runs() -> None:
    line = moved.line_of("f", [("a", ["1", "2"]), ("b", ""), ("c", ["3"])])
    assert moved._as_run(line, {"2"}) == moved.line_of("f", [("a", ["2"]), ("b", ""), ("c", "")])


def test_a_kernel_that_gives_the_same_bits_keeps_the_line_it_had_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "moved.txt"
    for place in (moved, "_LISTED"), (write_moved, "LISTED"):
        monkeypatch.setattr(*place, rules)
    versions = dict[str, str]()
    for version in ("first", "second", "third"):
        kernels = tmp_path / version / "platform" / "memsweep" / "recurrence" / "compiled" / "cpp"
        kernels.mkdir(parents=True)
        (kernels / "state_space.cpp").write_text(f"int {version};")
        versions[version] = write_moved.lines_of_kernels(tmp_path / version)["state_space.cpp"]
    rules.write_text(moved.written([], write_moved.HEAD))
    moved.listed.cache_clear()
    try:
        for before, now in ("first", "second"), ("second", "third"):
            monkeypatch.setattr(write_moved, "ROOT", tmp_path / now)
            write_moved.write_kernels(tmp_path / before)
            assert moved.as_before({versions[now], "another file"}) == {versions["first"], "another file"}
        assert moved.as_before({versions["second"]}) == {versions["second"]}
    finally:
        monkeypatch.undo()
        moved.listed.cache_clear()


# write_moved.py compares trials of every code.


def codes_of(trials: Iterable[TrialConfig]) -> set[int]:
    return {hash(tuple(lines_of(*way) for way in ways_of(each))) for each in trials}


def of_each_kind() -> list[TrialConfig]:
    """Trials of other code than each other: by a task's own measure, and by what changes are held against."""
    task = registry.get(registry.TASK, "memory_capacity").Config()
    references = [trial(perturbation={"reference": each}) for each in ("target", "self")]
    return [*references, dataclasses.replace(trial(), task=task)]


def test_trials_of_every_code_are_compared() -> None:
    trials = of_each_kind()
    given = [trial_from_dict(each) for each in chosen([*trials, *trials])]
    assert len(codes_of(trials)) == len(trials)
    assert codes_of(trials) <= codes_of(each for each in given if each in trials)
    measured = [trial_from_dict(to_dict(trials[0]) | {name: to_dict(trials[0])[name] | own}) for name, own in SETTINGS]
    assert all(each in given for each in measured)
    assert given.count(trials[0]) == 1


def test_larger_trials_that_run_other_code_are_compared() -> None:
    """At 256 steps few states leave the statistics of the batch; no shipped trial of the model has that horizon."""
    own = trial(task={"horizon": 128}, model={"width": 4}, training={"batch_size": 32})
    first, *larger = grown([own])
    assert first is own
    assert 256 in {each.task.horizon for each in larger}  # type: ignore[attr-defined]
    assert not codes_of([own]) & codes_of(larger)


def test_a_branch_for_compiled_code_alone_is_compared() -> None:
    """Of modules with and without a layer of torch, which run the same plain code."""
    given = [trial_from_dict(each) for each in chosen(modules())]
    (layers, *_), (plain, *_) = (
        [each for each in given if getattr(each.model, "factory", "").endswith(n)] for n in (":lstm", ":Net")
    )
    assert ways_of(layers)[0] != ways_of(layers)[2]
    assert codes_of([layers]) != codes_of([plain])


@pytest.mark.more
def test_the_code_of_every_shipped_trial_is_compared() -> None:
    shipped = [each for each in rows() if not _is_anew(each)]
    known = codes_of(trial_from_dict(given) for given in chosen(shipped))
    assert codes_of(shipped) <= known
    assert len(known) > 1000
