"""Protocols: presets under a study's own settings, which always win."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from torch import Tensor

from config_study import BASE, load, only, problems
from memsweep import registry
from memsweep.cli import main
from memsweep.config.core.fields import setting
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.protocols import PROTOCOLS
from memsweep.models.base import Model, Part, Role, Signature, Traits
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run
from memsweep.sweep.planning.identity import identity
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.store.results import Store
from paths import ROOT

GRID = "grid: {model.width: [8, 16, 32, 64]}\n"


class Plain(Model):
    """A model without the fields that the published protocol has for some models."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A width alone."""

        width: int = setting(8, "hidden size", at_least=1)

    @classmethod
    def traits(cls, config: Config) -> Traits:
        return Traits(linear=True)

    @classmethod
    def roles(cls, config: Config) -> dict[str, Role]:
        return {"drift": Role(Part.BIAS, ("output",))}

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"drift": np.zeros(signature.outputs)}

    def forward(self, inputs: Tensor) -> Tensor:
        return self.drift.expand(*inputs.shape[:2], -1)


@contextmanager
def plain_model() -> Iterator[None]:
    """``plain`` is registered inside the context, and only there."""
    registry.discover(ROOT)
    registry.register_model("plain")(Plain)
    try:
        yield
    finally:
        del registry._parts[registry.MODEL]["plain"]


def test_every_setting_of_the_published_protocol_reaches_every_trial(tmp_path: Path) -> None:
    sweep = load(tmp_path, BASE + GRID, "protocol=published")
    assert sweep.protocol == "published"
    expected = flatten(json.loads(json.dumps(PROTOCOLS["published"])))
    assert {"model.discretization", "training.steps", "perturbation.radii.to", "chain.first"} <= set(expected)
    for row in sweep.rows:
        found = flatten(to_dict(row))
        assert {path: found[path] for path in expected} == expected
    assert [row.chain and row.chain.earlier for row in sweep.rows] == [(), (8,), (8, 16), (8, 16, 32)]


def test_the_published_protocol_is_the_published_one(tmp_path: Path) -> None:
    """The numbers of the public code, written out once more: its epochs, its radii, its thresholds."""
    row = load(tmp_path, BASE + GRID, "protocol=published").rows[1]
    epoch = row.training.train_size // row.training.batch_size
    assert (epoch, row.training.train_size % row.training.batch_size) == (250, 0)
    assert (row.training.steps, row.training.smallest_steps) == (1000 * epoch, 2 * epoch)
    assert row.training.validate_every == epoch
    radii = row.perturbation.radii
    step = (radii.to / radii.from_) ** (1 / (radii.count - 1))
    assert step == pytest.approx(2**0.5, rel=1e-12)
    assert row.chain is not None
    assert (row.chain.carry, row.chain.into, row.chain.factor) == ("validation_loss", "training.stop_below", 0.5)


def test_matched_is_the_default_and_changes_nothing(tmp_path: Path) -> None:
    default, named = load(tmp_path, BASE), load(tmp_path, "protocol: matched\n" + BASE)
    assert (default.protocol, named.protocol) == ("matched", "matched")
    assert default.rows == named.rows
    assert identity(only(load(tmp_path, "protocol: published\nchain: null\n" + BASE).rows)) != identity(
        only(default.rows)
    )


def test_what_a_study_of_tokens_leaves_out_is_the_protocols(tmp_path: Path) -> None:
    default, network = only(load(tmp_path, BASE).rows), only(load(tmp_path, "protocol: tokens\n" + BASE).rows)
    one, other = flatten(to_dict(default)), flatten(to_dict(network))
    written = flatten(yaml.safe_load(BASE))
    given = {path: value for path, value in flatten(PROTOCOLS["tokens"]).items() if path not in written}
    assert given
    assert {path: other[path] for path in given} == given
    follows = {"training.amplitude_penalty"}  # where no weights are moved, there is none
    assert {path for path in other if other[path] != one[path]} <= given.keys() | follows


def test_what_the_study_and_the_command_line_say_wins(tmp_path: Path) -> None:
    text = (
        "protocol: published\n"
        + BASE.replace("width: 4", "width: 4, discretization: exact")
        + "training: {seeds: 3}\nperturbation: {radii: {count: 11}, balls: [recurrent]}\nchain: {factor: 0.25}\n"
        + "grid: {model.width: [8, 16], training.learning_rate: [0.1, 0.2]}\n"
    )
    sweep = load(tmp_path, text, "training.clip=2.0", "perturbation.radii.to=2.0")
    for row in sweep.rows:
        assert row.model.discretization == "exact"
        assert row.model.initialization == "published"
        assert (row.training.seeds, row.training.clip, row.training.margin_penalty) == (3, 2.0, 0.01)
        radii = row.perturbation.radii
        assert (radii.from_, radii.to, radii.count, row.perturbation.balls) == (1e-3, 2.0, 11, ("recurrent",))
        assert row.chain is not None
        assert (row.chain.factor, row.chain.first) == (0.25, 100.0)
    assert {row.training.learning_rate for row in sweep.rows} == {0.1, 0.2}


def test_a_protocol_is_chosen_like_any_other_setting(tmp_path: Path) -> None:
    text = "protocol: published\n" + BASE + GRID
    assert load(tmp_path, text).protocol == "published"
    back = load(tmp_path, text, "protocol=matched")
    assert (back.protocol, back.rows) == ("matched", load(tmp_path, BASE + GRID).rows)
    assert load(tmp_path, text, "~protocol").rows == back.rows
    unchained = load(tmp_path, text, "chain=null")
    assert all(row.chain is None and row.training.seeds == 1 for row in unchained.rows)
    assert load(tmp_path, text, "~chain").rows == unchained.rows


def test_what_is_no_protocol_is_refused(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, BASE, "protocol=publishd")
    assert told == "protocol: must be one of matched, published, tokens, got \"publishd\" (did you mean 'published'?)."
    (told,) = problems(tmp_path, "protocol: [published]\n" + BASE)
    assert told.startswith("protocol: must be one of")
    (told,) = problems(tmp_path, BASE, "protocol=published,matched")
    assert told.startswith("grid.protocol:")
    (told,) = problems(tmp_path, BASE, "protocol=published")  # a single width: there is nothing to chain along
    assert "no axis of the grid" in told
    assert "chain=null" in told


def test_only_settings_of_the_model_are_left_out_where_there_is_no_such_field(tmp_path: Path) -> None:
    with plain_model():
        text = BASE.replace("{name: diagonal_rnn, width: 4, parameterization: direct}", "plain")
        for row in load(tmp_path, "protocol: published\n" + text + GRID).rows:
            assert row.model == Plain.Config(width=row.model.width)
            assert row.training.margin_penalty == 0.01
        models = "grid: {model: [plain, {name: diagonal_rnn}, {name: diagonal_rnn, discretization: exact}]}\n"
        base = BASE.replace("model: {name: diagonal_rnn, width: 4, parameterization: direct}\n", "")
        rows = load(tmp_path, "protocol: published\nchain: null\n" + base + models).rows
        assert [getattr(row.model, "discretization", None) for row in rows] == [None, "euler", "exact"]
        assert [getattr(row.model, "initialization", None) for row in rows] == [None, "published", "published"]
        # What a study writes itself is never left out.
        (told,) = problems(tmp_path, text, "model.discretization=euler")
        assert "the model plain has no field 'discretization'" in told


SMALL = """
protocol: published
task: {name: linear_functional, kernel: exponential, horizon: 12}
model: {name: diagonal_rnn, parameterization: relu}
training: {steps: 400, batch_size: 32, train_size: 320, validation_size: 64, validate_every: 10, smallest_steps: 20}
perturbation: {radii: {count: 4}, repeats: 3, test_size: 64}
grid: {model.width: [2, 4, 8]}
"""
"""The published protocol at sizes that take seconds."""


def test_the_plan_says_which_protocol_it_is_under(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.yaml").write_text(SMALL)
    words = ["plan", str(tmp_path / "study.yaml"), "--no-probe", "--results", str(tmp_path), "--workspace", str(ROOT)]
    assert main(words) == 0
    assert "protocol: published" in capsys.readouterr().out
    assert main([*words, "protocol=matched"]) == 0
    assert "protocol" not in capsys.readouterr().out


def test_the_published_protocol_runs_and_is_recorded(tmp_path: Path) -> None:
    sweep = load(tmp_path, SMALL)
    plan = make_plan(sweep, identified(sweep), ())
    store = Store(tmp_path / "results" / "study")
    write_plan(store.folder, plan, {})
    assert json.loads((store.folder / "plan.json").read_text())["protocol"] == "published"
    summary = run(plan, workspace=ROOT, results=tmp_path / "results", launch=Launch(inline=True))
    assert not summary.failed
    summaries = [store.record(trial.identity)["summary"] for trial in plan.trials]
    thresholds = [summary["stop_below"] for summary in summaries]
    losses = [summary["validation_loss"] for summary in summaries]
    assert thresholds == [100.0, 0.5 * losses[0], 0.5 * losses[1]]
    steps = [store.tables(trial.identity)["replicas"]["steps"].item() for trial in plan.trials]
    assert steps[0] == 20  # the first threshold stops at once, but not before the second epoch
    for loss, threshold, count in zip(losses, thresholds, steps, strict=True):
        assert loss < threshold or count == 400
