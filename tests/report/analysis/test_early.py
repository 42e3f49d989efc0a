"""Verdicts while a sweep runs: said once, when the last trial of a condition ends, and those of the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memsweep import report
from memsweep.report.terminal import EarlyVerdicts
from memsweep.sweep.store.results import Store
from report_study import THEORY, write_study


@pytest.mark.more
def test_a_verdict_is_said_when_the_last_trial_of_its_condition_ends(tmp_path: Path) -> None:
    identities = write_study(tmp_path, THEORY)
    rows = {trial["identity"]: trial["config"] for trial in json.loads((tmp_path / "plan.json").read_text())["trials"]}
    of_each = len(identities) // len(THEORY)
    done = frozenset(identities[: of_each + 3])  # the first condition was there, and a part of the second
    early = EarlyVerdicts(Store(tmp_path), rows, done)
    said = {}
    for place, identity in enumerate(identities):
        if identity not in done:
            said[place] = [line for line, _ in early.ended(identity)]
    ends = [place for place, lines in said.items() if lines]
    assert ends == [(number + 1) * of_each - 1 for number in range(1, len(THEORY))]
    assert [*early.ended("f" * 32)] == []  # a trial of no condition of this plan
    lines = [line for place in ends for line in said[place]]
    verdicts = [(f.judgement.verdict.value, f.ball) for f in report.build(tmp_path).contents.verdicts]
    assert len(lines) == 2 * (len(THEORY) - 1)
    for line in lines:
        word, ball = line.split()[1], line.rsplit("(", 1)[1].rstrip(")")
        assert (word, ball) in verdicts
    assert lines[0].startswith("▲ unstable T −0.59 [")
    assert lines[0].endswith("polynomial, direct (recurrent)")
