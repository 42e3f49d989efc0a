"""Careless and broken study files: a clear error, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from config_study import BASE, load, only
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError
from paths import ROOT

FILES = {
    "a list that contains itself": ("a: &a [1, *a]\n", "the file"),
    "an alias of nothing": ("a: *b\n", "not valid YAML in line 1"),
    "ten thousand levels": ("a: " + "[" * 10_000 + "]" * 10_000, "levels deep"),
    "a file of two megabytes": ("# " + "x" * 2_000_000, "larger than 1,000,000 bytes"),
    "a call of the shell": ("name: !!python/object/apply:os.system ['touch created']\n", "could not determine"),
    "a tag": ("name: !secret x\n", "could not determine a constructor for the tag '!secret'"),
    "a number of ten thousand digits": ("training: {steps: " + "9" * 10_000 + "}\n", "cannot be composed"),
    "keys that are no text": ("grid: {task: [{rate: 1.0, 0: x}]}\n" + BASE, "which is no text"),
    "a key twice": ("task: 1\ntask: 2\n", "duplicate key task"),
    "two documents": ("a: 1\n---\nb: 2\n", "not valid YAML"),
    "the environment": ("name: ${oc.env:HOME}\n", "call nothing"),
    "a resolver by another value": ("name: ${${task}:HOME}\ntask: oc.env\n", "hold no other one"),
    "a search path of Hydra's": ("hydra: {searchpath: ['file:///etc']}\n", "configures Hydra itself"),
    "an interpolation of itself": ("name: ${name}\n", "Recursive interpolation"),
    "interpolations in a circle": ("task: {x: '${model.x}'}\nmodel: {x: '${task.x}'}\n", "Recursive interpolation"),
    "an open interpolation": ("name: ${a\na: 1\n", "the file"),
    "a dotted path of thousands of parts": ("grid:\n  ? model" + ".a" * 4_000 + "\n  : [1]\n" + BASE, "grid.model.a.a"),
    "bytes that are no UTF-8": (b"name: \xff\n", "byte 7 is no UTF-8"),
    "a NUL": (b"\0" + BASE.encode(), "not valid YAML"),
    "nothing": ("", "the file says nothing"),
    "just text": ("just text", "a study has no section"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    content, words = FILES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/a/secret/home")
    (tmp_path / "study.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_study(str(tmp_path / "study.yaml"), (), ROOT)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 2_000
    assert "/a/secret/home" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_a_broken_file_in_a_defaults_list_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("defaults: [part, _self_]\n" + BASE)
    (tmp_path / "part.yaml").write_text("a: [1\nb: 2")
    with pytest.raises(ConfigError, match="not valid YAML in line 2"):
        load_study(str(tmp_path / "study.yaml"), (), ROOT)


def test_anchors_and_interpolations_load(tmp_path: Path) -> None:
    text = BASE.replace("model: {", "model: &m {") + "training: {steps: '${model.width}', seeds: '${training.steps}'}\n"
    text += "name: a ${model.name} of ${.task.horizon}\ngrid: {model.parameterization: &p [exp, direct]}\n"
    sweep = load(tmp_path, text)
    assert {(row.training.steps, row.training.seeds) for row in sweep.rows} == {(4, 4)}
    assert len(sweep.rows) == 2
    assert sweep.name == "a diagonal_rnn of 20"


def test_a_study_may_lie_anywhere_and_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "real.yaml").write_text(BASE)
    (tmp_path / "studies" / "mine.yaml").symlink_to(tmp_path / "real.yaml")
    for path in (tmp_path / "studies" / ".." / "real.yaml", tmp_path / "studies" / "mine.yaml"):
        assert only(load_study(str(path), (), ROOT).rows).task.horizon == 20


@pytest.mark.parametrize(
    "study",
    ["", ".", "..", "~", "/", "\0", "a\0.yaml", "x" * 300, "x" * 1_000_000, "x" * 1_000_000 + ".yaml", "../" * 5_000,
     "/dev/zero", "/etc/passwd", "a\nb", "\udcff", "study.yml"],
)  # fmt: skip
def test_a_study_that_is_not_there_is_told_in_short(tmp_path, study):
    with pytest.raises(ConfigError, match=r"there is no (study|file)") as caught:
        load_study(study, (), tmp_path)
    assert len(str(caught.value)) < 1_500


def test_a_mistake_of_yaml_shows_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "task: {name: linear_functional\nmodel: {name: diagonal_rnn}\n")
    assert str(caught.value).splitlines()[1:] == [
        "  - the file is not valid YAML in line 2, column 6: expected ',' or '}', but got ':' (while parsing a flow "
        "mapping that begins in line 1):",
        "      model: {name: diagonal_rnn}",
        "           ^",
    ]
