"""The family of lag kernels: peak, rise, tail and sums, and the kernels that it contains."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import erf, zeta

from memsweep import registry, testing
from memsweep.data.api import LinearFunctionalTask
from memsweep.streams import TRAIN, Stream
from paths import ROOT

registry.discover(ROOT)
LAG_KERNEL, FUNCTIONAL = (registry.get(registry.TASK, name) for name in ("lag_kernel", "linear_functional"))


class TestPowerLaw(testing.TaskSuite):
    """The whole suite, with a power law behind the peak, between two steps."""

    task = "lag_kernel"
    config = LAG_KERNEL.Config(support=7.3, peakiness=1.0, tail=1.2, dispersion=2.0, horizon=40)


def made(**fields: object) -> LinearFunctionalTask:
    return LAG_KERNEL(LAG_KERNEL.Config(**fields))


@pytest.mark.parametrize("tail", [None, 0.5, 1.2, 4.0])
@pytest.mark.parametrize("dispersion", [0.1, 3.0, 50.0])
@pytest.mark.parametrize(("support", "peakiness"), [(0.0, 4.0), (5.0, 0.0), (5.0, 1.0), (5.0, 8.0), (30.0, 3.0)])
def test_its_sums_are_known(support: float, peakiness: float, tail: float | None, dispersion: float) -> None:
    """The fall is a geometric series or a difference of Hurwitz zeta functions; the rise an integral in fine steps."""
    dt, horizon = 0.01, 20_000
    rho = made(support=support, peakiness=peakiness, tail=tail, dispersion=dispersion, dt=dt, horizon=horizon).kernel()
    peak = round(support / dt)
    assert rho.max().item() == rho[peak].item() == 1.0
    assert rho[0].item() == pytest.approx(math.exp(-(peakiness**2) / 2.0) if support else 1.0)
    terms, scale = horizon - peak, dispersion / dt
    if tail is None:
        fall = (1.0 - math.exp(-terms / scale)) / (1.0 - math.exp(-1.0 / scale))
    else:
        whole = tail * scale
        fall = (
            whole**tail * (zeta(tail, whole) - zeta(tail, whole + terms))
            if tail > 1.0
            else sum((1.0 + lag / whole) ** -tail for lag in range(terms))
        )
    assert rho[peak:].sum().item() == pytest.approx(fall, rel=1e-9)
    if peakiness and support:
        rise = support / peakiness * math.sqrt(math.pi / 2.0) * erf(peakiness / math.sqrt(2.0))
        assert rho[:peak].sum().item() * dt == pytest.approx(rise, abs=dt)


@pytest.mark.parametrize("tail", [0.5, 1.2, 3.0])
def test_the_tail_has_its_exponent_and_its_first_slope(tail: float) -> None:
    rho = made(support=8.0, tail=tail, dispersion=2.0, horizon=1_000_000).kernel().numpy()
    late = np.array([250_000, 500_000]) + 8
    slope = np.diff(np.log(rho[late]))[0] / math.log(2.0)
    assert slope == pytest.approx(-tail, abs=1e-3)
    near = made(support=8.0, tail=tail, dispersion=2.0, dt=1e-4, horizon=80_002).kernel()
    assert ((near[80_001] - near[80_000]) / 1e-4).item() == pytest.approx(-0.5, rel=1e-3)


def test_without_support_these_are_the_kernels_of_a_linear_functional() -> None:
    exponential = FUNCTIONAL(FUNCTIONAL.Config(kernel="exponential", rate=0.25)).kernel()
    torch.testing.assert_close(made(support=0.0, dispersion=4.0).kernel(), exponential, rtol=1e-14, atol=0.0)
    polynomial = FUNCTIONAL(FUNCTIONAL.Config(kernel="polynomial", rate=0.1, exponent=1.1)).kernel()
    found = made(support=0.0, tail=1.1, dispersion=1.0 / (0.1 * 1.1)).kernel()
    torch.testing.assert_close(found, polynomial, rtol=1e-14, atol=0.0)
    torch.testing.assert_close(made(support=3.0, tail=1e7).kernel(), made(support=3.0).kernel(), rtol=1e-4, atol=0.0)


def test_a_sharp_peak_is_a_delay() -> None:
    task = made(support=12.0, peakiness=100.0, dispersion=0.02, horizon=50)
    batch = task.draw(Stream(0, TRAIN), 0, 4)
    torch.testing.assert_close(batch.targets[:, 12:], batch.inputs[:, :-12], rtol=0.0, atol=1e-12)


def test_the_present_input_has_its_share_of_the_loss() -> None:
    task = made(support=2.0, peakiness=1.0, horizon=30)
    batch = task.draw(Stream(0, TRAIN), 0, 40_000)
    answers = math.exp(-0.5) * batch.inputs
    assert task.loss(answers.unsqueeze(0), batch).item() == pytest.approx(task.memoryless_loss(), rel=0.02)
    assert task.memoryless_loss() < task.chance()


def test_a_peak_behind_the_horizon_is_refused() -> None:
    (sentence,) = LAG_KERNEL.Config(support=12.0, horizon=24, dt=0.5).problems()
    assert "support is 12" in sentence
    assert "is 11.5" in sentence
