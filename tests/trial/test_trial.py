"""A trial: the same numbers alone and in a pack, the calibrated radii, and divergence as a result."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from engine import trial
from memsweep.config.schema.trial import RadiiConfig
from memsweep.outcome import Outcome
from memsweep.stability.verdict.radius import stability_radii
from memsweep.trial import program, run_pack, run_trial


def assert_same(first, second) -> None:
    assert first.outcome == second.outcome
    assert first.summary == second.summary
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, second.tables[name], check_exact=True)


@pytest.mark.parametrize(
    ("horizon", "normalize", "dtype", "patience"),
    [
        (20, True, "float64", 2),
        pytest.param(50, False, "float32", 0, marks=pytest.mark.more),
        pytest.param(20, False, "float64", 0, marks=pytest.mark.more),
        pytest.param(33, False, "float64", 0, marks=pytest.mark.more),
        pytest.param(51, False, "float32", 0, marks=pytest.mark.more),
    ],
)
def test_a_trial_has_the_same_bits_alone_in_a_pack_and_in_any_order(horizon, normalize, dtype, patience):
    common = {"dtype": dtype, "patience": patience}
    trials = [
        trial(
            task={"kernel": kernel, "horizon": horizon},
            model={"parameterization": name, "width": width, "normalize": normalize},
            training={"seeds": seeds, "first_seed": first, "learning_rate": rate} | common,
        )
        for kernel, name, width, seeds, first, rate in (
            ("exponential", "direct", 2, 2, 1, 0.01),
            ("polynomial", "exp", 5, 3, 1, 0.03),
            ("shift", "softplus", 8, 1, 7, 0.01),
            ("polynomial", "exp", 12, 2, 1, 0.01),  # another bucket
        )
    ]
    together = run_pack(trials)
    for config, result in zip(trials, together, strict=True):
        assert_same(run_trial(config), result)
    for result, again in zip(together, reversed(run_pack(trials[::-1])), strict=True):
        assert_same(result, again)


def test_trials_of_different_programs_are_not_packed():
    first, other = trial(), trial(task={"horizon": 25})
    assert program(first) != program(other)
    with pytest.raises(ValueError, match="different programs"):
        run_pack([first, other])
    assert program(first) == program(trial(task={"kernel": "polynomial"}, model={"width": 8}, training={"seeds": 4}))


@pytest.mark.parametrize(
    ("parameterization", "one_percent", "ten_percent"),
    [
        ("direct", 0.0760, 0.2084),
        pytest.param("exp", None, 0.596, marks=pytest.mark.more),
        pytest.param("softplus", None, 0.849, marks=pytest.mark.more),
    ],
)
def test_exponential_memory_has_the_calibrated_radii(parameterization, one_percent, ten_percent):
    """Radii of exact optimal fits of e^-t: the same at every horizon and width."""
    config = trial(
        task={"kernel": "exponential", "horizon": 50},
        model={"parameterization": parameterization, "width": 3},
        training={"steps": 1500, "objective": "population", "seeds": 1, "validate_every": 50},
        perturbation={"radii": RadiiConfig(from_=1e-3, to=3.0, count=40), "balls": ("recurrent",), "ascent_steps": 8},
    )
    radii = stability_radii(run_trial(config).tables["curves"]).set_index("threshold")["radius"]
    assert radii[0.10] == pytest.approx(ten_percent, rel=0.02)
    if one_percent is not None:
        assert radii[0.01] == pytest.approx(one_percent, rel=0.02)


def test_a_diverging_trial_is_a_result():
    config = trial(
        task={"horizon": 400},
        model={"parameterization": "direct", "width": 4},
        training={"learning_rate": 1000.0, "schedule": "constant", "clip": 1e6, "steps": 20, "first_seed": 1},
    )
    result = run_trial(config)
    assert result.outcome is Outcome.DIVERGED
    assert result.summary["diverged_replicas"] == 2
    assert (result.tables["curves"]["error"] == math.inf).all()
    assert result.tables["curves"]["zero_loss"].gt(0).all()


def test_stopped_early_is_said():
    result = run_trial(trial(training={"patience": 1, "steps": 3000, "validate_every": 5}, perturbation={"balls": ()}))
    assert result.outcome is Outcome.STOPPED_EARLY
    assert (result.tables["replicas"]["steps"] < 3000).all()
