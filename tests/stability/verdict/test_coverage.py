"""Coverage of the interval of a limit slope, and the tables of docs/verdict.md that say so."""

from __future__ import annotations

import coverage
import numpy as np
import pytest
from exact_fits import KERNELS, Kernel, fit, radii, scale_of

from memsweep.config.grid.time_scale import USABLE_SCALES
from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.trend import trend
from paths import ROOT

BY_NAME = {kernel.name: kernel for kernel in KERNELS}
DOCS = ROOT / "docs/verdict.md"


@pytest.mark.parametrize("count", [4, 5])
def test_the_interval_holds_the_limit_of_memories_that_it_was_not_made_on(count: int) -> None:
    attack = tuple(BY_NAME[name] for name in ("e^-.5t + .2e^-.03t", "(t+1)e^-.1t", "e^-.1t cos .5t"))
    found = coverage.interval(count, 0.003, attack, repeats=2)
    assert found.coverage[Verdict.STABLE] >= 0.97
    assert found.worst[Verdict.STABLE][0] >= 0.9
    assert found.wrong == 0.0


def short_study(kernel: Kernel, parameterization: str, modes: int, horizons: tuple[int, ...]):
    exact = np.stack([radii(kernel, modes, parameterization, horizon) for horizon in horizons])[:, 0]
    noisy = exact * np.exp(0.002 * np.random.default_rng(0).standard_normal((5, len(horizons))))
    return trend(np.array(horizons, float), noisy, noisy, since=USABLE_SCALES * scale_of(kernel))


def test_the_two_short_studies_claim_no_slope_beside_the_truth() -> None:
    """They had -0.15 and +0.11 as limits, with intervals of 0.004 and 0.002; both radii keep their size."""
    exponential = short_study(BY_NAME["e^-.1t"], "direct", 0, (10, 20, 40, 80, 160))
    assert exponential.fitted == (20.0, 40.0, 80.0, 160.0)
    assert exponential.limit.low <= 0.0 <= exponential.limit.high
    polynomial = short_study(BY_NAME["(1+0.1t)^-1.1"], "exp", 3, (12, 24, 48, 96, 192))
    assert polynomial.fitted == (48.0, 96.0, 192.0)
    assert not polynomial.limit.available
    longer = short_study(BY_NAME["(1+0.1t)^-1.1"], "exp", 3, (12, 24, 48, 96, 192, 384))
    assert longer.limit.low <= 0.0 <= longer.limit.high


def test_skewed_slopes_are_covered() -> None:
    assert coverage.skewed("exponential", 5, repeats=2000) >= 0.925
    assert coverage.skewed("gamma(4)", 10, repeats=1000) >= 0.94


def test_a_fit_on_some_of_the_late_lags_is_that_on_all_of_them() -> None:
    """Long horizons are summed over a part of their lags."""
    kernel = BY_NAME["(1+0.1t)^-1.1"]
    found, lags = fit(kernel, 512, 3), np.arange(512.0)
    output = (found.eigenvalues ** lags[:, None]) @ [float(factor(np.zeros(1))[0]) for factor in found.factors]
    error = ((output - kernel.at(lags)) ** 2).sum() / (kernel.at(lags) ** 2).sum()
    assert found.error == pytest.approx(error, rel=0.05)


@pytest.mark.long
@pytest.mark.more
def test_the_tables_of_the_page_are_what_the_simulation_gives() -> None:
    """With the marks: coverage at every noise, and what is called by its name where noise is small."""
    text = DOCS.read_text()
    assert [line for line in coverage.interval_lines() if line not in text] == []
    for count in coverage.COUNTS:
        for sigma in coverage.SIGMAS:
            found = coverage.interval(count, sigma)
            assert min(found.coverage.values()) >= 0.93
            assert found.wrong == 0.0
            if sigma == 0.01:
                assert found.called[Verdict.STABLE] >= 0.95
                assert found.called[Verdict.UNSTABLE] >= 0.9
    assert all(not coverage.disjoint(sigma) for sigma in (0.0003, 0.003, 0.01))


@pytest.mark.more
def test_the_width_check_finds_widths_that_have_run_out_and_no_others() -> None:
    flat, passed, count, least = coverage.width_check()
    assert (flat, passed, count) == (19, 0, 90)
    assert least > -0.01
    text = DOCS.read_text()
    assert "19 of 90" in text
    assert [line for line in (*coverage.slopes_by_width(), *coverage.skewed_lines()) if line not in text] == []


@pytest.mark.more
def test_a_better_fit_of_a_power_law_is_less_stable_under_direct_alone() -> None:
    text, rows = (ROOT / "docs/evidence/studies.md").read_text(), list(coverage.radii_by_modes())
    assert all(row in text for row in rows)
    radii_of = [[float(cell) for cell in row.split("|")[4:8]] for row in rows[1:]]
    assert radii_of[0][0] > 2.5 * radii_of[-1][0]
    assert radii_of[0][2] == pytest.approx(radii_of[-1][2], rel=0.1)
