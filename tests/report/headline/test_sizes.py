"""A sentence of several settings names sizes that each of them was asked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from test_gaps import WIDTHS, found

from memsweep.report.headline.stability import stability_sentence
from memsweep.report.naming.conditions import Labels


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

    findings = [
        replace(
            finding,
            condition={"task": "linear_functional", "task.kernel": "polynomial", "model.parameterization": name},
        )
        for name, finding in (("exp", found()), ("direct", found(falls, widths=other)))
    ]
    text = stability_sentence(findings, Labels([finding.condition for finding in findings]))
    assert text.startswith(f"For {said}, polynomial memory is not held stably under `direct` (m^−1.00 ")
    assert f"]{over}); `exp` holds it (" in text
