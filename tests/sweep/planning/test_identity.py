"""Identity: every field and every file that a task reads counts or is cosmetic, spelling does not."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from flips import Pair, bases, candidates, classes, fields_of, flipped, places
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tasks_listops import write_listops

from arena_files import write_arena
from engine import trial
from image_files import write_cifar, write_mnist
from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.core.fields import setting
from memsweep.config.core.reflect import default, keys, value_of
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.claims import Claims
from memsweep.config.schema.search import ConfirmConfig, Domain, Search, SearchConfig
from memsweep.config.schema.study import DecideConfig, FirstPlan, ResourcesConfig, SweepConfig
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import ChainConfig, PerturbationConfig, TrialConfig
from memsweep.errors import ConfigError, RegistryError
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run
from memsweep.sweep.planning.identity import ON_CPU, Arithmetic, identifying, identity, identity_of
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from memsweep.trial import RunOptions, run_trial
from paths import ROOT
from text_files import write_ptb, write_text

WEIGHTS = (TrainingConfig, "weights")
"""Names a file whose content is in the identity: tests/commands/test_weights.py changes and copies one."""


@pytest.fixture(scope="module")
def data_folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two folders with the same small images and texts."""
    folders = [tmp_path_factory.mktemp(name) for name in ("data", "copy")]
    for name in ("mnist", "fashion_mnist"):
        write_mnist(folders[0] / name)
    write_cifar(folders[0] / "cifar10")
    write_ptb(folders[0] / "ptb")
    write_text(folders[0] / "text.txt")
    write_arena(folders[0])
    write_listops(folders[0] / "listops")
    shutil.copytree(folders[0], folders[1], dirs_exist_ok=True)
    return str(folders[0]), str(folders[1])


@pytest.fixture(scope="module")
def flips(data_folders: tuple[str, str]) -> dict[tuple[type, str], Pair | None]:
    """Every field of every config, with two trials that differ in it alone."""
    found: dict[tuple[type, str], Pair | None] = {}
    one, copy = data_folders
    tried = bases(one)
    for in_company, base in itertools.product((False, True), tried):
        for path, owner, field in places(base):
            name = (type(owner), field.name)
            if found.get(name) is None:
                texts = (copy, f"{copy}/text.txt")
                found[name] = flipped(base, path, owner, field, texts, in_company)
    return found


def field_named(name: tuple[type, str]) -> dataclasses.Field[Any]:
    return next(field for field in keys(name[0]).values() if field.name == name[1])


@pytest.mark.more
def test_every_field_of_every_config_moves_the_identity_or_is_declared_cosmetic(flips: dict) -> None:
    assert flips.keys() == fields_of(classes()), (
        "a field that no base trial has: add a trial to tests/sweep/planning/flips.py"
    )
    for name, pair in flips.items():
        field, label = field_named(name), f"{name[0].__module__}.{name[0].__qualname__}.{name[1]}"
        if pair is None:
            assert len(field.metadata.get("choices") or ()) == 1, f"{label}: no second allowed value was found"
            continue
        if name == WEIGHTS:
            continue
        moved = identity(pair[0]) != identity(pair[1])
        assert moved is not bool(field.metadata.get("cosmetic")), label
    assert len(flips) > 130


@pytest.mark.more
def test_a_cosmetic_field_changes_no_bit(flips: dict, tmp_path: Path) -> None:
    cosmetic = [name for name in flips if field_named(name).metadata.get("cosmetic") and name != WEIGHTS]
    assert {name[1] for name in cosmetic} >= {"checkpoint_every", "folder"}
    for name in cosmetic:
        one, two = flips[name]
        if name[1] in ("folder", "file"):  # decides what is read, and no more; there are several, of long sequences
            one, two = map(shortened, (one, two))
        store = Store(tmp_path / name[0].__qualname__ / name[1])
        results = [
            run_trial(config, RunOptions(checkpoint=store.slot(f"slot{n}"))) for n, config in enumerate((one, two))
        ]
        assert store.location.names("checkpoints").keys() == {"slot0.pt", "slot1.pt"}
        assert same_bits(*results), name


def shortened(config: TrialConfig) -> TrialConfig:
    """The trial with four steps of four sequences, short where the task says how long, and no perturbations."""
    training = dataclasses.replace(config.training, steps=4, batch_size=4, validation_size=4, validate_every=2)
    length = {"horizon": 64} if any(field.name == "horizon" for field in dataclasses.fields(config.task)) else {}
    task, perturbation = dataclasses.replace(config.task, **length), PerturbationConfig(balls=(), test_size=4)
    return dataclasses.replace(config, task=task, training=training, perturbation=perturbation)


def asked_otherwise() -> dict[str, ResourcesConfig]:
    """Each field of the resources with another allowed value."""
    plain, found = ResourcesConfig(), {}
    for field in dataclasses.fields(ResourcesConfig):
        for value in candidates(plain, field, ()):
            with contextlib.suppress(ConfigError):
                found.setdefault(field.name, config_from(ResourcesConfig, {field.name: value}, "a flip"))
    written = {"labels": ["zone=a"], "rules": [{"field": "model.width", "above": 1, "cpus": 2}]}
    return found | {name: config_from(ResourcesConfig, {name: value}, "a flip") for name, value in written.items()}


def asked_on_a_processor() -> dict[str, ResourcesConfig]:
    """Those of the flips that change no arithmetic."""
    return {name: resources for name, resources in asked_otherwise().items() if Arithmetic.of(resources) == ON_CPU}


def other_studies(plain: SweepConfig) -> dict[str, SweepConfig]:
    """The study with other resources, with other words, and as a search; its trials are the same."""
    others = {
        name: dataclasses.replace(plain, resources=resources) for name, resources in asked_on_a_processor().items()
    }
    first = FirstPlan(plain.rows, {"model.width": (2,)})
    others["words"] = dataclasses.replace(
        plain,
        grid={"model.width": (3,)},
        description="x",
        protocol="published",
        claims=Claims("a paper", ()),
        keep="none",
        decide=DecideConfig(max_hours=1.0),
        smaller=(first,),
        earlier=(first,),
    )
    domain = Domain("log_uniform", 1e-4, 1e-1)
    search = Search(SearchConfig(), {"training.learning_rate": domain})
    return others | {"search": dataclasses.replace(plain, search=search, confirm=ConfirmConfig())}


@pytest.fixture
def plain() -> SweepConfig:
    return SweepConfig(name="s", rows=(trial(),), grid={}, resources=ResourcesConfig())


def test_every_field_of_a_study_and_of_its_resources_is_tried_otherwise(plain: SweepConfig) -> None:
    """A new field stops here, on every day: is it part of the identity?"""
    on_cards = {"gpus", "gpus_per_worker", "accelerator"}
    assert {field.name for field in dataclasses.fields(ResourcesConfig)} - asked_on_a_processor().keys() == on_cards
    others, names = other_studies(plain).values(), [field.name for field in dataclasses.fields(SweepConfig)]
    changed = {name for name in names for other in others if getattr(other, name) != getattr(plain, name)}
    assert changed == {*names} - {"name", "rows"}


@pytest.mark.more
def test_resources_and_the_words_of_a_study_change_neither_identity_nor_bit(plain: SweepConfig, tmp_path: Path) -> None:
    (row,) = identified(plain)
    tables = []
    for name, sweep in {"plain": plain, **other_studies(plain)}.items():
        study = dataclasses.replace(sweep, name=f"study {name}")
        assert [trial.identity for trial in identified(study)] == [row.identity], name
        made = make_plan(study, identified(study), ())
        assert run(made, workspace=ROOT, results=tmp_path, launch=Launch(inline=True)).done == 1
        tables.append(Store(tmp_path / folder_name(study.name)).tables(row.identity))
    assert all(frame.equals(other[name]) for other in tables for name, frame in tables[0].items())


@pytest.mark.parametrize(
    "asked", [{"gpus": 0.5}, {"workers": 2, "gpus_per_worker": 1.0}, {"workers": 2, "strategy": "data"}], ids=str
)
def test_resources_that_change_last_bits_are_in_the_identity(asked: dict[str, Any]) -> None:
    plain = SweepConfig(name="s", rows=(trial(),), grid={}, resources=ResourcesConfig())
    (row,), (other,) = (identified(s) for s in (plain, dataclasses.replace(plain, resources=ResourcesConfig(**asked))))
    assert row.identity == identity(row.config) != other.identity


def same_bits(one: Any, two: Any) -> bool:
    summaries = pd.Series(one.summary).equals(pd.Series(two.summary))
    return summaries and all(frame.equals(two.tables[name]) for name, frame in one.tables.items())


@pytest.mark.more
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_the_number_of_threads_changes_no_bit(activation: str) -> None:
    config = trial(
        task={"horizon": 200},
        model={"width": 16, "activation": activation},
        training={"seeds": 3, "steps": 4, "batch_size": 256, "validation_size": 256, "validate_every": 2},
        perturbation={"test_size": 256, "balls": ("all",), "starts": 0},
    )
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(run_trial(config))
        finally:
            torch.set_num_threads(1)
    assert same_bits(*found)


def shuffled(data: Any, draw: Callable[..., Any]) -> Any:
    """The same plain data in another order of keys, numbers spelt otherwise, and without what is default anyway."""
    if isinstance(data, dict):
        names = draw(st.permutations(sorted(data)))
        return {name: shuffled(data[name], draw) for name in names}
    if isinstance(data, list):
        return [shuffled(item, draw) for item in data]
    if isinstance(data, float) and data.is_integer() and draw(st.booleans()):
        return int(data)
    return data


def without_defaults(data: dict[str, Any], config: Any) -> dict[str, Any]:
    kept = {"name": data["name"]} if "name" in data else {}
    for key, field in keys(type(config)).items():
        value = value_of(config, field)
        if key not in data or value == default(field):
            continue
        kept[key] = without_defaults(data[key], value) if dataclasses.is_dataclass(value) else data[key]
    return kept


@pytest.mark.more
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_spelling_is_no_part_of_an_identity(data_folders: tuple[str, str], data: st.DataObject) -> None:
    config = data.draw(st.sampled_from([config for config in bases(data_folders[0]) if not any(config.problems())]))
    plain = to_dict(config)
    short = without_defaults(plain, config)
    for spelt in (plain, short):
        other = json.loads(json.dumps(shuffled(spelt, data.draw)))
        assert identity(trial_from_dict(other)) == identity(config)


def test_whole_numbers_in_python_are_the_numbers_of_a_study() -> None:
    one, two = (trial(training={"learning_rate": rate, "clip": clip}) for rate, clip in ((1, 2), (1.0, 2.0)))
    assert identity(one) == identity(two)
    assert identity(trial(training={"merge_redundant": True})) != identity(trial(training={"merge_redundant": 1}))
    chains = [ChainConfig(along="task.rate", first=1.0, earlier=(value,)) for value in (1, 1.0)]
    assert len({identity(dataclasses.replace(trial(), chain=chain)) for chain in chains}) == 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = setting(1, "counts")
    colour: str = setting("red", "shown only", cosmetic=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Other:
    size: int = setting(1, "counts")
    colour: str = setting("red", "shown only", cosmetic=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    parts: tuple[Inner | Other, ...] = setting((), "in a tuple")
    by_name: Any = setting(None, "in a mapping")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wider(Outer):
    more: int = setting(0, "of the subclass")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Twice:
    from_: int = 1
    from__: int = 2


def test_nothing_slips_out_of_nested_configs() -> None:
    plain = Outer(parts=(Inner(), Inner()), by_name={"x": [Inner()]})
    same = Outer(parts=(Inner(colour="blue"), Inner()), by_name={"x": (Inner(colour="green"),)})
    assert identifying(plain) == identifying(same)
    for other in (
        Outer(parts=(Inner(), Inner(size=2)), by_name=plain.by_name),
        Outer(parts=plain.parts, by_name={"x": [Inner(size=2)]}),
        Outer(parts=plain.parts, by_name={"y": [Inner()]}),
        Outer(parts=(Inner(), Other()), by_name=plain.by_name),  # another class with the same fields
        Wider(parts=plain.parts, by_name=plain.by_name),
    ):
        assert identifying(other) != identifying(plain)
    assert identifying(Wider(more=1)) != identifying(Wider(more=2))
    with pytest.raises(RegistryError, match=r"Twice have one key"):
        identifying(Twice())


def test_the_files_that_a_task_reads_are_part_of_the_identity(
    data_folders: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they lie does not count, and what they hold does: two data sets under one name share nothing."""
    task = registry.get("task", "images")
    write_mnist(tmp_path / "mnist", train=120)
    found = [
        identity(TrialConfig(task=task.Config(folder=str(folder)), model=trial().model))
        for folder in (*data_folders, tmp_path)
    ]
    assert found[0] == found[1] != found[2]
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(b"other")
    changed = TrialConfig(task=task.Config(folder=str(tmp_path)), model=trial().model)
    assert identity(changed) != found[2]
    assert identity_of(trial())["data"] == ""
