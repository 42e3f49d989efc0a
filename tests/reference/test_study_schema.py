"""``memsweep schema``: editors get the schema of the study file; it agrees with what memsweep reads."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator
from omegaconf import OmegaConf

from memsweep import registry
from memsweep.cli import main
from memsweep.config.load import study_files
from memsweep.reference.study_schema import study_schema
from paths import ROOT, committed
from sweeping import environment, memsweep

STUDIES = sorted((ROOT / "search_spaces").rglob("*.yaml"))


@pytest.fixture(scope="module")
def check() -> Draft7Validator:
    schema = json.loads(memsweep("schema", env=environment(MEMSWEEP_DATA="/elsewhere/data")).stdout)
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def written(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(text), resolve=False)


def test_the_schema_is_the_same_on_every_machine(check: Draft7Validator) -> None:
    """A default that is a path is of one machine, of its user, or of where its Python lies."""
    text = json.dumps(check.schema)
    assert '"default": 150' in text
    assert '"default": "/' not in text
    assert not [place for place in ("/elsewhere", sysconfig.get_path("stdlib"), str(ROOT)) if place in text]


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.stem)
def test_every_study_fits(check: Draft7Validator, study: Path) -> None:
    check.validate(written(study.read_text(encoding="utf-8")))


def test_a_line_for_editors_is_allowed_and_describes_nothing() -> None:
    line = "# yaml-language-server: $schema=../study.schema.json\n"
    assert study_files.description(f"{line}# A question?\ntask: x") == "A question?"


def test_an_editor_finds_the_schema_of_every_study() -> None:
    """By the settings in git: they name the file that ``make env`` writes, and every study."""
    settings = json.loads((ROOT / ".vscode" / "settings.json").read_text("utf-8"))
    assert ".vscode/settings.json" in committed()
    ((name, patterns),) = settings["yaml.schemas"].items()
    assert f"memsweep schema > {name}" in (ROOT / "Makefile").read_text("utf-8")
    assert sorted(path for pattern in patterns for path in ROOT.glob(pattern)) == STUDIES


@pytest.mark.parametrize(
    "text",
    [
        "model: lru",
        "model: {name: diagonal_rnn, parameterization: {name: best, a: 1.0}}",
        "task: {horizon: 50}",
        "training: {steps: '${task.horizon}', seeds: '???'}",
        "grid: {model: {width: [2, 4]}, task: [{kernel: sine}, {kernel: shift}]}",
        "grid: {rows: [{model: rnn, training: {learning_rate: 1e-3}}]}",
        "search: {training: {learning_rate: {log_uniform: [1e-4, 0.1]}}, scheduler: asha, objective: error}",
        "chain: null",
        "claims: [{metric: radius, direction: less, left: {model.width: 2}, right: {model.width: 4}}]",
    ],
)
def test_what_a_study_may_say_fits(check: Draft7Validator, text: str) -> None:
    check.validate(written(text))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("trainin: {steps: 5}", "trainin"),
        ("training: {stps: 5}", "stps"),
        ("training: {steps: 2.5}", "2.5"),
        ("training: {steps: -1}", "-1"),
        ("training: {steps: many}", "many"),
        ("training: {optimizer: adamm}", "adamm"),
        ("training: {rule: online_ful}", "online_ful"),
        ("model: lruu", "lruu"),
        ("model: {name: lru, parameterization: exp}", "parameterization"),
        ("model: {name: diagonal_rnn, parameterization: expo}", "expo"),
        ("task: {horizn: 50}", "horizn"),
        ("task: {name: linear_functional, horizon: 1}", "1"),
        ("perturbation: {radii: {from: 0}}", "0"),
        ("grid: {model.widht: [2]}", "widht"),
        ("grid: {model.width: 2}", "2"),
        ("grid: {model.width: [0]}", "0"),
        ("search: {training.learning_rate: {log_unifrm: [1e-4, 0.1]}}", "log_unifrm"),
        ("search: {trials: 0}", "0"),
        ("confirm: {seeds: 1}", "1"),
        ("claims: [{metric: radius}]", "direction"),
        ("hydra: {run: {dir: x}}", "hydra"),
    ],
)
def test_typical_mistakes_are_refused(check: Draft7Validator, text: str, key: str) -> None:
    assert [error for error in check.iter_errors(written(text)) if key in str(error)]


def test_own_tasks_of_a_workspace_are_in_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "halved.py").write_text(
        (ROOT / "tasks" / "functionals" / "linear_functional.py")
        .read_text()
        .replace('"linear_functional"', '"linear_halved"')
    )
    try:
        assert main(["schema", "--workspace", str(tmp_path)]) == 0
        own = Draft7Validator(json.loads(capsys.readouterr().out))
    finally:
        registry._parts[registry.TASK].pop("linear_halved", None)
    own.validate(written("task: {name: linear_halved, horizon: 9}"))
    assert not own.is_valid(written("task: {name: linear_halved, horizn: 9}"))
    assert "linear_halved" not in study_schema()["definitions"]["task"]["then"]["properties"]["name"]["enum"]
