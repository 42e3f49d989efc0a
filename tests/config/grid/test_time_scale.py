"""The time scale of a memory, from its values at lags."""

import math

import numpy as np
import pytest

from memsweep.config.grid.time_scale import time_scale


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
