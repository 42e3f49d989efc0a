"""``memsweep decide --max-hours``: no round begins that is expected not to end before the time is over."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.studies.by_hand import STUDY
from memsweep.cli import main
from memsweep.errors import Exit
from memsweep.sweep.driver.launch import ActiveLimits, ByClock, Limits

WORDS = ("decide", "small.yaml", "--inline", "--no-page", "--json")


def test_the_time_that_is_left_counts_on_every_core_that_packs_fill() -> None:
    now = [0.0]
    limits = ActiveLimits(Limits(hours=1.0), lambda: now[0])
    now[0] = 3000.0
    assert limits.by_clock(1, in_process=True) == ByClock(600.0, 3600.0)
    assert limits.by_clock(4, in_process=False) == ByClock(2400.0, math.inf)
    assert limits.by_clock(0, in_process=False) == ByClock()  # nobody knows how many
    now[0] = 4000.0
    assert limits.by_clock(1, in_process=True).left == 0.0
    assert ActiveLimits(Limits(core_hours=1.0)).by_clock(1, in_process=True) == ByClock()


@pytest.mark.more
def test_a_round_that_does_not_fit_into_the_time_left_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "small.yaml", "--inline", "--no-page"]) == 0
    capsys.readouterr()
    with monkeypatch.context() as late:
        late.setattr(ActiveLimits, "by_clock", lambda *_, **__: ByClock(1e-3, 3600.0))
        assert main([*WORDS, "--max-hours", "1"]) == Exit.LIMIT
        found = json.loads(capsys.readouterr().out)
        (one,) = found["decisions"]
        assert (found["rounds"], found["trials_left"], one["state"]) == (0, 0, "limit")
        assert one["why"].endswith("core hours, does not fit into what is left of the limit")
    assert main([*WORDS, "--max-hours", "1e-6"]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    (one,) = found["decisions"]
    assert (found["rounds"], one["state"]) == (0, "hopeless")
    assert one["why"].startswith("more than the limit would be needed; ")
    assert one["needed_core_hours"] > 1e-6
