"""A trial whose trained weights are stored is measured, with the bits of one that is trained, and trains nothing."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from pathlib import Path
from typing import Any

import pytest

from engine import model_config, section, task_config, trial
from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.chain import ChainConfig
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.report.read.weights import weights
from memsweep.sweep.estimate.estimate import Wave, estimate
from memsweep.sweep.planning.fingerprint import code_closure
from memsweep.sweep.planning.identity import identity, training_of
from memsweep.sweep.planning.plan import PlannedTrial, identified, make_plan
from memsweep.sweep.planning.reuse import TRAINED_BY, stored_training, stored_weights, with_stored_training
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names
from memsweep.sweep.worker.execute import PackJob, execute_pack
from paths import ROOT
from s3_server import S3Server

RADII = RadiiConfig(from_=1e-2, to=1.0, count=3)
FIRST = PerturbationConfig(radii=RADII, balls=("recurrent",), starts=0, ascent_steps=1, test_size=32)
OTHER = dataclasses.replace(FIRST, norm="entrywise", balls=("all", "recurrent"), starts=1, projected=True)


def part(kind: str, name: str, **wanted: object) -> Any:
    config = registry.get(kind, name).Config
    return config(**{field: value for field, value in wanted.items() if field in config.__dataclass_fields__})


def of(model: str, task: str, **training: Any) -> TrialConfig:
    usual = {"seeds": 2, "steps": 12, "batch_size": 8, "validation_size": 8, "validate_every": 4}
    small = {"width": 3, "state_size": 4, "layers": 1, "features": 4}
    return TrialConfig(
        task=part("task", task, horizon=12, delay=12),
        model=part("model", model, **small),
        training=section(TrainingConfig, **usual | training),
        perturbation=FIRST,
    )


def measured_otherwise(config: TrialConfig) -> TrialConfig:
    return dataclasses.replace(config, perturbation=OTHER)


def planned(configs: list[TrialConfig], results: Path | str, reuse: bool = True) -> tuple[PlannedTrial, ...]:
    trials = identified(SweepConfig(name="s", rows=tuple(configs), grid={}, resources=ResourcesConfig()))
    return with_stored_training(trials, (), Location.at(results)) if reuse else trials


def compute(folder: Path | str, trials: tuple[PlannedTrial, ...], **options: Any) -> Store:
    job = PackJob(
        "p",
        "s",
        str(folder),
        str(ROOT),
        tuple((trial.identity, to_dict(trial.config)) for trial in trials),
        trained={trial.identity: trial.trained for trial in trials if trial.trained[0]},
        **options,
    )
    report = execute_pack(job, lambda *_: None)
    assert not report.failed, report.failed
    return Store(folder)


def refuse_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a training step fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a training step was done")

    monkeypatch.setattr("memsweep.learning.loop._step", refuse)


@pytest.mark.parametrize(
    ("model", "task", "training", "outcome"),
    [
        ("diagonal_rnn", "linear_functional", {"sharpness_every": 4, "validate_every": 2}, "done"),
        ("diagonal_rnn", "linear_functional", {"learning_rate": 1e4, "merge_redundant": False}, "diverged"),
        ("vanilla_rnn", "copying_memory", {"dtype": "float32", "stop_below": 100.0}, "stopped_early"),
        pytest.param(
            "residual_stack",
            "copying_bits",
            {"rule": "online_full", "alignment_every": 4, "dtype": "float32"},
            "done",
            marks=pytest.mark.more,
        ),
    ],
)
def test_stored_weights_are_measured_with_the_bits_of_a_sweep(
    model: str, task: str, training: dict[str, Any], outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of(model, task, **training)
    if not hasattr(config.model, "parameterization"):
        other = dataclasses.replace(config, perturbation=dataclasses.replace(OTHER, projected=False))
    else:
        other = measured_otherwise(config)
    compute(tmp_path / "one", planned([config], tmp_path))
    (fresh,) = planned([other], tmp_path, reuse=False)
    compute(tmp_path / "fresh", (fresh,), keep="none")
    refuse_training(monkeypatch)
    (trial,) = planned([other], tmp_path / "none")
    assert trial.trained == ("", "")
    (trial,) = planned([other], tmp_path)
    assert trial.identity == fresh.identity != identity(config)
    again = compute(tmp_path / "again", (trial,), measures=True)
    files = again.record(trial.identity)["files"]
    wanted = Store(tmp_path / "fresh").record(trial.identity)
    assert {name: files.get(name) for name in table_names()} == {
        name: wanted["files"].get(name) for name in table_names()
    }
    assert str(again.record(trial.identity)["summary"]) == str(wanted["summary"])
    assert again.record(trial.identity)["outcome"] == wanted["outcome"] == outcome
    assert bool(len(again.tables(trial.identity)["alignment"])) is (model == "residual_stack")
    assert bool(len(again.tables(trial.identity)["sharpness"])) is ("sharpness_every" in training)


@pytest.mark.more
def test_only_the_trial_that_was_trained_keeps_the_weights(tmp_path: Path) -> None:
    config = of("diagonal_rnn", "linear_functional")
    compute(tmp_path / "one", planned([config], tmp_path))
    trials = planned([measured_otherwise(config)], tmp_path)
    store = compute(tmp_path / "two", trials)
    record = store.record(trials[0].identity)
    assert record["provenance"][TRAINED_BY] == {"folder": "one", "identity": identity(config)}
    assert not (tmp_path / "two" / "weights").exists()
    assert (
        stored_weights(store, record)[0].keys()
        == stored_training(Store(tmp_path / "one"), identity(config))[0].weights.keys()
    )


@pytest.mark.more
@pytest.mark.s3
def test_a_bucket_keeps_weights_and_gives_them_back(s3: S3Server) -> None:
    results, config = f"s3://studies/{uuid.uuid4().hex}", of("diagonal_rnn", "linear_functional")
    store = compute(f"{results}/one", planned([config], results))
    (trial,) = trials = planned([measured_otherwise(config)], results)
    assert trial.trained == (f"{results}/one", identity(config))
    again = compute(f"{results}/two", trials, measures=True)
    kept, found = stored_weights(store, store.record(identity(config))), weights(again.location, [], 1)
    assert all(found.tensors[name].equal(value) for name, value in kept[1].items())
    assert not store.check([identity(config)])
    store.location.delete(f"weights/{identity(config)}.safetensors")
    assert not store.check([identity(config)])
    assert planned([measured_otherwise(config)], results)[0].trained == ("", "")


@pytest.mark.more
def test_damaged_weights_are_trained_again_by_a_sweep_and_refused_by_a_measurement(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = of("diagonal_rnn", "linear_functional")
    compute(tmp_path / "one", planned([config], tmp_path))
    (trial,) = trials = planned([measured_otherwise(config)], tmp_path)
    file = tmp_path / "one" / "weights" / f"{identity(config)}.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(AssertionError, match=r"is damaged: it is not what was written"):
        compute(tmp_path / "two", trials, measures=True)
    with caplog.at_level(logging.WARNING):
        store = compute(tmp_path / "two", trials)
    assert "trained again" in caplog.text
    assert store.has_weights(store.record(trial.identity))
    file.write_bytes(file.read_bytes() + b"!")  # of another size: the plan sees it
    assert planned([dataclasses.replace(config, perturbation=FIRST), measured_otherwise(config)], tmp_path)[
        1
    ].trained == (
        str(tmp_path / "two"),
        trial.identity,
    )


@pytest.mark.more
def test_a_chain_is_measured_again_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ChainConfig(along="model.width", into="training.stop_below", factor=0.5, first=100.0)

    def links(perturbation: PerturbationConfig) -> list[TrialConfig]:
        return [
            dataclasses.replace(
                trial(model={"width": width}, training={"seeds": 1, "steps": 10}),
                perturbation=perturbation,
                chain=dataclasses.replace(chain, earlier=(2, 3)[: width - 2]),
            )
            for width in (2, 3)
        ]

    compute(tmp_path / "one", planned(links(FIRST), tmp_path))
    refuse_training(monkeypatch)
    trials = planned(links(OTHER), tmp_path)
    assert all(each.trained[0] for each in trials)
    assert len(compute(tmp_path / "two", trials, measures=True).identities()) == 2


def test_the_second_half_of_an_identity_is_that_of_the_training() -> None:
    config = trial()
    other = dataclasses.replace(config, perturbation=OTHER)
    assert identity(config) != identity(other)
    assert training_of(identity(config)) == training_of(identity(other))
    longer = trial(training={"steps": 61})
    assert training_of(identity(config)) != training_of(identity(longer))
    assert identity(config)[:16] != identity(longer)[:16]
    # what a chain carries may have been measured: then the measurement decides the training of the next trial
    for carry, same in (("validation_loss", True), ("error", False)):
        chain = ChainConfig(along="model.width", carry=carry, factor=0.5, first=100.0)
        ends = [identity(dataclasses.replace(each, chain=chain)) for each in (config, other)]
        assert (training_of(ends[0]) == training_of(ends[1])) is same


def test_code_that_only_measures_is_in_no_training() -> None:
    config = TrialConfig(task=task_config(), model=model_config())
    whole, training = code_closure(config), code_closure(config, training=True)
    rooms = {module.split(".")[1] for module, _ in whole - training if module.startswith("memsweep.")}
    assert "stability" in rooms
    assert not {module for module, _ in training if module.startswith("memsweep.stability")}
    assert not {name for _, name in training if name in ("PerturbationConfig", "RadiiConfig")}
    assert training < whole


def test_the_plan_counts_no_training_where_weights_are_stored(tmp_path: Path) -> None:
    config = of("diagonal_rnn", "linear_functional", steps=5000)
    trials = planned([config], tmp_path)
    stored = tuple(dataclasses.replace(each, trained=("somewhere", "x")) for each in trials)
    sweep = SweepConfig(name="s", rows=(config,), grid={}, resources=ResourcesConfig())
    works = [
        estimate([Wave(make_plan(sweep, each, ()).packs)], sweep.resources, ROOT, 0.0).work for each in (trials, stored)
    ]
    assert works[1] < works[0] / 2
