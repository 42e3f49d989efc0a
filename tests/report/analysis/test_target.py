"""The memory function that the trials of a condition share, or that they do not."""

from __future__ import annotations

import numpy as np
import pandas as pd

from memsweep.report.analysis.contents import target_of


def memory(rates: dict[int, float]) -> pd.DataFrame:
    """The table of one trial for each horizon, with an exponential memory of a rate."""
    parts = [
        pd.DataFrame({"identity": f"{horizon:032x}", "seed": seed, "lag": range(horizon)}).assign(
            target=np.exp(-rate * np.arange(horizon))
        )
        for horizon, rate in rates.items()
        for seed in range(2)
    ]
    return pd.concat(parts, ignore_index=True)


def test_one_memory_is_cut_at_each_horizon() -> None:
    found = target_of(memory({8: 0.5, 32: 0.5, 16: 0.5}))
    assert found is not None
    np.testing.assert_allclose(found, np.exp(-0.5 * np.arange(32)))


def test_a_rate_that_changes_with_the_horizon_is_several_memories() -> None:
    assert target_of(memory({8: 0.5, 16: 0.25})) is None


def test_trials_without_a_memory_have_none() -> None:
    found = target_of(memory({8: 0.5}).iloc[:0])
    assert found is not None
    assert not len(found)
