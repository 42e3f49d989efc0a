"""The time scale of a memory, from its values at lags."""

import math

import numpy as np
import pytest

from memsweep.config.grid import time_scale as module
from memsweep.config.grid.time_scale import USABLE_SCALES, time_scale
from memsweep.data.functionals import KERNELS


@pytest.mark.parametrize(
    ("memory", "scale"),
    [
        (np.exp(-0.1 * np.arange(100)), 10.0),
        (np.exp(-np.arange(100.0)), 1.0),
        (np.exp(-0.5 * np.arange(300)) + 0.2 * np.exp(-0.03 * np.arange(300)), 29.4),  # the slow part counts
        ((1 + 0.1 * np.arange(400)) ** -1.1, 17.0),
        ((1 + 0.1 * np.arange(400)) ** -1.5, 10.2),
        ((1 + np.arange(400)) ** -0.5, math.inf),  # not square-summable
        (np.r_[np.zeros(10), 1.0, np.zeros(20)], 14.4),
        (np.ones(50), math.inf),
        (np.full(5, np.nan), None),
        (np.zeros(5), None),
    ],
)
def test_the_time_scale_of_a_memory(memory, scale):
    assert time_scale(memory) == (scale if scale is None else pytest.approx(scale, abs=0.1))


@pytest.mark.parametrize(
    ("memory", "shortest"),
    [
        (np.sin, 8),
        (lambda t: np.cos(2 * np.pi * t / 50), 50),
        (lambda t: 1 + np.cos(0.2 * t), 50),
        (lambda t: np.sin(t) + np.sin(1.1 * t), 62),  # a whole beat
        (lambda t: np.sin(t) + np.sin(math.sqrt(2) * t), 15),
    ],
)
def test_a_memory_that_swings_and_never_decays_has_no_time_scale(memory, shortest):
    """Wherever the window ends: behind the last peak it falls, and rises again."""
    finite = [steps for steps in range(shortest, 2001, 3) if time_scale(memory(np.arange(steps))) != math.inf]
    assert not finite


@pytest.mark.parametrize("decay", [5, 60, 500])
@pytest.mark.parametrize("speed", [0.05, 0.2, 1.0])
def test_a_swinging_memory_that_decays_has_the_time_scale_of_its_envelope(decay, speed):
    def scale(steps):
        lags = np.arange(steps)
        return time_scale(np.exp(-lags / decay) * np.sin(speed * lags + 0.3))

    swing = math.pi / speed  # from one peak to the next
    least = math.ceil(USABLE_SCALES * (decay + 2 * swing))
    found = {round(scale(steps), 6) for steps in range(least, 4 * least, max(1, decay // 7))}
    assert len(found) == 1, "wherever the window ends"
    assert decay - swing < found.pop() < 1.05 * decay + 2 * swing


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - {"sine"}))
@pytest.mark.parametrize("dt", [0.03, 0.1, 1.0])
def test_kernels_have_the_time_scale_of_all_their_lags(name, dt, monkeypatch):
    kernel = KERNELS[name]
    lags = [dt * np.arange(steps) for steps in (8, 16, 31, 64, 100, 128, 200, 256, 512, 1000, 4096)]
    memories = [kernel.formula(each, **kernel.defaults) for each in lags]
    found = [time_scale(each) for each in memories]
    monkeypatch.setattr(module, "_known", len)
    whole = [time_scale(each) for each in memories]
    for memory, new, old in zip(memories, found, whole, strict=True):
        assert new == old or len(memory) < USABLE_SCALES * old


def test_a_memory_that_rises_and_falls_once_keeps_its_time_scale_however_short_the_window():
    scales = [time_scale(lags * np.exp(-lags / 60)) for lags in map(np.arange, (150, 600))]
    assert scales == pytest.approx([180.0, 180.0])
