"""A few hundred bytes that name billions of values are refused before anything is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from config_study import BASE, load
from memsweep.cli import main
from memsweep.config.load.bounded import MOST_PARTS, StudyFileError, check_references, read_yaml, too_many_parts
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError
from paths import ROOT

NINE = range(9)


def quoted(name: str) -> str:
    return f"'${{{name}}}'"


ALIASES = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 10))
REFERENCES = "a0: [x]\n" + "".join(f"a{n}: [{', '.join([quoted(f'a{n - 1}')] * 9)}]\n" for n in range(1, 10))
BELOW = "s:\n  a0: [x]\n" + "".join(f"  a{n}: [{', '.join([quoted(f'..a{n - 1}')] * 9)}]\n" for n in range(1, 10))
THROUGH = "a0: {v: [x]}\n" + "".join(
    f"b{n}: ${{a{n - 1}}}\na{n}: {{v: [{', '.join([quoted(f'b{n}.v')] * 9)}]}}\n" for n in range(1, 10)
)
TEXTS = "a0: x\n" + "".join(f"a{n}: '{f'${{a{n - 1}}}' * 9}'\n" for n in range(1, 10))
BOMBS = {
    "aliases": ALIASES,
    "merge keys": MERGES,
    "references": REFERENCES,
    "references beside each other": BELOW,
    "references through references": THROUGH,
    "texts of references": TEXTS,
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_grows_without_bound_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"grows by more than 1,000,000 characters when its (aliases|\$\{\.\.\.\})"):
        load(tmp_path, BOMBS[name] + BASE)


def test_the_command_says_so_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bomb.yaml").write_text(ALIASES + BASE)
    assert main(["plan", str(tmp_path / "bomb.yaml"), "--workspace", str(tmp_path)]) == 2
    assert "Name fewer things twice." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (ALIASES, "grows by more than"),
        ("# " + "x" * 1_000_001, "larger than 1,000,000 bytes"),
        ("a: &a {b: *a}\n", "has an alias of something that contains it"),
        ("a: !!python/object/apply:pathlib.Path [x]\n", "could not determine a constructor"),
    ],
)
def test_a_file_that_a_study_includes_is_held_to_the_same(tmp_path: Path, part: str, words: str) -> None:
    (tmp_path / "study.yaml").write_text("defaults: [part, _self_]\n" + BASE)
    (tmp_path / "part.yaml").write_text(part)
    with pytest.raises(ConfigError, match=words):
        load_study(str(tmp_path / "study.yaml"), (), ROOT)


def test_files_that_include_one_another_nine_times_are_refused(tmp_path: Path) -> None:
    (tmp_path / "i0.yaml").write_text("x: 1\n")
    for number in range(1, 9):
        (tmp_path / f"i{number}.yaml").write_text(f"defaults: [{', '.join(f'i{number - 1}@p{n}' for n in NINE)}]\n")
    with pytest.raises(ConfigError, match="includes too many files"):
        load_study(str(tmp_path / "i8.yaml"), (), ROOT)


def test_overrides_that_grow_are_refused(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(BASE)
    words = [f"a{n}=[{', '.join([f'${{a{n - 1}}}'] * 9)}]" for n in range(1, 7)]
    with pytest.raises(ConfigError, match="grows by more than"):
        load_study(str(tmp_path / "study.yaml"), ("a0=[x]", *words), ROOT)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("model.arguments.x=" + "[" * 20_000, "nested more than 32 levels"),
        ("model.arguments.x=" + "{a: " * 33 + "1" + "}" * 33, "nested more than 32 levels"),
        ("model.width=" + "1," * 100_000, "more than 2,000 parts"),
        ("model.arguments.x=[" + "1," * 100_000 + "1]", "more than 2,000 parts"),
        ("name='" + "[" * 1_000 + ",'", ""),
        ("model.width=" + "1," * MOST_PARTS + "1", ""),
        ('name="a \\" [b"', ""),
    ],
)
def test_an_override_that_takes_a_parser_minutes_is_not_parsed(word: str, told: str) -> None:
    assert told in too_many_parts(word)
    assert bool(told) == bool(too_many_parts(word))


def test_what_is_written_in_full_may_be_large() -> None:
    assert len(read_yaml(f"a: [{'1, ' * 5_000}1]")["a"]) == 5_001
    assert read_yaml("a: &a [1, 2]\nb: [*a, *a]\n") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}
    assert read_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}\n")["b"] == {"x": 1, "y": 2}
    assert read_yaml("") is None
    with pytest.raises(StudyFileError, match="contains it"):
        read_yaml("a: &a [1, *a]\n")
    check_references({"a": [1] * 1000, "b": ["${a}"] * 9, "c": "${b[0]}", "d": {"e": "${.f}", "f": "${nothing}"}})


def test_a_runtime_environment_is_read_in_the_same_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "env.yaml").write_text(ALIASES)
    assert main(["submit", "quickstart", "--runtime-env", str(tmp_path / "env.yaml"), "--workspace", str(ROOT)]) == 2
    assert "grows by more than" in capsys.readouterr().err
