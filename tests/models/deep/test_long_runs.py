"""Units over 10,000 steps in float32: a state that grows or loses its digits shows there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import usual_unit
from memsweep import registry
from memsweep.models.deep.unit import Unit

registry.discover()

WIDTH, STEPS, EVERY = 4, 10_000, 500
UNITS = [name for name in registry.names(registry.UNIT) if name not in ("attention", "rnn")]
"""All but softmax attention, whose state grows with every step, and the linear RNN, which may start unstable."""


@pytest.mark.more
@pytest.mark.parametrize("name", UNITS)
def test_states_stay_finite_and_answers_those_of_float64(name: str) -> None:
    kind: type[Unit] = registry.get(registry.UNIT, name)
    unit, rng = kind(usual_unit(name), WIDTH, WIDTH), np.random.default_rng(0)
    drawn = {key: torch.from_numpy(value).unsqueeze(0) for key, value in unit.initial(STEPS, rng).items()}
    if not drawn.get("readout", torch.ones(1)).any():  # a unit that is silent at first
        drawn["readout"] = torch.from_numpy(rng.standard_normal(drawn["readout"].shape))
    x = torch.from_numpy(rng.standard_normal((1, 1, STEPS, WIDTH)))
    exact = unit.run(drawn, x)
    weights = {key: value.float() for key, value in drawn.items()}
    answers = unit.run(weights, x.float())
    assert bool(answers.isfinite().all())
    assert float((answers - exact).abs().max() / exact.abs().max()) < 2e-3
    _, state = unit.step(weights, x[:, :, 0].float(), None)
    for t in range(1, STEPS, EVERY):
        _, state = unit.step(weights, x[:, :, t].float(), state)
    assert all(bool(part.isfinite().all()) for part in state.values())
