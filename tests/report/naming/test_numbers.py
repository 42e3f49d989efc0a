"""Numbers for readers: one minus sign, as many decimals in all parts of an interval, and words for claims."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from memsweep.analyses.claims.tables import counted
from memsweep.report.naming.numbers import figure, interval, percent, slope_text
from memsweep.stability.verdict.trend import Slope


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ((0.88, 0.86, 0.9), "0.88 [0.86, 0.90]"),
        ((1.05e-4, 5.9e-5, 2.81e-4), "0.000105 [0.000059, 0.000281]"),
        ((8.7e-5, 6.1e-5, 9e-5), "8.7e−5 [6.1e−5, 9e−5]"),
        ((7.3e-6, 3.4e-6, 1.9e-4), "7.3e−6 [3.4e−6, 0.00019]"),
        ((-0.002, -0.01, 0.003), "−0.002 [−0.010, 0.003]"),
        ((1500.0, 1200.0, 1800.0), "1500 [1200, 1800]"),
        ((0.12345, 0.1234, 0.1235), "0.123 ± 5e−5"),
        ((2.0, 1.0, math.inf), "2 [1, ∞]"),
        ((math.nan, math.nan, math.nan), "–"),
    ],
)
def test_an_interval_has_as_many_decimals_in_all_its_parts(ends: tuple[float, float, float], text: str) -> None:
    assert interval(*ends) == text


def test_rounded_ends_that_meet_say_how_near_they_are() -> None:
    assert slope_text(Slope(0.001, -0.0002, 0.003)) == "0.00 ± 0.002"
    assert slope_text(Slope(-0.59, -0.66, -0.55)) == "−0.59 [−0.66, −0.55]"
    assert figure(-5.9e-5) == "−5.9e−5"
    assert [percent(share) for share in (0.005, 0.0949, 0.9949, 0.9962, 1.614, 2.2326e14)] == [
        "0.5 %",
        "9.5 %",
        "99 %",
        "100 %",
        "161 %",
        "2.2e16 %",
    ]


def test_claims_are_counted_by_their_conclusions() -> None:
    verdicts = ["supported", "contradicted", "contradicted", "not supported", "underpowered", "not measured"]
    compared = pd.DataFrame({"claim": [*"abbcde"], "verdict": verdicts, "test": verdicts, "cells": ""})
    said = "1 is supported, 1 is contradicted, 1 is not supported, 1 is undecided for lack of seeds and"
    assert counted(compared) == f"Of 5 claims, {said} 1 is not measured."
    assert counted(compared[4:5]) == "Of 1 claim, 1 is undecided for lack of seeds."
