"""A sentence of several settings names sizes that each of them was asked at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from test_gaps import HORIZONS, WIDTHS, found

from memsweep.report.analysis.contents import Finding
from memsweep.report.headline.stability import stability_sentence, unfit_sentence
from memsweep.report.naming.conditions import Labels
from memsweep.stability.verdict.judgement import Verdict


@pytest.mark.parametrize(
    ("other", "said", "over"),
    [
        (WIDTHS, "T = 10 to 80 and widths 2 to 16", ""),
        ((2, 4, 8, 16, 32), "T = 10 to 80 and widths 2 to 16", " over widths 2 to 32"),
        ((4, 8, 16, 32), "T = 10 to 80 and widths 4 to 16", " over widths 4 to 32"),
        ((16, 32, 64, 128), "T = 10 to 80 and each setting's own widths", " over widths 16 to 128"),
        ((32, 64, 128, 256), "T = 10 to 80 and each setting's own widths", " over widths 32 to 256"),
    ],
)
def test_settings_of_other_sizes_share_those_that_are_said(other: Sequence[int], said: str, over: str) -> None:
    def falls(width: int, horizon: int, threshold: float) -> float:
        return threshold**0.5 / width

    findings = [_named(found(), "exp"), _named(found(falls, widths=other), "direct")]
    text = _sentence(findings)
    assert text.startswith(f"For {said} when the recurrent weights move, polynomial memory is not held stably under `")
    assert re.search(rf"`direct` \((over widths \d+ to \d+: )?m\^−1.00 \[[^]]*\]{over}\); `exp` holds it \(", text)
    for sizes in {WIDTHS, tuple(other)} if "own" in said else ():
        assert f"over widths {sizes[0]} to {sizes[-1]}: " in text, "each claim has its sizes where they share none"


def _sentence(findings: Sequence[Finding]) -> str:
    return stability_sentence(findings, Labels([finding.condition for finding in findings]))


def _named(finding: Finding, name: str, **more: Any) -> Finding:
    condition = {"task": "linear_functional", "task.kernel": "polynomial", "model.parameterization": name}
    return replace(finding, condition=condition, **more)


def test_a_verdict_speaks_of_the_widths_that_fit() -> None:
    """A width of which four of five seeds fit has no place in a slope; an open verdict was asked at all of them."""
    every = [(width, horizon, seed) for width in (1, 64) for horizon in HORIZONS for seed in range(4)]
    widths = (1, *WIDTHS, 64)
    stable, open_ = _named(found(widths=widths, misses=every), "exp"), _named(found(widths=widths, seeds=2), "direct")
    assert (stable.judgement.verdict, open_.judgement.verdict) == (Verdict.STABLE, Verdict.INCONCLUSIVE)
    assert _sentence([stable]).startswith("For T = 10 to 80 and widths 2 to 16 when")
    assert "undecided under `direct` (over widths 1 to 64: 2 seeds" in _sentence([stable, open_])
    said = "No stable or unstable verdict speaks of widths 1 and 64: fewer than 5 of their seeds fit at T = 80."
    assert unfit_sentence([stable]) == unfit_sentence([stable, open_]) == said
    whole = _named(found(widths=(1, *WIDTHS)), "softplus")
    assert unfit_sentence([stable, whole]) == said.replace("No", "Not every")
    wide = _named(found(widths=(1, *WIDTHS, 64), misses=every[-16:]), "softplus")
    assert unfit_sentence([stable, wide]) == (
        "No stable or unstable verdict speaks of width 64: fewer than 5 of its seeds fit at T = 80. "
        "Not every stable or unstable verdict speaks of width 1: fewer than 5 of its seeds fit at T = 80."
    )
    assert unfit_sentence([whole]) == unfit_sentence([open_]) == unfit_sentence([]) == ""


def test_a_width_that_the_longest_horizon_lacks_is_not_said_to_miss_the_fit() -> None:
    finding = _named(found(widths=(*WIDTHS, 64), skips=[(64, HORIZONS[-1])]), "exp")
    assert finding.judgement.verdict is Verdict.STABLE
    assert _sentence([finding]).startswith("For T = 10 to 80 and widths 2 to 16 when")
    assert unfit_sentence([finding]) == ""


@pytest.mark.parametrize(
    ("balls", "method", "said"),
    [
        (["recurrent"], "worst_case", " when the recurrent weights move,"),
        (["all"], "worst_case", " when all weights move,"),
        (["recurrent", "all"], "worst_case", ","),
        (["recurrent", "all"], "random_push", " when the recurrent weights move at random,"),
        (["all"], "random", " when all weights move at random,"),
    ],
)
def test_a_claim_names_what_moves_and_how(balls: Sequence[str], method: str, said: str) -> None:
    config = {**found().config, "perturbation": {"method": method}}
    findings = [_named(found(), "exp", ball=ball, config=config) for ball in balls]
    assert _sentence(findings).startswith(f"For T = 10 to 80 and widths 2 to 16{said} polynomial memory is held stably")
