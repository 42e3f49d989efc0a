"""Models and units from outside of memsweep: their initial weights follow from the generator that is given."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError
from memsweep.models.deep.unit_gru import GRUUnit
from memsweep.models.modal.diagonal_rnn import DiagonalRNN
from paths import ROOT

STUDY = "task: {name: linear_functional, kernel: exponential, horizon: 6}\n"
ELSEWHERE = {
    "numpy's global generator": lambda shape: np.random.uniform(size=shape),
    "a generator without a seed": lambda shape: np.random.default_rng().uniform(size=shape),
    "torch's global generator": lambda shape: torch.rand(shape).numpy(),
    "Python's global generator": lambda shape: np.full(shape, random.random()),
    "none": np.ones,
}


def refused(folder: Path, drawn: str, told: str, model: str) -> None:
    """Loads a study of a part that draws so; its refusal names the model, and global generators are as before."""
    (folder / "study.yaml").write_text(f"{STUDY}model: {model}\n")
    study = str(folder / "study.yaml")
    states = torch.get_rng_state(), random.getstate()
    numpy_state = np.random.get_state()[1].copy()
    if drawn == "none":
        load_study(study, (), ROOT)
    else:
        with pytest.raises(ConfigError, match=told):
            load_study(study, (), ROOT)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == numpy_state).all()


@pytest.mark.parametrize("drawn", ELSEWHERE)
def test_a_model_that_draws_elsewhere_is_refused(tmp_path, drawn: str) -> None:
    class Restless(DiagonalRNN):
        @dataclass(frozen=True, kw_only=True)
        class Config(DiagonalRNN.Config):
            """As of its base."""

        @classmethod
        def initial(cls, config, signature, rng):
            initial = super().initial(config, signature, rng)
            name = next(iter(initial))
            return {**initial, name: initial[name] * ELSEWHERE[drawn](initial[name].shape)}

    with registry.lent(registry.MODEL, "restless", Restless):
        refused(tmp_path, drawn, "the model restless begins with other weights each time", "{name: restless, width: 2}")


@pytest.mark.parametrize("drawn", ELSEWHERE)
def test_a_unit_that_draws_elsewhere_is_refused(tmp_path, drawn: str) -> None:
    class Restless(GRUUnit):
        @dataclass(frozen=True, kw_only=True)
        class Config(GRUUnit.Config):
            """As of its base."""

        def initial(self, horizon, rng):
            initial = super().initial(horizon, rng)
            name = next(iter(initial))
            return {**initial, name: initial[name] * ELSEWHERE[drawn](initial[name].shape)}

    with registry.lent(registry.UNIT, "restless", Restless):
        told = "the unit restless begins with other weights"
        refused(tmp_path, drawn, told, "{name: residual_stack, unit: restless}")
