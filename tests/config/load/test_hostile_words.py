"""Careless command lines and study names: refused in short, or kept in the results folder."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_study import BASE, problems
from memsweep.cli import main
from memsweep.errors import StoreError
from memsweep.sweep.store.layout import folder_name
from paths import ROOT

WORDS: dict[str, tuple[list[str], str]] = {
    "a newline in the name": (["name='a\nb'"], "one line"),
    "a mark that turns text around": (["name='a\u202eb'"], "one line"),
    "no key": (["=1"], "cannot be read"),
    "nothing": ([""], "cannot be read"),
    "thousands of levels": (["training=" + "[" * 2_000 + "]" * 2_000], "is nested more than 32 levels deep"),
    "a path of thousands of parts": (["model" + ".a" * 4_000 + "=1"], "nested"),
    "a path longer than a file name": (["a" * 5_000 + "=1"], "no section"),
    "a range of a billion": (["model.width=range(1,1000000000)"], "more than 100,000 values"),
    "a range of tiny steps": (["model.dt=range(0,1,1e-12)"], "more than 100,000 values"),
    "a range from nowhere": (["model.dt=range(nan,1,1)"], "does not list its values"),
    "a range without a step": (["model.width=range(1,5,0)"], "does not list its values"),
    "a trillion trials": (
        [
            *("model.width=range(1,101)", "task.horizon=range(1,101)", "training.steps=range(1,101)"),
            *("training.seeds=range(1,101)", "training.batch_size=range(1,101)", "training.patience=range(1,101)"),
        ],
        "has 1,000,000,000,000 trials",
    ),
    "not a number": (["training.learning_rate=nan"], "must be a finite number"),
    "a number too large": (["training.learning_rate=1e400"], "must be a finite number"),
    "a whole number of ten thousand digits": (["training.steps=" + "9" * 9_000], "cannot be read"),
    "a whole number too large for any float": (["training.learning_rate=" + "9" * 4_000], "finite number"),
    "the environment": (["name='${oc.env:HOME}'"], "call nothing"),
}


@pytest.mark.parametrize(("words", "said"), WORDS.values(), ids=WORDS)
def test_a_careless_command_line_is_refused_in_short(tmp_path, words, said):
    found = problems(tmp_path, BASE, *words)
    text = "\n".join(found)
    assert said in text
    assert len(text) < 20_000
    assert all(len(line) <= 600 for line in found)


def test_many_mistakes_are_counted(tmp_path):
    found = problems(tmp_path, BASE, *(f"training.nope{n}=1" for n in range(200)))
    assert len(found) == 31
    assert found[-1] == "170 more problems."


NAMES = ["../a/b", "..", "$(touch x) -Gedächtnis 😀"]
_TINY = (
    *("task.horizon=4", "model.width=1", "training.steps=1", "training.seeds=1", "training.batch_size=2"),
    *("training.validation_size=2", "perturbation.balls=[]"),
)


@pytest.mark.more
@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_of_any_name_stays_in_the_results_folder(tmp_path, monkeypatch, capsys, name):
    workspace, results = tmp_path / "here", tmp_path / "here" / "results"
    (workspace / "search_spaces").mkdir(parents=True)
    (workspace / "search_spaces" / "study.yaml").write_text(BASE)
    (workspace / "tasks").symlink_to(ROOT / "tasks")
    monkeypatch.chdir(workspace)
    before = set(tmp_path.rglob("*"))
    # quotes of Hydra's grammar around the name, as a person would write it
    words = ["sweep", "study", f"name='{name}'", *_TINY, "--inline", "--results", str(results)]
    assert main([*words, "--workspace", str(workspace)]) == 0
    out = capsys.readouterr().out
    assert "1/1 done" in out
    created = set(tmp_path.rglob("*")) - before
    assert (results / folder_name(name)).is_dir()
    assert all(path == results or results in path.parents for path in created), created


@pytest.mark.parametrize("name", ["x" * 300, "é" * 100, "a\nb", "\u202e", "   ", "", "-rf", "-"])
def test_a_name_that_cannot_be_a_folder_is_refused_and_nothing_is_written(tmp_path, capsys, name):
    (tmp_path / "study.yaml").write_text(BASE)
    before = sorted(tmp_path.rglob("*"))
    words = [
        "sweep",
        str(tmp_path / "study.yaml"),
        f"name='{name}'",
        "--inline",
        "--results",
        str(tmp_path / "results"),
    ]
    assert main([*words, "--workspace", str(ROOT)]) == 2
    assert "name" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_every_name_has_a_folder_of_its_own_inside_the_results(one, other):
    folders = []
    for name in (one, other, one + "/", "../" + one, "mlflow" + one):
        try:
            folder = folder_name(name)
        except StoreError:
            continue
        assert set(folder) - {"."}, "a folder named by dots alone is another one"
        assert "/" not in folder
        assert "\0" not in folder
        assert folder.isascii()
        assert len(folder) <= 255
        folders.append((name, folder))
    assert len({name for name, _ in folders}) == len({folder for _, folder in folders})
