"""Units from outside of memsweep, each with one mistake: a study of them is refused before anything starts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.load.study import load_study
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.models import registered
from memsweep.models.base import Model
from memsweep.models.deep.contract import stack
from memsweep.models.deep.unit import is_deep, kinds_of
from memsweep.models.deep.unit_gru import GRUUnit
from memsweep.models.deep.unit_lru import LRUUnit
from paths import ROOT

STUDY = """task: {name: linear_functional, kernel: exponential, horizon: 6}
model: {name: residual_stack, unit: odd, width: 4, features: 4}
training: {seeds: 1, steps: 2, rule: RULE}
perturbation: {MEASUREDballs: [recurrent], test_size: 8}
"""

registry.discover()
MODELS = [{"name": name} for name in registry.names(registry.MODEL) if name != "module"]
UNITS = [name for name in registry.names(registry.UNIT) if name != "module"]


def told(folder: Path, unit: type, rule: str = "bptt", measured: str = "") -> list[str]:
    """The problems of a study of a unit of others."""

    @dataclass(frozen=True, kw_only=True)
    class Config(unit.Config):
        """As of its base."""

    other = type("Odd", (unit,), {"Config": Config, "__module__": __name__})
    (folder / "study.yaml").write_text(STUDY.replace("RULE", rule).replace("MEASURED", measured))
    with registry.lent(registry.UNIT, "odd", other):
        try:
            load_study(str(folder / "study.yaml"), (), ROOT)
        except ConfigError as error:
            return error.problems
    return []


class Future(GRUUnit):
    def run(self, weights: Any, x: Any) -> Any:
        return super().run(weights, x.flip(2))


class Mixing(GRUUnit):
    def run(self, weights: Any, x: Any) -> Any:
        return super().run(weights, x - x.mean(1, keepdim=True))


class Random(GRUUnit):
    def run(self, weights: Any, x: Any) -> Any:
        return super().run(weights, x) + torch.randn(1, dtype=x.dtype)


class Keeping(GRUUnit):
    last = 0.0

    def run(self, weights: Any, x: Any) -> Any:
        answers = super().run(weights, x) + type(self).last
        type(self).last = float(answers.detach().mean())
        return answers


class Detached(GRUUnit):
    def run(self, weights: Any, x: Any) -> Any:
        return super().run({name: weight.detach() for name, weight in weights.items()}, x)


class Wide(GRUUnit):
    def run(self, weights: Any, x: Any) -> Any:
        return super().run(weights, x).repeat(1, 1, 1, 2)


class Infinite(GRUUnit):
    def run(self, weights: Any, x: Any) -> Any:
        return super().run(weights, x) / 0.0


class Raising(GRUUnit):
    def run(self, weights: Any, x: Any) -> Any:
        raise KeyError("oops")


class NotFinite(GRUUnit):
    def initial(self, horizon: int, rng: Any) -> Any:
        return {name: value * np.nan for name, value in super().initial(horizon, rng).items()}


class Further(GRUUnit):
    def initial(self, horizon: int, rng: Any) -> Any:
        return {**super().initial(horizon, rng), "further": np.zeros(3)}


class Short(GRUUnit):
    def initial(self, horizon: int, rng: Any) -> Any:
        return {name: value[:2] for name, value in super().initial(horizon, rng).items()}


class Flat(GRUUnit):
    def initial(self, horizon: int, rng: Any) -> Any:
        return {name: value.ravel() for name, value in super().initial(horizon, rng).items()}


MISTAKES = {
    Future: "is not causal",
    Mixing: "depend on the rest of the batch",
    Random: "gives other outputs for the same inputs in evaluation",
    Keeping: "gives other outputs for the same inputs in evaluation",
    Detached: "no gradient reaches",
    Wide: r"answers \[2, 3, 6, 8\] of float64 to inputs \[2, 3, 6, 4\]",
    Infinite: "gives outputs that are not finite",
    Raising: r"failed on inputs .*KeyError \(test_units_of_others.py, line \d+\): 'oops'",
    NotFinite: "draws initial weights that are not finite",
    Further: "has weights further_l0 without a role",
    Short: "but width is 4",
    Flat: "they must be as many",
}


def refuse(found: list[str], words: str) -> None:
    assert found
    assert re.search(words, found[0])
    assert all(text.startswith("model: the unit odd ") for text in found)


@pytest.mark.parametrize("unit", MISTAKES)
def test_a_mistake_is_refused_by_the_name_of_the_unit(tmp_path: Path, unit: type) -> None:
    refuse(told(tmp_path, unit), MISTAKES[unit])


class Slope(LRUUnit):
    def slope(self, parts: Any, x: Any, before: Any) -> Any:
        return super().slope(parts, x, before) * 3


class Immediate(LRUUnit):
    def immediate(self, parts: Any, x: Any, before: Any) -> Any:
        return {name: value * 3 for name, value in super().immediate(parts, x, before).items()}


class Missing(LRUUnit):
    def immediate(self, parts: Any, x: Any, before: Any) -> Any:
        return dict([*super().immediate(parts, x, before).items()][:1])


class Advance(LRUUnit):
    def advance(self, parts: Any, x: Any, before: Any, recurrent: bool = True) -> Any:
        return super().advance(parts, x, before, recurrent) * 0.5


DERIVATIVES = {
    Slope: "has a slope that is not the diagonal",
    Immediate: "has an immediate that is not the derivative",
    Missing: "they must be the same",
    Advance: "answers otherwise step by step",
}


@pytest.mark.parametrize("unit", DERIVATIVES)
def test_steps_and_derivatives_are_held_where_a_rule_reads_them(tmp_path: Path, unit: type) -> None:
    assert not told(tmp_path, unit)
    refuse(told(tmp_path, unit, "online_full"), DERIVATIVES[unit])


def test_steps_are_held_where_states_are_rounded(tmp_path: Path) -> None:
    measured = "roundings: [fixed_states], bits: [4, 8], "
    assert not told(tmp_path, LRUUnit, measured=measured)
    (problem,) = told(tmp_path, Advance, measured=measured)
    assert "answers otherwise step by step" in problem


@pytest.mark.parametrize("rule", ["bptt", "online_full"])
def test_a_unit_without_a_mistake_is_not_refused(tmp_path: Path, rule: str) -> None:
    assert not told(tmp_path, LRUUnit, rule)


@pytest.mark.parametrize("model", [*MODELS, *({"name": "residual_stack", "unit": unit} for unit in UNITS)], ids=str)
def test_every_part_of_memsweep_would_be_let_through(monkeypatch: pytest.MonkeyPatch, model: dict[str, Any]) -> None:
    """The checks hold of all models and units that come with memsweep: they can be asked of those of others."""
    for module in (registered, stack):
        monkeypatch.setattr(module, "is_own", lambda part: False)
    task = {"name": "linear_functional", "kernel": "exponential", "horizon": 6}
    still = {"recurrent": {"factor": 0, "weight_decay": 0}, "input": {"factor": 0, "weight_decay": 0}}
    training = {"groups": still} if model.get("unit") == "echo_state" else {}
    data = {"task": task, "model": model, "training": training, "perturbation": {"balls": []}}
    trial: TrialConfig = config_from(TrialConfig, data, "a test")
    part: type[Model] = registry.get(registry.MODEL, trial.model.name)
    assert not list(part.problems_of_code(trial))
    for each in kinds_of(trial.model) if is_deep(trial.model) else ():
        kind = registry.get(registry.UNIT, each.name)
        assert not stack._of_unit(kind, each, True)
