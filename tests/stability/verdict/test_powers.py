"""Which powers a few modes hold stably: README and findings say that the answer depends on exponent and width."""

from __future__ import annotations

import numpy as np
import pytest
from optimal_fits import optimal_fit

from memsweep.stability.verdict.trend import slope_weights
from paths import ROOT

SHARE = 0.1
"""The error at which a radius is read, of the zero predictor's."""


def radius(rate: float, exponent: float, horizon: int, modes: int) -> float:
    """The largest common push of all eigenvalues of an exact optimal fit, towards 1, whose error is at most SHARE."""
    lags = np.arange(horizon)
    kernel = (1 + rate * lags) ** -exponent
    eigenvalues, amplitudes = optimal_fit(kernel, np.ones(horizon), modes)
    low, high = 1e-8, 1.0
    for _ in range(60):
        push = np.sqrt(low * high)
        answer = ((eigenvalues + push)[None, :] ** lags[:, None]) @ amplitudes
        within = ((answer - kernel) ** 2).sum() <= SHARE * (kernel**2).sum()
        low, high = (push, high) if within else (low, push)
    return float(low)


@pytest.mark.more
@pytest.mark.parametrize(
    ("rate", "exponent", "horizons", "modes", "falls"),
    [
        (0.1, 1.1, (50, 100, 200, 400), 4, True),
        (0.1, 1.1, (50, 100, 200, 400), 8, True),
        (0.4, 2.0, (100, 200, 400, 800), 4, False),
        (0.4, 2.0, (100, 200, 400, 800), 8, True),
        (0.4, 3.0, (50, 100, 200, 400), 4, False),
        (0.4, 3.0, (50, 100, 200, 400), 8, True),
    ],
)
def test_exponent_and_width_decide_whether_the_raw_rate_holds_a_power(
    rate: float, exponent: float, horizons: tuple[int, ...], modes: int, *, falls: bool
) -> None:
    radii = [radius(rate, exponent, horizon, modes) for horizon in horizons]
    limit = float(slope_weights(np.array(horizons, float), 1.0) @ np.log(radii))
    assert limit < -0.6 if falls else abs(limit) < 0.05


@pytest.mark.parametrize("page", ["README.md", "docs/evidence/findings.md"])
def test_the_pages_say_of_which_power_they_speak(page: str) -> None:
    text = (ROOT / page).read_text("utf-8").replace("\n", " ")
    assert "(1 + 0.1 t)^−1.1" in text
    assert "2 to 8 modes" in text
    assert "T = 50 to 400" in text
