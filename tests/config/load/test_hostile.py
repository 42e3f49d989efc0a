"""Hostile and careless input: a clear error in time, nothing executed, nothing read or written elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from config_study import BASE, load, only, problems
from memsweep.config.load import yaml_text
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError
from paths import ROOT


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """The body must end in this time: an attack is refused before it is carried out."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def bomb(levels: int, width: int = 9) -> str:
    lines = ["a0: &a0 [" + ", ".join(["1"] * width) + "]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * width) + "]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


FILES = {
    "a bomb of sequences": (bomb(9), "stands for more than"),
    "a bomb of hundreds of levels": (bomb(300), "stands for more than"),
    "a bomb of mappings": (
        "a: &a {x: 1, y: 2}\n"
        + "".join(
            f"{b}: &{b} {{x: *{a}, y: *{a}}}\n" for a, b in zip("abcdefghijklmnop", "bcdefghijklmnopq", strict=True)
        ),
        "stands for more than",
    ),
    "a bomb of merge keys": (
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{n}: &a{n} {{p: {{<<: *a{n - 1}}}, q: {{<<: *a{n - 1}}}}}\n" for n in range(1, 31)),
        "stands for more than",
    ),
    "a list that contains itself": ("a: &a [1, *a]\n", "contains itself"),
    "a mapping that contains itself": ("a: &a {b: {c: *a}}\n", "contains itself"),
    "an alias of nothing": ("a: *b\n", "not valid YAML"),
    "ten thousand levels of sequences": ("a: " + "[" * 10_000 + "]" * 10_000, "levels deep"),
    "ten thousand levels of mappings": ("a: " + "{a: " * 10_000 + "1" + "}" * 10_000, "levels deep"),
    "ten thousand levels of indentation": ("\n".join(" " * n + "a:" for n in range(1_000)), "levels deep"),
    "very many values": ("a: [" + "1, " * 300_000 + "1]", "stands for more than"),
    "a file of two megabytes": ("# " + "x" * 2_000_000, "larger than 1,000,000 bytes"),
    "a call of the shell": ("name: !!python/object/apply:os.system ['touch created']\n", "has the tag"),
    "a new object": ("name: !!python/object/new:subprocess.Popen [['touch', 'created']]\n", "has the tag"),
    "a name of Python's": ("name: !!python/name:os.system ''\n", "has the tag"),
    "a module": ("name: !!python/module:antigravity ''\n", "has the tag"),
    "a path, which OmegaConf would make": ("name: !!python/object/apply:pathlib.Path [/etc/passwd]\n", "has the tag"),
    "a tag of another's": ("name: !secret x\n", "has the tag"),
    "a tag of a collection": ("task: !!python/object:os.stat_result {a: 1}\n", "has the tag"),
    "bytes": ("name: !!binary aGVsbG8=\n", "has the tag"),
    "a set": ("name: !!set {a, b}\n", "has the tag"),
    "a tag by a directive": ("%TAG ! tag:yaml.org,2002:python/\n---\nname: !name:os.system ''\n", "has the tag"),
    "a number of ten thousand digits": ("training: {steps: " + "9" * 10_000 + "}\n", "a number of 10,000 characters"),
    "a long hexadecimal number": ("training: {steps: 0x" + "f" * 10_000 + "}\n", "a number of 10,002 characters"),
    "a long number in base sixty": ("training: {steps: 1" + ":59" * 5_000 + "}\n", "a number of"),
    "a NUL in a string": ('name: "a\\0b"\n', "U+0000"),
    "keys that are no text": ("grid: {task: [{rate: 1.0, 0: x}]}\n" + BASE, "which is no text"),
    "a key twice": ("task: 1\ntask: 2\n", "duplicate key task"),
    "a key twice, in quotes": ("task: 1\n'task': 2\n", "duplicate key task"),
    "two documents": ("a: 1\n---\nb: 2\n", "not valid YAML"),
    "the environment": ("name: ${oc.env:HOME}\n", "call nothing"),
    "the environment by a default": ("name: ${oc.env:NO_SUCH_NAME,x}\n", "call nothing"),
    "the environment in a key": ("${oc.env:HOME}: 1\n", "call nothing"),
    "the environment in a defaults list": ("defaults: [{task: '${oc.env:HOME}'}, _self_]\n", "call nothing"),
    "a resolver that parses": ("name: ${oc.decode:'1'}\n", "call nothing"),
    "a resolver that creates": ("task: ${oc.create:${model}}\nmodel: {}\n", "call nothing"),
    "Hydra's resolver": ("name: ${hydra:runtime.cwd}\n", "call nothing"),
    "the time": ("name: ${now:%Y}\n", "call nothing"),
    "a resolver by another value": ("name: ${${task}:HOME}\ntask: oc.env\n", "hold no other one"),
    "a search path of Hydra's": ("hydra: {searchpath: ['file:///etc']}\n", "configures Hydra itself"),
    "a package line of three words": ("# @package a b c\n" + BASE, "cannot be composed"),
    "a bomb of interpolations": (
        "a0: xxxxxxxxxx\n" + "".join(f"a{n}: '${{a{n - 1}}}${{a{n - 1}}}'\n" for n in range(1, 41)),
        "grows by more than",
    ),
    "a bomb of interpolated mappings": (
        "a0: {x: 1}\n" + "".join(f"a{n}: {{x: '${{a{n - 1}}}', y: '${{a{n - 1}}}'}}\n" for n in range(1, 41)),
        "grows by more than",
    ),
    "a bomb of relative interpolations": (
        "task:\n  a0: xxxxxxxxxx\n" + "".join(f"  a{n}: '${{.a{n - 1}}}${{..task.a{n - 1}}}'\n" for n in range(1, 41)),
        "grows by more than",
    ),
    "a chain of interpolated levels": (
        "a0: {x: 1}\n" + "".join(f"a{n}: {{x: '${{a{n - 1}}}'}}\n" for n in range(1, 71)),
        "levels deep",
    ),
    "an interpolation of itself": ("name: ${name}\n", "cannot be composed"),
    "interpolations in a circle": ("task: {x: '${model.x}'}\nmodel: {x: '${task.x}'}\n", "cannot be composed"),
    "an interpolation in an interpolation": ("name: ${a.${b}}\na: {c: 1}\nb: c\n", "hold no other one"),
    "an open interpolation": ("name: ${a\na: 1\n", "cannot be composed"),
    "a dotted path of thousands of parts": ("grid:\n  ? model" + ".a" * 1_000 + "\n  : [1]\n" + BASE, "levels deep"),
}


_OF_THE_STUDY_ALONE = (
    "a search path of Hydra's",
    "a package line of three words",
    "the environment in a defaults list",
)
_INCLUDED_BY_DEFAULT = ("a bomb of sequences", "a call of the shell", "the environment", "a file of two megabytes")


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_in_time_and_nothing_runs(tmp_path, monkeypatch, name):
    text, said = FILES[name]
    _refused(tmp_path, monkeypatch, {"study.yaml": text}, said)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _INCLUDED_BY_DEFAULT else pytest.mark.drill)
        for name in FILES
        if name not in _OF_THE_STUDY_ALONE
    ],
)
def test_a_hostile_file_in_a_defaults_list_is_refused_in_time_and_nothing_runs(tmp_path, monkeypatch, name):
    text, said = FILES[name]
    _refused(tmp_path, monkeypatch, {"study.yaml": "defaults: [part, _self_]\n" + BASE, "part.yaml": text}, said)


def _refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/a/secret/home")
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with within(30), pytest.raises(ConfigError) as caught:
        load_study(str(tmp_path / "study.yaml"), (), ROOT)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 2_000
    assert "/a/secret/home" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


@pytest.mark.parametrize(
    ("data", "said", "included"),
    [
        (b"", "is required", False),
        (b"just text", "a study has no section", False),
        *(
            (data, said, included)
            for included in (False, True)
            for data, said in (
                (b"\0" + BASE.encode(), "U+0000"),
                (BASE.encode() + b"\x07", "U+0007"),
                (b"\xef\xbb\xbf" + BASE.encode(), "U+FEFF"),
                (BASE.encode("utf-16"), "no UTF-8"),
                (BASE.encode("utf-32"), "no UTF-8"),
                (b"name: \xff\n", "no UTF-8"),
                (b"name: \xed\xa0\x80\n", "no UTF-8"),  # a surrogate
                (b"name: \xc0\xaf\n", "no UTF-8"),  # an overlong slash
                (bytes(range(256)), "not valid YAML"),
            )
        ),
    ],
)
def test_bytes_that_are_no_study_are_told_in_words(tmp_path, data, said, included):
    (tmp_path / "part.yaml").write_bytes(data)
    (tmp_path / "study.yaml").write_text("defaults: [part, _self_]\n" + BASE)
    with pytest.raises(ConfigError) as caught:
        load_study(str(tmp_path / ("study.yaml" if included else "part.yaml")), (), ROOT)
    assert said in str(caught.value)


def test_what_the_limits_allow_still_loads(tmp_path):
    """Anchors, aliases, merge keys, interpolations of interpolations, a path as the study: features, not attacks."""
    text = BASE.replace("model: {", "model: &m {") + "training: {steps: '${model.width}', seeds: '${training.steps}'}\n"
    text += "grid: {model.parameterization: &p [exp, direct]}\n# " + "long " * 1_000 + "\n"
    sweep = load(tmp_path, text)
    assert {(row.training.steps, row.training.seeds) for row in sweep.rows} == {(4, 4)}
    assert len(sweep.rows) == 2
    wide = load(tmp_path, BASE, "training.data_seed=range(0,1000)")
    assert len(wide.rows) == 1000


# files elsewhere


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A study's folder beside a file that is none of its business."""
    (tmp_path / "secret.yaml").write_text("steps: 4711\n")
    folder = tmp_path / "studies"
    (folder / "training").mkdir(parents=True)
    (folder / "training" / "fast.yaml").write_text("steps: 5\n")
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (folder / "training" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (folder / "linked").symlink_to(tmp_path)
    return folder


@pytest.mark.parametrize(
    "entry",
    ["../secret", "training: ../../secret", "{dir}/../secret", "/../secret", "link", "training: link", "linked/secret",
     "linked: secret", "optional ../secret", "training: [fast, ../../secret]", "training@model: ../../secret",
     "optional training: ../../secret", "/linked@training: secret", "training: ${model}",
     "../../../../../../etc/passwd"],
)  # fmt: skip
def test_a_defaults_list_reads_nothing_outside_of_the_folder(outside, entry):
    entry = entry.replace("{dir}", str(outside))
    text = f"defaults:\n  - {entry}\n  - _self_\n" + (BASE if "$" not in entry else "model: ../../secret\n")
    found = problems(outside, text)
    assert found
    assert "4711" not in str(found)
    assert "$" in entry or "lies elsewhere" in str(found) or "Could not load" in str(found)


@pytest.mark.parametrize(
    "word",
    [
        *("training=../../secret", "+training=../../secret", "training='../../secret'", "training=/../../secret"),
        *("training=link", "+../secret=x", "+linked=secret", "linked=secret", "+linked/..=secret"),
        *("training/../..=secret", "training@model=../../secret", "+training@task=link", "training='${model}'"),
        *("hydra.searchpath=[file:///etc]", "+hydra/launcher=basic", "hydra/job_logging=default", "hydra@model=x"),
    ],
)
def test_a_group_override_reads_nothing_outside_of_the_folder(outside, word):
    text = "defaults: [{training: fast}, _self_]\n" + BASE
    assert load(outside, text).rows[0].training.steps == 5
    found = problems(outside, text, word)
    assert found
    assert "4711" not in str(found)


def test_a_study_may_lie_anywhere_and_be_a_link(outside, tmp_path):
    (tmp_path / "real.yaml").write_text(BASE)
    (outside / "mine.yaml").symlink_to(tmp_path / "real.yaml")
    for path in (tmp_path / "real.yaml", outside / ".." / "real.yaml", outside / "mine.yaml"):
        assert only(load_study(str(path), (), ROOT).rows).task.horizon == 20


@pytest.mark.parametrize(
    "study",
    ["", ".", "..", "~", "/", "\0", "a\0.yaml", "x" * 300, "x" * 1_000_000, "x" * 1_000_000 + ".yaml", "../" * 5_000,
     "/dev/zero", "/etc/passwd", "a\nb", "\udcff", "study.yml"],
)  # fmt: skip
def test_a_study_that_is_not_there_is_told_in_short(tmp_path, study):
    with within(15), pytest.raises(ConfigError, match="there is no study") as caught:
        load_study(study, (), tmp_path)
    assert len(str(caught.value)) < 1_500


def test_a_safe_file_is_read_as_it_is(tmp_path):
    text = "a: &x [1, 2]\nb: [*x, *x]\nc: !!str 5\n# é\n"
    (tmp_path / "f.yaml").write_text(text)
    assert yaml_text.read_safely(tmp_path / "f.yaml") == text
