"""A study that was kept goes on in a stranger's folder: with other data folders, and with nothing trained twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.published.keep import keep
from image_files import write_mnist
from memsweep.cli import main
from memsweep.errors import StoreError
from memsweep.sweep.planning.plan_file import FILES, read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.results import Store
from paths import ROOT
from sweeping import FAST

STUDY = f"""
task: {{name: images, order: rows}}
model: {{name: vanilla_rnn, width: 2}}
grid: {{model.width: [2, 3]}}
{FAST}
"""
WORDS = ("perturbation.reading=excess", "perturbation.norm=entrywise", "--inline")
MEASURED = "images " + " ".join(WORDS[:-1])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a kept study: one of its two trials was computed, with data in a folder that is gone since."""
    place = tmp_path_factory.mktemp("author")
    (place / "images.yaml").write_text(STUDY)
    write_mnist(place / "own" / "mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMSWEEP_DATA", str(place / "own"))
        words = ("sweep", str(place / "images.yaml"), "--inline", "--max-trials", "1")
        assert run(place, *words) == 3
    keep(place / "results" / "images", place / "stores")
    shutil.rmtree(place / "own")
    return place / "stores"


@pytest.fixture
def place(stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's folder: the kept study copied by hand, the data fetched to the usual place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMSWEEP_DATA", raising=False)
    write_mnist(tmp_path / "data" / "mnist")
    shutil.copytree(stores / "images", tmp_path / "results" / "images")
    return tmp_path


def run(place: Path, *words: str) -> int:
    return main([*words, "--results", str(place / "results"), "--workspace", str(ROOT)])


def without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a training step was done")

    monkeypatch.setattr("memsweep.learning.loop._step", refuse)


def test_a_kept_study_tells_nothing_of_the_machine(stores: Path) -> None:
    text = "".join(path.read_text() for path in stores.rglob("*.json"))
    assert text.count('"folder": "data"') == 1 + 2 * len(FILES)  # of one record, and of two trials in each plan
    assert str(stores.parent) not in text
    assert '"host": ""' in text
    assert sorted(path.name for path in (stores / "images").iterdir()) == [
        *("curves", "history", "memory", "plan.copy.json", "plan.json", "records", "replicas", "weights")
    ]


def test_a_kept_study_is_measured_again_without_training(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_training(monkeypatch)
    assert run(place, "measure", "images", *WORDS) == 0
    assert "1 of 2 trials have no stored weights that fit: left out" in capsys.readouterr().err
    curves = Store(place / "results" / folder_name(MEASURED)).table("curves")
    assert {*curves["norm"]} == {"entrywise"}
    assert curves["error"].notna().all()


def test_a_kept_study_goes_on_where_it_was_stopped(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (before,) = Store(place / "results" / "images").identities()
    old = (place / "results" / "images" / "records" / f"{before}.json").read_bytes()
    assert run(place, "resume", "images", "--inline") == 0
    assert "2/2 done, 1 of them reused" in (shown := capsys.readouterr().out)
    assert "folder" not in shown.partition("report:")[0]  # where the data lay tells no conditions apart
    plan = read_plan(Location.at(place / "results" / "images"))
    assert plan is not None
    assert Store(place / "results" / "images").identities() == plan.rows.keys()
    assert {config["task"]["folder"] for config in plan.rows.values()} == {str(place / "data")}
    assert (place / "results" / "images" / "records" / f"{before}.json").read_bytes() == old


def test_results_without_a_plan_are_measured_and_the_other_commands_say_what_lacks(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_training(monkeypatch)
    for name in FILES:
        (place / "results" / "images" / name).unlink()
    assert run(place, "measure", "images", *WORDS) == 0
    assert len(Store(place / "results" / folder_name(MEASURED)).identities()) == 1
    for verb in ("resume", "report"):
        capsys.readouterr()
        assert run(place, verb, "images") != 0
        assert "images holds results but no plan: run its study file once more" in capsys.readouterr().err


def test_a_record_that_was_changed_is_not_kept(stores: Path, tmp_path: Path) -> None:
    shutil.copytree(stores / "images", tmp_path / "images")
    (record,) = (tmp_path / "images" / "records").iterdir()
    record.write_text(record.read_text().replace('"steps": 20', '"steps": 21'))
    with pytest.raises(StoreError, match="is damaged: it is not what was written"):
        keep(tmp_path / "images", tmp_path / "stores")
