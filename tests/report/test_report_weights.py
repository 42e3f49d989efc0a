"""Stored weights are those of the module: loaded into it, they give the stored loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from engine import trial
from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
from memsweep.data.task import as_read
from memsweep.errors import MemsweepError, StoreError
from memsweep.models.base import Signature
from memsweep.report.read.weights import weights
from memsweep.streams import TEST, Stream
from memsweep.sweep.planning.identity import identity
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, execute_pack
from paths import ROOT

SMALL = {"width": 4, "state_size": 4, "layers": 1, "features": 4}
SAMPLED = PerturbationConfig(balls=(), error="sampled", test_size=64)


def part(kind: str, name: str, **wanted: object) -> object:
    config = registry.get(kind, name).Config
    return config(**{field: value for field, value in wanted.items() if field in config.__dataclass_fields__})


def compute(folder: Path, *configs: TrialConfig, **options: str) -> list[str]:
    names = [identity(config) for config in configs]
    members = tuple((name, to_dict(config)) for name, config in zip(names, configs, strict=True))
    report = execute_pack(PackJob("p", "s", str(folder), str(ROOT), members, **options), lambda *_: None)  # type: ignore[arg-type]
    assert not report.failed, report.failed
    return names


@pytest.mark.parametrize(
    ("model", "task", "dtype"),
    [
        ("diagonal_rnn", "linear_functional", "float64"),
        ("vanilla_rnn", "copying_memory", "float32"),
        ("lru", "linear_functional", "float64"),
        ("residual_stack", "copying_bits", "float64"),
        ("exp_rnn", "permuted_digits", "float32"),
    ],
)
def test_the_plain_module_with_stored_weights_has_the_stored_loss(
    model: str, task: str, dtype: str, tmp_path: Path
) -> None:
    config = TrialConfig(
        task=part("task", task, horizon=12, delay=12),
        model=part("model", model, **SMALL),
        training=TrainingConfig(
            seeds=2, steps=4, batch_size=8, validation_size=8, validate_every=2, learning_rate=0.01, dtype=dtype
        ),
        perturbation=SAMPLED,
    )
    (name,) = compute(tmp_path, config)
    measured = Store(tmp_path).tables(name)["replicas"].set_index("seed")
    parts = registry.get("task", task)(config.task), registry.get("model", model)
    signature = Signature(parts[0].inputs, parts[0].outputs, parts[0].horizon)
    for seed in (0, 1):
        found = weights(tmp_path, [name[:8]], seed)
        assert (found.identity, found.seed) == (name, seed)
        module = parts[1](config.model, signature).to(getattr(torch, dtype)).eval()
        module.load_state_dict(found.tensors)
        batch = parts[0].draw(Stream(config.training.data_seed, TEST), seed, config.perturbation.test_size)
        with torch.no_grad():
            inputs = as_read(batch.inputs, parts[0].inputs, getattr(torch, dtype))
            loss = float(parts[0].loss(module(inputs.to(getattr(torch, dtype))).unsqueeze(0), batch)[0])
        assert loss == pytest.approx(measured["error"][seed], rel=1e-9 if dtype == "float64" else 1e-5)


@pytest.mark.more
def test_a_file_of_weights_says_where_it_is_from(tmp_path: Path) -> None:
    (name,) = compute(tmp_path, config := trial(training={"seeds": 2, "steps": 2}))
    (tmp_path / "out.safetensors").write_bytes(weights(tmp_path, ["model.width=3"], 1).to_bytes())
    with safe_open(tmp_path / "out.safetensors", "pt") as file:
        origin = json.loads(file.metadata()["memsweep"])
    assert origin == {"trial": name, "seed": 1, "config": json.loads(json.dumps(to_dict(config)))}


@pytest.mark.more
def test_what_names_no_model_is_refused_with_what_there_is(tmp_path: Path) -> None:
    names = compute(tmp_path, *(trial(model={"width": width}, training={"seeds": 2, "steps": 2}) for width in (2, 3)))
    with pytest.raises(MemsweepError, match=f"2 of the 2 trials.*{min(names)[:12]}, {max(names)[:12]}.*model.width=8"):
        weights(tmp_path, [], 0)
    with pytest.raises(MemsweepError, match=r"'model.width=9' means none of the 2 trials"):
        weights(tmp_path, ["model.width=9"], 0)
    with pytest.raises(MemsweepError, match=r"say which seed: the trial .* has 0, 1"):
        weights(tmp_path, ["model.width=2"])
    with pytest.raises(MemsweepError, match=r"there is no seed 7: the trial .* has 0, 1"):
        weights(tmp_path, ["model.width=2"], 7)


@pytest.mark.more
def test_weights_that_are_not_there_or_damaged_are_refused_and_the_results_stay(tmp_path: Path) -> None:
    (kept,) = compute(tmp_path, trial(training={"seeds": 1, "steps": 2}))
    (bare,) = compute(tmp_path, trial(training={"seeds": 1, "steps": 3}), keep="none")
    store, file = Store(tmp_path), tmp_path / "weights" / f"{kept}.safetensors"
    assert not store.check([kept, bare])
    with pytest.raises(StoreError, match=r"not kept \(keep: none\).*--no-reuse"):
        weights(tmp_path, [bare])
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StoreError, match="damaged"):
        weights(tmp_path, [kept])
    assert store.check([kept, bare]).keys() == {kept}
    file.unlink()
    with pytest.raises(StoreError, match="were deleted"):
        weights(tmp_path, [kept])
    assert not store.check([kept, bare])
    other = Store(tmp_path / "other")
    assert other.copy_from(store, kept)
    assert not other.check([kept])
