"""Identity and plan: every field counts, packs hold one program, nothing is planned twice."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from engine import model_config, task_config, trial
from memsweep.config.schema import ResourcesConfig, SweepConfig, TrialConfig
from memsweep.sweep import identity as identities
from memsweep.sweep.identity import code_fingerprint, identifying, identity
from memsweep.sweep.plan import PACK_REPLICAS, identified, make_packs, make_plan


def changed(value: Any, field: dataclasses.Field) -> Any:
    """Another value of a field, valid or not: an identity needs no validity."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.5 + 0.25
    if isinstance(value, tuple):
        return value[::-1]
    choices = field.metadata.get("choices")
    return next((choice for choice in choices if choice != value), "another") if choices else 7.5


def flips(config: Any, path: str = ""):
    """(path, copy of the config with one field changed) for every field, at every depth."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        name = f"{path}{field.name}"
        if dataclasses.is_dataclass(value):
            for inner, other in flips(value, f"{name}."):
                yield inner, dataclasses.replace(config, **{field.name: other})
        else:
            yield name, dataclasses.replace(config, **{field.name: changed(value, field)})


BASE = trial(task={"kernel": "polynomial"})
FLIPS = dict(flips(BASE))


@pytest.mark.parametrize("path", sorted(FLIPS))
def test_every_field_moves_the_identity_or_is_declared_cosmetic(path):
    moved = identity(FLIPS[path]) != identity(BASE)
    assert moved is (path != "training.checkpoint_every")


def test_the_parameterization_and_the_device_are_part_of_the_identity():
    others = [trial(task={"kernel": "polynomial"}, model={"parameterization": name}) for name in ("direct", "softplus")]
    assert len({identity(config) for config in (BASE, *others)}) == 3
    assert identity(BASE, device="cuda") != identity(BASE)
    assert "checkpoint_every" not in identifying(BASE)["training"]


def test_defaults_said_and_unsaid_are_one_trial():
    said = trial(task={"kernel": "polynomial", "rate": 0.1, "exponent": 1.1})
    assert identity(said) == identity(BASE)


def test_code_is_part_of_the_identity(tmp_path, monkeypatch):
    before = code_fingerprint(BASE)
    assert code_fingerprint(BASE) == before
    extra = tmp_path / "extra.py"
    extra.write_text("x = 1\n")
    files = identities._engine_files()
    monkeypatch.setattr(identities, "_engine_files", lambda: (*files, extra))
    with_extra = code_fingerprint(BASE)
    assert with_extra != before
    names = {path.name for path in files}
    assert {"gram.py", "diagonal_rnn.py", "loop.py", "perturbation.py", "trial.py"} <= names
    assert "verdict.py" not in names  # reads results, makes none


def sweep_of(rows: list[TrialConfig]) -> SweepConfig:
    return SweepConfig(name="s", rows=tuple(rows), grid={}, resources=ResourcesConfig())


def test_packs_hold_one_program_and_everything_once():
    rows = [
        trial(task={"horizon": horizon, "kernel": kernel}, model={"width": width})
        for horizon in (20, 40)
        for kernel in ("exponential", "polynomial")
        for width in (2, 3)
    ]
    plan = make_plan(sweep_of(rows), identified(sweep_of(rows)), done=())
    assert len(plan.packs) == 2
    assert plan.packs[0].cost >= plan.packs[1].cost
    assert plan.packs[0].trials[0].config.task.horizon == 40
    assert sorted(t.identity for pack in plan.packs for t in pack.trials) == sorted(t.identity for t in plan.trials)


def test_what_is_done_is_not_packed():
    trials = identified(sweep_of([trial(model={"width": width}) for width in (2, 3, 4)]))
    plan = make_plan(sweep_of([t.config for t in trials]), trials, done=[trials[1].identity])
    assert [t.identity for t in plan.packs[0].trials] == [trials[0].identity, trials[2].identity]
    everything = make_plan(sweep_of([t.config for t in trials]), trials, done=[t.identity for t in trials])
    assert everything.packs == ()


def test_large_groups_are_cut():
    rows = [trial(model={"width": 2}, training={"seeds": 100, "first_seed": 100 * n}) for n in range(7)]
    packs = make_packs(identified(sweep_of(rows)))
    assert [len(pack.trials) for pack in packs] == [2, 2, 2, 1]
    assert all(sum(t.config.training.seeds for t in pack.trials) <= PACK_REPLICAS for pack in packs)


def test_configs_are_values():
    assert task_config() == task_config()
    assert hash(model_config("exp")) == hash(model_config("exp"))
    assert model_config("exp") != model_config("direct")
