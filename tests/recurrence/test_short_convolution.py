"""The causal convolution of each channel beside torch's own, with gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from memsweep.recurrence.short_convolution import short_convolution


def by_torch(known_NBTM: Tensor, kernel_NML: Tensor) -> Tensor:
    found = [
        torch.nn.functional.conv1d(known.mT, kernel.unsqueeze(1), groups=len(kernel)).mT
        for known, kernel in zip(known_NBTM, kernel_NML, strict=True)
    ]
    return torch.stack(found)


@pytest.mark.parametrize("kernels", ["auto", "plain"])
@pytest.mark.parametrize("lags", [1, 2, 4])
def test_it_is_that_of_torch(lags: int, kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSWEEP_KERNELS", kernels)
    generator = torch.Generator().manual_seed(lags)
    sizes = ((2, 3, 9 + lags - 1, 21), (2, 21, lags))
    known, kernel = (torch.randn(*size, dtype=torch.float64, generator=generator).requires_grad_() for size in sizes)
    answers, expected = short_convolution(known, kernel), by_torch(known, kernel)
    torch.testing.assert_close(answers, expected, rtol=1e-12, atol=1e-12)
    outer = torch.randn(answers.shape, dtype=torch.float64, generator=generator)
    found, wanted = (torch.autograd.grad(each, [known, kernel], outer) for each in (answers, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
