"""A trial in a pack has the measurements that it has alone, in every table, whatever else is in the pack.

The everyday suite takes two trials of one model; `make test-all` all models and units. A new model, unit, measurement
or table comes under these tests without an edit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from packing import against_each_alone, measured_in_every_way, mixed_pack

from engine import task_config, trial, usual_model, usual_unit
from memsweep import registry
from memsweep.config.schema.trial import RadiiConfig, TrialConfig
from memsweep.sweep.planning.fingerprint import code_closure
from memsweep.sweep.store.tables import names as table_names
from memsweep.trial import program, run_pack

SMALL = {"width": 3, "features": 4, "layers": 1, "state_size": 4}


def small(model: Any, task: Any = None, **training: Any) -> TrialConfig:
    """A trial of few steps in which everything is measured with little effort."""
    usual = {"steps": 4, "batch_size": 4, "validation_size": 4, "validate_every": 2}
    effort = {"method": "random", "repeats": 2, "starts": 0, "ascent_steps": 1, "stronger_every": 2}
    config = trial(
        training=usual | training,
        perturbation=effort | {"bits": (2, 8), "test_size": 8, "radii": RadiiConfig(from_=0.1, to=1.0, count=2)},
    )
    return dataclasses.replace(config, model=model, task=task or task_config(horizon=8))


def config_of(kind: str, name: str, **more: Any) -> Any:
    """The Config of a part, made small."""
    known = registry.get(kind, name).Config.__dataclass_fields__
    sizes = {field: value for field, value in SMALL.items() if field in known}
    if kind == registry.MODEL:
        return usual_model(name, **sizes | more)
    return usual_unit(name, **more) if kind == registry.UNIT else registry.get(kind, name).Config(**more)


def variants(config: Any) -> Iterator[Any]:
    """The config, and with each other value of each of its choices, if that goes with the rest."""
    yield config
    for name, field in type(config).__dataclass_fields__.items():
        values = field.metadata.get("choices") or ((True, False) if isinstance(getattr(config, name), bool) else ())
        for value in values:
            made = dataclasses.replace(config, **{name: value})
            if made != config and not [*getattr(made, "problems", lambda: ())()]:
                yield made


def packs(model: Any) -> bool:
    return bool(registry.get(registry.MODEL, model.name).traits(model).pack_fields)


MODELS = [config_of(registry.MODEL, name) for name in registry.names(registry.MODEL)]
UNITS = [
    config_of(registry.MODEL, "residual_stack", unit=config_of(registry.UNIT, name))
    for name in registry.names(registry.UNIT)
]
PACKED = [config for model in MODELS for config in variants(model) if packs(config)]
UNPACKED = [config for config in (*MODELS, *UNITS) if not packs(config)]
ACTIVATIONS = [config for config in PACKED if config in MODELS or getattr(config, "activation", "") == "tanh"]
REST = [config for config in PACKED if config not in ACTIVATIONS]


def named(config: Any) -> str:
    usual = config_of(registry.MODEL, config.name)
    changed = [
        getattr(config, name)
        for name in type(config).__dataclass_fields__
        if getattr(config, name) != getattr(usual, name)
    ]
    return "-".join([config.name, *(str(getattr(value, "name", value)) for value in changed)])


def test_a_trial_has_the_same_tables_beside_another_parameterization() -> None:
    pack = mixed_pack(measured_in_every_way(small(config_of(registry.MODEL, "diagonal_rnn"))), 2)
    together, found = against_each_alone(pack, [1])
    assert not found
    filled = {name for name, table in together[1].tables.items() if len(table)}
    assert {"singular_values", "memory_over_inputs", "worst_inputs", "sharpness", "curves"} <= filled
    assert "not_measured" not in together[1].summary


@pytest.mark.more
@pytest.mark.parametrize("model", ACTIVATIONS, ids=named)
def test_every_trial_of_a_pack_that_mixes_all_it_may_has_the_tables_of_the_trial_alone(model: Any) -> None:
    together, found = against_each_alone(mixed_pack(measured_in_every_way(small(model))))
    assert not found
    assert not [result.summary["not_measured"] for result in together if "not_measured" in result.summary]


@pytest.mark.more
@pytest.mark.parametrize("model", REST, ids=named)
def test_a_pack_of_any_setting_has_the_tables_of_each_trial_alone(model: Any) -> None:
    together, found = against_each_alone(mixed_pack(measured_in_every_way(small(model)), 3))
    assert not found
    assert not [result.summary["not_measured"] for result in together if "not_measured" in result.summary]


@pytest.mark.more
@pytest.mark.parametrize(
    "effort",
    [{"method": "worst_case"}, {"method": "random_push"}, {"norm": "entrywise", "balance": False}, {"projected": True}],
    ids=str,
)
def test_no_way_to_measure_depends_on_the_pack(effort: dict[str, Any]) -> None:
    config = measured_in_every_way(small(config_of(registry.MODEL, "diagonal_rnn")))
    config = dataclasses.replace(config, perturbation=dataclasses.replace(config.perturbation, **effort))
    relu = registry.get(registry.PARAMETERIZATION, "relu").Config()
    pack = mixed_pack(config, 3)
    pack[1] = dataclasses.replace(pack[1], model=dataclasses.replace(pack[1].model, parameterization=relu))
    assert not against_each_alone(pack)[1]


@pytest.mark.more
@pytest.mark.parametrize(
    "task",
    [name for name in registry.names(registry.TASK) if registry.get(registry.TASK, name).pack_fields],
)
def test_a_pack_of_several_memories_has_the_tables_of_each_trial_alone(task: str) -> None:
    model = config_of(registry.MODEL, "diagonal_rnn")
    pack = mixed_pack(measured_in_every_way(small(model, config_of(registry.TASK, task, horizon=16))))
    assert not against_each_alone(pack)[1]


@pytest.mark.parametrize("model", UNPACKED, ids=named)
def test_any_other_trial_stays_out_of_the_pack(model: Any) -> None:
    """Of a model without pack fields no pack is ever mixed: each difference makes another program."""
    config = small(model)
    others = [{"seeds": 3}, {"first_seed": 5}, {"learning_rate": 0.5}]
    trainings = [dataclasses.replace(config.training, **other) for other in others]
    relatives = [dataclasses.replace(config, training=training) for training in trainings]
    relatives += [dataclasses.replace(config, model=each) for each in variants(model) if each != model]
    relatives.append(dataclasses.replace(config, task=task_config(horizon=8, kernel="sine")))
    assert program(config) not in {program(each) for each in relatives}


@pytest.mark.more
def test_no_table_is_empty_in_all_of_these_tests() -> None:
    """A new table must be filled by a measurement that these trials switch on."""
    filled: set[str] = set()
    unit = config_of(registry.UNIT, "rnn")
    deep = small(config_of(registry.MODEL, "residual_stack", unit=unit), rule="online_spatial", alignment_every=2)
    task = config_of(registry.TASK, "memory_capacity", horizon=12, delays=4)
    for config in (
        small(config_of(registry.MODEL, "diagonal_rnn")),
        small(config_of(registry.MODEL, "lru"), task),
        deep,
    ):
        tables = run_pack([measured_in_every_way(config)])[0].tables
        filled |= {name for name, table in tables.items() if len(table)}
    assert filled == set(table_names())


def test_a_model_that_is_called_for_one_replica_of_a_pack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = trial()
    model = registry.get(registry.MODEL, config.model.name)
    assert not [*model.problems(config)]
    monkeypatch.setattr(model, "jacobians", lambda self, weights, inputs: None)
    (problem,) = model.problems(config)
    assert "diagonal_rnn" in problem
    assert "jacobians" in problem
    assert "pack_fields" in problem


@pytest.mark.parametrize(("name", "other"), [("diagonal_rnn", "residual_stack"), ("ssm", "vanilla_rnn")])
def test_the_model_of_one_replica_counts_in_the_identity_of_trials_whose_tables_it_gives(name: str, other: str) -> None:
    """Not in that of trials without these tables, of models that share no pack, and of trainings."""
    counted = ("memsweep.config.schema.trial", "mixes_models")

    def counts(model: str, *tables: str, training: bool = False) -> bool:
        config = small(config_of(registry.MODEL, model))
        asked = tuple(registry.get(registry.MEASURE, table).Config() for table in sorted(tables))
        config = dataclasses.replace(
            config, perturbation=dataclasses.replace(config.perturbation, asked_measures=asked)
        )
        return counted in code_closure(config, training=training)

    assert counts(name, "capacity")
    assert counts(name, "memory_over_inputs")
    assert counts(name, "worst_inputs")
    assert counts(name, "worst_inputs", "capacity")
    assert not counts(name)
    assert not counts(name, "capacity", training=True)
    assert not counts(other, "capacity", "memory_over_inputs", "worst_inputs")
