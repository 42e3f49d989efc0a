"""Learning rules in a study: listed, described, and refused with a reason where none can be."""

from __future__ import annotations

import importlib.metadata
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from config_study import load, only, problems
from memsweep import registry
from memsweep.cli import main
from memsweep.learning.training.optimizer import rate_factor
from memsweep.sweep.planning import cost, fingerprint
from memsweep.sweep.planning.fingerprint import code_fingerprint
from memsweep.sweep.planning.identity import identity
from memsweep.trial import run_trial
from paths import ROOT

BASE = """
task: {name: linear_functional, kernel: exponential, rate: 0.5, horizon: 8}
model: {name: residual_stack, width: 3, features: 3}
training: {seeds: 1, steps: 4, batch_size: 4, validation_size: 4, validate_every: 2}
perturbation: {balls: [], test_size: 4}
"""


def test_a_reservoir_is_left_alone_by_penalties_too(tmp_path: Path) -> None:
    """A shrinking layer whose loss has no gradient would be at zero after a while."""
    still = ["training.rule=online_reservoir", "training.amplitude_penalty=0"]
    assert problems(tmp_path, BASE, *still) == []
    own = ["amplitude_penalty=0.002", "margin_penalty=0.1", "weight_decay=0.05", "groups.input.weight_decay=0.1"]
    assert problems(tmp_path, BASE, *(f"training.{setting}" for setting in own)) == []  # all of them under bptt
    for setting in own:
        (told,) = problems(tmp_path, BASE, *still[: 1 if "amplitude" in setting else 2], f"training.{setting}")
        assert "by which layers keep their initial weights, but training." + setting.replace("=", " ") in told


def test_a_wrong_name_is_told_once_beside_all_other_mistakes(tmp_path: Path) -> None:
    text = BASE + "grid: {model.width: [2, 3], training.rule: [onlin_full, bptt]}"
    told = problems(tmp_path, text, "training.steps=-1", "task.horizon=0", "model.unit=lur")
    assert len(told) == 4
    (rule,) = (line for line in told if "rule" in line)
    assert rule.startswith("training.rule: rule 'onlin_full' is not registered. Did you mean 'online_full'?")


# What the command line says of them


def test_rules_and_units_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> str:
        assert main([*words, "--workspace", str(ROOT)]) == 0
        return capsys.readouterr().out

    for plural, kind in (("rules", registry.RULE), ("units", registry.UNIT)):
        lines = dict(line.partition("  ")[::2] for line in said("list", plural).splitlines())
        assert list(lines) == registry.names(kind)
        assert all(text.strip() for text in lines.values())
    assert said("describe", "online_snap1").startswith("rule online_snap1\n")
    both = said("describe", "lru")
    assert [line for line in both.splitlines() if line.endswith(" lru")] == [
        "model lru",
        "parameterization lru",
        "unit lru",
    ]
    training = " ".join(said("describe", "training").split())
    assert f"see memsweep list rules [{', '.join(registry.names(registry.RULE))}]" in training
    assert main(["describe", "online_ful", "--workspace", str(ROOT)]) == 2
    assert "Did you mean 'online_full'?" in capsys.readouterr().err


# Rules and units of others

PARTS = '''
"""A rule and a unit of another distribution."""

from dataclasses import dataclass

from memsweep.models.deep.unit_lru import LRUUnit
from memsweep.registry import register_rule, register_unit
from memsweep.rules.base import Rule


@register_unit("far_lru")
class FarUnit(LRUUnit):
    """The linear recurrent unit under another name."""

    @dataclass(frozen=True, kw_only=True)
    class Config(LRUUnit.Config):
        """Independent modes."""


@register_rule("far_rule")
class FarRule(Rule):
    """One step alone."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """One step alone."""
'''


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution whose entry point names a module with a rule and a unit."""
    (tmp_path / "far_parts.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    point = importlib.metadata.EntryPoint("far", "far_parts", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    yield
    sys.modules.pop("far_parts", None)
    registry._parts[registry.UNIT].pop("far_lru", None)
    registry._parts[registry.RULE].pop("far_rule", None)


@pytest.mark.usefixtures("far")
def test_a_rule_and_a_unit_of_a_plugin_train_a_stack(tmp_path: Path) -> None:
    row = only(load(tmp_path, BASE, "model.unit=far_lru", "training.rule=far_rule").rows)
    assert (row.model.unit.name, row.training.rule) == ("far_lru", "far_rule")
    assert math.isfinite(run_trial(row).summary["validation_loss"])
    ours = only(load(tmp_path, BASE, "training.rule=online_truncated").rows)
    assert run_trial(row).summary["error"] == run_trial(ours).summary["error"]
    assert identity(row) != identity(ours)
    before = code_fingerprint(row)
    (tmp_path / "far_parts.py").write_text(PARTS + "ANOTHER = 1\n")
    fingerprint.forget("far_parts")
    assert code_fingerprint(row) != before


# The learning rate's rise


@pytest.mark.parametrize("warmup", [1, 4])
@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_a_warmup_is_torchs_linear_rise_before_its_cosine(warmup: int, schedule: str) -> None:
    steps = 11
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0 / warmup, total_iters=max(warmup - 1, 1))
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - warmup)
    still = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    both = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall if schedule == "cosine" else still], [warmup])
    for step in range(steps):
        assert rate_factor(step, steps, schedule, warmup) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        both.step()


def test_training_takes_smaller_steps_while_it_warms_up(tmp_path: Path) -> None:
    """RMSprop's first step is as long as its rate: a quarter at the first of four steps."""
    words = ("training.optimizer=rmsprop", "training.schedule=constant", "training.clip=0", "training.validate_every=1")
    plain, warm = (
        only(load(tmp_path, BASE, *words, f"training.warmup={n}", f"training.learning_rate={rate}").rows)
        for n, rate in ((0, 0.0025), (3, 0.0075))
    )
    losses = [run_trial(row).tables["history"].set_index("step")["validation_loss"] for row in (plain, warm)]
    assert losses[0][1] == pytest.approx(losses[1][1], rel=1e-12)
    assert losses[0][2] != pytest.approx(losses[1][2], rel=1e-6)


def test_a_warmup_that_never_ends_is_refused(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, BASE, "training.warmup=4")
    assert "warmup (4) must be smaller than steps (4)" in said


# What a stack is expected to cost


def expected_seconds(folder: Path, *overrides: str) -> float:
    """The estimate for a stack on copying bits, its norm behind the unit: no compiled call computes it as a whole."""
    text = BASE.replace("{name: linear_functional, kernel: exponential, rate: 0.5, horizon: 8}", "copying_bits")
    words = (
        "model.width=64",
        "model.features=128",
        "training.batch_size=50",
        "training.dtype=float32",
        "model.dropout=0.1",
        "model.prenorm=false",
    )
    return cost.seconds([only(load(folder, text, *words, *overrides).rows)])


@pytest.fixture(scope="module")
def plain_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    return expected_seconds(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    ("override", "least", "most"),
    [
        ("model.layers=4", 3.0, 4.01),
        ("model.prenorm=true", 0.1, 0.8),  # one compiled call
        ("training.seeds=8", 4.0, 8.0),
        ("training.rule=online_full", 1.2, 2.0),
        ("training.batch_size=400", 4.0, 8.0),
        ("task.pattern_length=90", 2.0, 188 / 48),  # 188 steps of time, which no field of the task says, and not 48
        ("model.readout_width=1072", 1.5, 8.0),
        ("training.dtype=float64", 1.4, 1.81),
    ],
)
def test_the_estimate_knows_what_a_stack_has_to_do(
    tmp_path: Path, plain_seconds: float, override: str, least: float, most: float
) -> None:
    assert least < expected_seconds(tmp_path, override) / plain_seconds < most
