"""Results and weights that come with the repository: whole, small, told by docs/seeds.md, and of use to a stranger."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import safetensors.numpy

from benchmarks.published import seeds
from benchmarks.published.keep import keep
from image_files import write_mnist
from memsweep.cli import main
from memsweep.errors import StoreError
from memsweep.report.read.study import load_study
from memsweep.studies import locations
from memsweep.sweep.planning.plan_file import FILES, read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.record import decode
from memsweep.sweep.store.results import Store
from memsweep.trust.gate import NONE
from paths import ROOT
from sweeping import FAST

STORES = sorted((ROOT / "docs" / "evidence" / "stores").iterdir())
KEPT = [*STORES, ROOT / "docs" / "evidence" / "atlas_stability"]
"""With one whose rows docs/evidence/studies.md tells."""
MIB = 2**20
STUDY = f"""
task: {{name: images, order: rows}}
model: {{name: vanilla_rnn, width: 2}}
grid: {{model.width: [2, 3]}}
{FAST}
"""
WORDS = ("perturbation.reading=excess", "perturbation.norm=entrywise", "--inline")
MEASURED = "images " + " ".join(WORDS[:-1])


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("store", KEPT, ids=lambda store: store.name)
def test_a_kept_store_is_whole_and_small(store: Path) -> None:
    """As a sweep that finds it reads it: a record that was edited after it was sealed would be trained again."""
    paths = sorted((store / "records").glob("*.json"))
    records = [decode(path.read_bytes(), path.stem, path.name) for path in paths]
    kept = {path.relative_to(store).as_posix() for path in files(store)}
    expected = {f"records/{record['identity']}.json" for record in records} | {*FILES}
    plan = read_plan(Location.at(store))
    assert plan is not None
    for record in records:
        assert record["study"] == store.name
        assert record["outcome"] in ("done", "diverged")
        assert record["config"] == plan.rows[record["identity"]]
        for folder, told in record["files"].items():
            (path,) = (store / folder).glob(f"{record['identity']}.*")
            expected.add(path.relative_to(store).as_posix())
            assert hashlib.sha256(path.read_bytes()).hexdigest() == told["sha256"]
        weights = safetensors.numpy.load_file(store / "weights" / f"{record['identity']}.safetensors")
        training = record["config"]["training"]
        seeds_of = range(training["first_seed"], training["first_seed"] + training["seeds"])
        assert {name.partition("/")[0] for name in weights} == {*map(str, seeds_of)}
    assert records
    assert kept == expected
    assert sum(path.stat().st_size for path in files(store)) <= 30 * MIB


def test_all_kept_stores_are_small_together() -> None:
    assert sum(path.stat().st_size for store in KEPT for path in files(store)) <= 150 * MIB


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_the_page_tells_the_accuracies_of_the_kept_weights(store: Path) -> None:
    told = pd.read_csv(seeds.RESULTS)
    rows = pd.DataFrame(seeds._metrics(store), columns=seeds.COLUMNS)
    both = rows.merge(told, on=["study", "condition", "measured"], suffixes=("", "_told"))
    assert len(both) == len(rows) > 0
    for name in ("value", "low", "high", "seeds"):
        assert both[name].to_numpy() == pytest.approx(both[f"{name}_told"].to_numpy(), rel=1e-3, nan_ok=True)


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
    assert "2/2 done, 1 of them reused" in capsys.readouterr().out
    plan = read_plan(Location.at(place / "results" / "images"))
    assert plan is not None
    assert Store(place / "results" / "images").identities() == plan.rows.keys()
    assert {config["task"]["folder"] for config in plan.rows.values()} == {str(place / "data")}
    records = load_study(Location.at(place / "results" / "images")).records.values()
    # where the data lay tells no conditions apart
    assert [record["config"]["task"]["folder"] for record in records] == 2 * [str(place / "data")]
    assert (place / "results" / "images" / "records" / f"{before}.json").read_bytes() == old


def test_of_two_data_sets_that_are_away_none_takes_the_place_of_the_other(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location.at(place / "results" / "images")
    plan = read_plan(location)
    assert plan is not None
    rows = {
        name: {**config, "task": {**config["task"], "folder": f"{place}/away{number}"}}
        for number, (name, config) in enumerate(plan.rows.items())
    }
    monkeypatch.setattr(locations, "read_plan", lambda _: replace(plan, rows=rows))
    assert locations.plan_to_measure(Store(location), NONE).rows == rows


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
