"""Words on the command line change a study: values, axes, and what the grid sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from config_study import BASE, load, only, problems, scaled_parameterization
from memsweep.config.load import study_files
from memsweep.config.load.overrides import AXIS, FIELD, REMOVED, SEARCHED, Edit, parse
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError

GRID = """
grid:
  task: [{kernel: exponential}, {kernel: polynomial, exponent: 1.2}, {kernel: polynomial, rate: 0.3}]
  task.horizon: [50, 100]
  model.width: [2, 4]
"""
STUDY = f"# The head\n# in two lines\n\n# not this\n{BASE}{GRID}"


@pytest.mark.parametrize(
    ("word", "meaning", "path", "value"),
    [
        ("model.width=3", FIELD, "model.width", 3),
        ("model.width=3,4", AXIS, "model.width", [3, 4]),
        ("~model.width", FIELD, "model.width", REMOVED),
        ("grid.model.width=[3,4]", AXIS, "model.width", [3, 4]),
        ("grid={model: {width: [3]}}", AXIS, "model.width", [3]),
        ("~grid.model.width", AXIS, "model.width", REMOVED),
        ("~grid", AXIS, "", REMOVED),
        ("search.model.width={int: [2, 4]}", SEARCHED, "model.width", {"int": [2, 4]}),
        ("search.trials=9", SEARCHED, "trials", 9),
        ("~search.model.width", SEARCHED, "model.width", REMOVED),
        ("~search", SEARCHED, "", REMOVED),
    ],
)
def test_the_first_key_says_what_a_path_means(
    word: str, meaning: str, path: str, value: object, tmp_path: Path
) -> None:
    read = parse([word], tmp_path)
    assert (read.problems, read.groups) == ([], [])
    assert read.edits == [Edit(meaning, path, value)]


def test_a_value_is_set_whether_or_not_the_file_mentions_it(tmp_path: Path) -> None:
    for word in ("training.steps=7", "+training.steps=7", "++training.steps=7", "training={steps: 7}"):
        assert {row.training.steps for row in load(tmp_path, STUDY, word).rows} == {7}
    trial = only(load(tmp_path, BASE, "perturbation.radii.from=1e-3", "model.normalize=true").rows)
    assert (trial.perturbation.radii.from_, trial.perturbation.radii.to) == (1e-3, 3.0)
    assert trial.model.normalize is True
    assert load(tmp_path, BASE, "resources.cpus=2").resources.cpus == 2.0


def test_the_name_and_the_description(tmp_path: Path) -> None:
    sweep = load(tmp_path, STUDY)
    assert (sweep.name, sweep.description) == ("study", "The head in two lines")
    assert load(tmp_path, STUDY, 'name="<script>, or so"').name == "<script>, or so"
    assert "must be text" in only(problems(tmp_path, BASE, "name=2024"))
    assert "must be text" in only(problems(tmp_path, BASE, "name=''"))


def test_a_value_replaces_the_axis_of_its_path(tmp_path: Path) -> None:
    sweep = load(tmp_path, STUDY, "model.width=16")
    assert sweep.grid["model.width"] == (16,)
    assert {row.model.width for row in sweep.rows} == {16}
    assert len(sweep.rows) == 6


@pytest.mark.parametrize("word", ["model.width=2,4,8", "grid.model.width=[2,4,8]", "grid={model: {width: [2, 4, 8]}}"])
def test_an_axis_is_replaced_in_its_place(tmp_path: Path, word: str) -> None:
    sweep = load(tmp_path, STUDY, word)
    assert list(sweep.grid) == ["task", "task.horizon", "model.width"]
    assert [row.model.width for row in sweep.rows[:4]] == [2, 4, 8, 2]


def test_an_axis_is_made(tmp_path: Path) -> None:
    sweep = load(tmp_path, BASE, "model.width=range(2,9,2)", "grid.model.parameterization=[exp,direct]")
    assert sweep.grid == {"model.width": (2, 4, 6, 8), "model.parameterization": ("exp", "direct")}
    assert [row.model.parameterization.name for row in sweep.rows[:2]] == ["exp", "direct"]


def test_an_axis_is_taken_out(tmp_path: Path) -> None:
    sweep = load(tmp_path, STUDY, "~grid.task.horizon")
    assert list(sweep.grid) == ["task", "model.width"]
    assert {row.task.horizon for row in sweep.rows} == {20}
    assert len(load(tmp_path, STUDY, "~grid").rows) == 1
    assert "Did you mean 'task.horizon'?" in only(problems(tmp_path, STUDY, "~grid.task.horizn"))


def test_a_field_is_taken_out_of_the_base(tmp_path: Path) -> None:
    assert only(load(tmp_path, BASE, "~task.rate").rows).task.rate == 1.0
    assert "a field that the study does not set" in only(problems(tmp_path, BASE, "~task.dt"))


def test_a_choice_drops_what_belonged_to_the_old_one(tmp_path: Path) -> None:
    def task(*words: str) -> tuple[str, float | None]:
        found = only(load(tmp_path, BASE, *words).rows).task
        return found.kernel, found.rate

    assert task("task.kernel=polynomial") == ("polynomial", 0.1)
    assert task("task.kernel=exponential") == ("exponential", 0.5)
    assert task("task.rate=0.7", "task.kernel=polynomial") == ("polynomial", 0.7)
    assert task("task={kernel: shift}") == ("shift", None)


def test_a_value_wins_over_the_entries_of_a_group_axis(tmp_path: Path) -> None:
    agreeing = load(tmp_path, STUDY, "task.kernel=polynomial")
    assert agreeing.grid["task"] == ({"kernel": "polynomial", "exponent": 1.2}, {"kernel": "polynomial", "rate": 0.3})
    other = load(tmp_path, STUDY, "task.kernel=sine")
    assert {row.task.kernel for row in other.rows} == {"sine"}
    assert list(other.grid) == ["task.horizon", "model.width"]
    rates = load(tmp_path, STUDY, "task.rate=9.0")
    assert {row.task.rate for row in rates.rows} == {9.0}
    swept = BASE + "grid: {task.kernel: [exponential, polynomial]}"
    assert {row.task.rate for row in load(tmp_path, swept, "task.rate=9.0").rows} == {9.0}


def test_values_of_a_choice_keep_the_fields_that_belong_to_each(tmp_path: Path) -> None:
    """The exponent of polynomial memory is none of exponential memory, and what else entries set is crossed."""

    def tasks(grid: str, *words: str) -> set[tuple[str, float | None, float | None, int]]:
        rows = load(tmp_path, f"{BASE}grid: {grid}\n", *words).rows
        return {(row.task.kernel, row.task.rate, row.task.exponent, row.task.horizon) for row in rows}

    both = "[{kernel: exponential, rate: 2.0}, {kernel: polynomial, rate: 0.3, exponent: 1.2, horizon: 7}]"
    in_rows = (
        "[{task: {kernel: exponential, rate: 2.0}}, {task: {kernel: polynomial, rate: 0.3, exponent: 1.2, horizon: 7}}]"
    )
    exponential, polynomial = ("exponential", 2.0, None), ("polynomial", 0.3, 1.2)
    of_base = next(iter(tasks("{}")))[-1]
    for grid in (f"{{task: {both}}}", f"{{rows: {in_rows}}}"):
        for word in ("task.kernel=polynomial,exponential", "grid.task.kernel=[polynomial,exponential]"):
            assert tasks(grid, word) == {(*kind, end) for kind in (exponential, polynomial) for end in (7, of_base)}
        shifted = tasks(grid, "task.kernel=shift,polynomial", "task.horizon=30")
        assert shifted == {("shift", None, None, 30), (*polynomial, 30)}
        assert {rate for _, rate, _, _ in tasks(grid, "task.kernel=exponential,polynomial", "task.rate=4,5")} == {4, 5}


def test_no_entry_is_lost_where_a_field_of_the_base_becomes_an_axis(tmp_path: Path) -> None:
    """The second entry is of the kernel of the base, so its exponent belongs to no value of the axis for certain."""
    entries = "[{kernel: polynomial, exponent: 1.2}, {exponent: 1.5}]"
    study = BASE.replace("kernel: exponential", "kernel: polynomial")
    found = problems(tmp_path, f"{study}grid: {{task: {entries}}}\n", "task.kernel=polynomial,exponential")
    assert any("the kernel exponential has no exponent" in told for told in found)


def test_a_value_wins_over_a_swept_part(tmp_path: Path) -> None:
    with scaled_parameterization():
        grid = BASE + "grid: {model.parameterization: [scaled, {name: scaled, shift: 1.0}]}"
        sweep = load(tmp_path, grid, "model.parameterization.scale=5.0")
        assert {row.model.parameterization.scale for row in sweep.rows} == {5.0}
        assert len(sweep.rows) == 2
        sweep = load(tmp_path, grid, "model={width: 9, parameterization: {scale: 5.0}}")
        assert {(row.model.width, row.model.parameterization.scale) for row in sweep.rows} == {(9, 5.0)}
        sweep = load(tmp_path, grid, "model.parameterization={name: scaled, scale: 6.0}")
        assert only(sweep.rows).model.parameterization.scale == 6.0


def test_all_wrong_words_are_told_together(tmp_path: Path) -> None:
    readable = ["training.stps=3", "nope=1"]
    found = problems(tmp_path, STUDY, "steps", "name=<x>", "hydra.run.dir=x", "a=interval(0,1)", *readable, "grid=3")
    assert len(found) == 5  # words that cannot be read are told first: what a study says without them is a guess
    assert "it has no =. Write steps=VALUE" in found[0]
    assert "cannot be read" in found[1]
    assert "key=value" in found[1]
    assert "sets Hydra itself" in found[2]
    assert "does not list its values" in found[3]
    assert "gives no axes" in found[4]
    section, field = problems(tmp_path, STUDY, *readable)
    assert "no section 'nope'" in section
    assert "Did you mean 'steps'?" in field


def test_groups_and_interpolations_work(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    for name, steps in (("fast", 10), ("slow", 99)):
        (tmp_path / "training" / f"{name}.yaml").write_text(f"steps: {steps}\n")
    text = "defaults: [{training: fast}, _self_]\n" + BASE.replace("horizon: 20", "horizon: '${model.width}'")
    text += "grid: {model.dt: [1.0, '${training.steps}']}"
    fast, slow = load(tmp_path, text), load(tmp_path, text, "training=slow", "model.width=6")
    assert [row.model.dt for row in fast.rows] == [1.0, 10.0]
    assert [(row.task.horizon, row.model.dt, row.training.steps) for row in slow.rows] == [(6, 1.0, 99), (6, 99.0, 99)]
    assert "training/slwo" in only(problems(tmp_path, text, "training=slwo"))
    assert "_self_" in only(problems(tmp_path, text.replace(", _self_", "")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1\nb: 2", "not valid YAML in line 2"),
        ("task: 1\ntask: 2", "found duplicate key task"),
        ("- 1", "the file holds a list. A study is a mapping of its sections"),
        ("task: ${nope}\nmodel: diagonal_rnn", "Interpolation key 'nope' not found"),
        ("hydra: {}\n" + BASE, "configures Hydra itself"),
        ("defaults: [nothing, _self_]\n", "nothing"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_words(tmp_path: Path, text: str, words: str) -> None:
    assert words in only(problems(tmp_path, text))
    assert "cannot be read" in problems(tmp_path, text, "no equals sign")[0]


def test_bytes_that_are_no_text_are_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_study(str(tmp_path / "x.yaml"))


def test_studies_are_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"There are no studies in .*\. Built-in studies: .*quickstart"):
        study_files.find("mine", tmp_path)
    folder = tmp_path / "search_spaces"
    folder.mkdir()
    (folder / "mine.yaml").write_text(BASE)
    assert {"mine", "quickstart"} <= set(study_files.names(tmp_path))
    assert study_files.find("mine", tmp_path) == study_files.find(str(folder / "mine.yaml"), Path("elsewhere"))
    monkeypatch.chdir(tmp_path)
    assert study_files.find("search_spaces/mine.yaml", Path()) == folder / "mine.yaml"
    with pytest.raises(ConfigError, match=r"no study 'mien'. Did you mean 'mine'\?$"):
        study_files.find("mien", tmp_path)
    with pytest.raises(ConfigError, match=r"no study 'zzzz'. Studies in .*: mine\. Built-in"):
        study_files.find("zzzz", tmp_path)
    (tmp_path / "its own.yaml").write_text(BASE)
    with pytest.raises(ConfigError, match=r"no study 'its own'. Did you mean the file 'its own.yaml'\?$"):
        study_files.find("its own", Path())


def test_studies_in_rooms_are_found_by_their_plain_names(tmp_path: Path) -> None:
    place = tmp_path / "it's" / "search_spaces"
    for name, text in {
        "one/first.yaml": BASE,
        "two/second.yaml": "defaults: [first, quickstart, _self_]\ntraining: {steps: 7}\n",
        "one/twice.yaml": BASE,
        "two/twice.yaml": BASE,
        "task/part.yaml": "horizon: 8",
        "search/part.yaml": "trials: 8",
        "_parts/part.yaml": "horizon: 8",
        "mine.yaml": BASE,
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    own = [name for name, file in study_files.files(place.parent).items() if file.is_relative_to(place)]
    assert own == ["mine", "first", "twice", "second"], "those in no room first; parts are no studies"
    assert study_files.find("first", place.parent) == study_files.find("one/first", Path(place.parent))
    assert load_study("second", workspace=place.parent).rows[0].training.steps == 7
    assert {row.task.horizon for row in load_study("first", ["+task=part"], place.parent).rows} == {8}
    with pytest.raises(ConfigError, match=r"2 studies of .* are named 'twice': one/twice.yaml, two/twice.yaml"):
        load_study("twice", workspace=place.parent)
    assert load_study("two/twice", workspace=place.parent).name == "twice"
    assert study_files.find("quickstart.yaml", tmp_path) == study_files.find("start/quickstart", tmp_path)


def test_a_study_cannot_read_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMSWEEP_TEST_SECRET", "hidden")
    file = tmp_path / "search_spaces" / "leak.yaml"
    file.parent.mkdir()
    file.write_text(
        "name: ${oc.env:MEMSWEEP_TEST_SECRET}\ntask: {name: linear_functional}\nmodel: {name: diagonal_rnn}\n"
    )
    with pytest.raises(ConfigError, match=r"oc\.env") as caught:
        load_study("leak", [], tmp_path)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "axis"),
    [
        ("training.steps=[10,20]", "training.steps=10,20"),
        ("task.kernel=[exponential,shift]", "task.kernel=exponential,shift"),
        ("model.parameterization=[direct,exp]", "model.parameterization=direct,exp"),
    ],
)
def test_a_list_for_one_value_is_refused_with_the_word_that_sweeps_it(tmp_path: Path, word: str, axis: str) -> None:
    assert f"write {axis} or grid." in only(problems(tmp_path, BASE, word))
    assert len(load(tmp_path, BASE, axis).rows) == 2


def test_a_list_that_can_be_no_axis_is_refused_without_advice(tmp_path: Path) -> None:
    for word in ("resources.cpus=[1,2]", "training.steps=[{a: 1}]"):
        assert "on the command line" not in only(problems(tmp_path, BASE, word))
