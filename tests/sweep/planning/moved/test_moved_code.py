"""Code that moved has the lines that it had before, as long as nothing of it is changed."""

from __future__ import annotations

from typing import Any

import pytest

from engine import trial
from memsweep.sweep.planning import fingerprint, moved
from memsweep.sweep.planning.fingerprint import code_closure

TRIALS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of bits": {"roundings": ("fixed_weights",)},
}


def lines_of(perturbation: dict[str, Any]) -> set[str]:
    config = trial(perturbation=perturbation)
    cut = fingerprint._Cut.of(config, "cpu", training=False)
    return fingerprint.GRAPH.lines(code_closure(config), cut)


@pytest.mark.parametrize("perturbation", TRIALS.values(), ids=TRIALS)
def test_a_rule_holds_until_one_of_its_lines_is_changed(perturbation: dict[str, Any]) -> None:
    lines = lines_of(perturbation)
    before = moved.as_before(lines)
    assert before != lines
    names = {moved.hash_of(line): line for line in lines}
    rule = next(rule for rule in moved.listed() if rule.holds(names.keys()))
    for name in rule.now:
        assert moved.as_before({*lines - {names[name]}, "changed []"}) - {"changed []"} != before


def test_rules_are_read_as_they_are_written() -> None:
    rules = moved.listed()
    assert (
        moved.written(rules, moved._LISTED.read_text().splitlines()[0].removeprefix("# ")) == moved._LISTED.read_text()
    )


def test_what_a_name_stands_for_counts_where_it_runs() -> None:
    line = moved.line_of("f", [("a", ["1", "2"]), ("b", ""), ("c", ["3"])])
    assert moved._as_run(line, {"2"}) == moved.line_of("f", [("a", ["2"]), ("b", ""), ("c", "")])
