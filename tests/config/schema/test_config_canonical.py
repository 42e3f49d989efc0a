"""Configs survive the way through plain data, and flatten to the names that params and tables use."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_study import scaled_parameterization
from memsweep import registry
from memsweep.config.core.reflect import hints
from memsweep.config.schema.canonical import flatten, to_dict, trial_from_dict
from memsweep.config.schema.training import TrainingConfig, Turn
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.errors import ConfigError
from paths import ROOT

registry.discover(ROOT)
TASK = registry.get(registry.TASK, "linear_functional")
MODEL = registry.get(registry.MODEL, "diagonal_rnn")
KERNELS = {"exponential": ("rate",), "polynomial": ("rate", "exponent"), "two_parts": (), "sine": ()}


def _scalars(cls: type) -> st.SearchStrategy[dict[str, Any]]:
    """Random values for the plain fields of a config class, within their limits."""
    drawn: dict[str, st.SearchStrategy[Any]] = {}
    for field in dataclasses.fields(cls):
        hint, limits = hints(cls)[field.name], field.metadata
        low = limits["at_least"] if limits["at_least"] is not None else limits["above"]
        high = limits["at_most"] if limits["at_most"] is not None else limits["below"]
        if hint is str and limits["choices"]:
            drawn[field.name] = st.sampled_from(limits["choices"])
        elif hint is bool:
            drawn[field.name] = st.booleans()
        elif hint is int:
            drawn[field.name] = st.integers(low, high)
        elif hint is float:
            open_low, open_high = limits["above"] is not None, limits["below"] is not None
            drawn[field.name] = st.floats(
                low, high, exclude_min=open_low, exclude_max=open_high, allow_infinity=False, allow_nan=False
            )
    return st.fixed_dictionaries({}, optional=drawn)


@st.composite
def trainings(draw: st.DrawFn) -> TrainingConfig:
    """Trainings that may end early and may have turned before; both at validations, the turns in order."""
    every, length = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    turned = sorted(draw(st.sets(st.integers(1, length - 1)))) if length > 1 else []
    turns = tuple(Turn(until=every * at, **draw(_required(Turn))) for at in turned)
    early = draw(st.booleans())
    steps = {"until": every * length if early else 0, "steps": every * (length + early), "validate_every": every}
    steps["warmup"] = draw(st.integers(0, steps["steps"] - 1))
    scalars = draw(_scalars(TrainingConfig))
    unused = ("beta1", "beta2") if scalars.get("optimizer") == "rmsprop" else ("alpha",)  # by the optimizer: refused
    kept = {name: value for name, value in scalars.items() if name not in unused}
    return TrainingConfig(**{**kept, **steps, "turns": turns})


def _required(cls: type) -> st.SearchStrategy[dict[str, float]]:
    names = [field.name for field in dataclasses.fields(cls) if hints(cls)[field.name] is float]
    return st.fixed_dictionaries({name: st.floats(1e-9, 1e4) for name in names})


@st.composite
def trials(draw: st.DrawFn) -> TrialConfig:
    task, model_class = registry.get(registry.TASK, "linear_functional"), registry.get(registry.MODEL, "diagonal_rnn")
    kernel = draw(st.sampled_from(sorted(KERNELS)))
    given_fields = {"rate": st.floats(1e-6, 1e6), "exponent": st.floats(1e-6, 10.0)}
    parameters = draw(st.fixed_dictionaries({}, optional={name: given_fields[name] for name in KERNELS[kernel]}))
    part = registry.get(
        registry.PARAMETERIZATION, draw(st.sampled_from(["direct", "exp", "softplus", "scaled"]))
    ).Config
    radii = sorted(draw(st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=2, unique=True)))
    balls = draw(st.permutations(["recurrent", "all"]))[: draw(st.integers(1, 2))]
    model = draw(_scalars(model_class.Config)) | {"parameterization": part(**draw(_scalars(part)))}
    # some values of other sections ask for a closed form, or for a map of rates
    model |= {"activation": "linear", "discretization": draw(st.sampled_from(["exact", "euler"]))}
    model |= {"normalization": "state"} if not model.get("normalize") else {}
    errors = draw(_scalars(PerturbationConfig))
    # a reading is of the target, and a metric of the reference of that name
    errors |= {"reading": "drift"} if errors.get("reference", "target") != "target" else {}
    return TrialConfig(
        task=task.Config(**{**draw(_scalars(task.Config)), "kernel": kernel, **parameters}),
        model=model_class.Config(**model),
        training=draw(trainings()),
        perturbation=PerturbationConfig(
            **{
                **errors,
                "balls": tuple(balls),
                "radii": RadiiConfig(from_=radii[0], to=radii[1], count=draw(st.integers(2, 99))),
            }
        ),
    )


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_trial_survives_the_way_through_json(data: st.DataObject) -> None:
    with scaled_parameterization():
        trial = data.draw(trials())
        plain = json.loads(json.dumps(to_dict(trial), allow_nan=False))
        again = trial_from_dict(plain)
        assert again == trial
        assert hash(again) == hash(trial)
        assert json.dumps(to_dict(again)) == json.dumps(to_dict(trial))


def test_the_form_is_pinned() -> None:
    trial = TrialConfig(task=TASK.Config(kernel="polynomial"), model=MODEL.Config())
    plain = to_dict(trial)
    assert list(plain) == ["task", "model", "training", "perturbation"]
    assert next(iter(plain["task"].items())) == ("name", "linear_functional")
    assert plain["task"]["rate"] == 0.1
    assert plain["model"]["parameterization"] == {"name": "exp"}
    assert plain["perturbation"]["radii"] == {"from": 1e-4, "to": 3.0, "count": 30}
    assert plain["perturbation"]["balls"] == ["recurrent", "all"]
    assert to_dict(RadiiConfig()) == {"from": 1e-4, "to": 3.0, "count": 30}


def test_flat_names() -> None:
    trial = TrialConfig(task=TASK.Config(kernel="shift"), model=MODEL.Config())
    flat = flatten(to_dict(trial))
    assert flat["task.name"] == "linear_functional"
    assert flat["task.rate"] is None
    assert flat["model.parameterization"] == "exp"
    assert "model.parameterization.name" not in flat
    assert flat["perturbation.radii.from"] == 1e-4
    assert not any(isinstance(value, dict) for value in flat.values())
    with scaled_parameterization():
        part = registry.get(registry.PARAMETERIZATION, "scaled").Config(scale=2.0)
        flat = flatten(to_dict(dataclasses.replace(trial, model=MODEL.Config(parameterization=part))))
    assert flat["model.parameterization.name"] == "scaled"
    assert flat["model.parameterization.scale"] == 2.0
    assert "model.parameterization" not in flat


def test_a_stored_trial_of_an_unknown_part_is_refused_with_words() -> None:
    with pytest.raises(ConfigError, match="task 'gone' is not registered"):
        trial_from_dict({"task": {"name": "gone"}, "model": {"name": "diagonal_rnn"}})
