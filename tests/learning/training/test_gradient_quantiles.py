"""The quantiles of gradients over weights, of trainings however long."""

from __future__ import annotations

import pytest
import torch

from memsweep.learning.training import gradient_over_weight
from memsweep.learning.training.gradient_over_weight import TORCH_MOST, GradientOverWeight


def of(samples: list[torch.Tensor]) -> GradientOverWeight:
    rows, entries = samples[0].shape
    exists = torch.ones(rows, entries, dtype=torch.bool)
    return GradientOverWeight(torch.arange(entries), exists, rows, torch.zeros(rows), samples)


def test_a_training_that_is_too_long_for_torch_has_the_same_quantiles(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = torch.Generator().manual_seed(0)
    samples = [torch.rand(3, 7, generator=draws, dtype=torch.float64) for _ in range(5)]
    samples[2][1] = torch.nan
    for each in samples:
        each[2] = torch.nan
    usual = of(samples).summary()
    monkeypatch.setattr(gradient_over_weight, "TORCH_MOST", 10)
    for name, values in of(samples).summary().items():
        torch.testing.assert_close(values, usual[name], equal_nan=True)


def test_torch_refuses_longer_rows_and_they_have_quantiles() -> None:
    row = torch.zeros(1, TORCH_MOST + 2)
    with pytest.raises(RuntimeError, match="too large"):
        row.nanquantile(0.5, -1)
    assert float(of([row]).summary()["median"]) == 0.0
