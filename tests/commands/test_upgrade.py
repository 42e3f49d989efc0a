"""``memsweep upgrade``: results are rewritten once, each whole or not at all, and no number changes."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_written_by import WRITTEN

from memsweep.cli import main
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.record import SCHEMA
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import DEFINITIONS, definition
from memsweep.sweep.store.tables import names as table_names
from memsweep.sweep.upgrade import STAGED, upgrade
from sweeping import snapshot


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for study in ("grid", "module"):
        shutil.copytree(WRITTEN / "8b96c54" / study, tmp_path / study)
    return tmp_path


def schemas(study: Path) -> list[int]:
    return [json.loads(file.read_text())["schema"] for file in sorted((study / "records").glob("*.json"))]


def numbers(study: Path) -> dict[str, Any]:
    store = Store(study)
    assert store.check(store.identities()) == {}
    return {name: store.table(name) for name in table_names()}


def test_a_dry_run_writes_nothing(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(results)
    assert main(["upgrade", str(results), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "grid: 4 of 4 results in an older form; nothing was written",
        "module: 1 of 1 result in an older form; nothing was written",
    ]
    assert snapshot(results) == before


def test_results_are_rewritten_once(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = numbers(results / "grid")
    assert main(["upgrade", str(results), "--json"]) == 0
    grid, module = json.loads(capsys.readouterr().out)["studies"]
    assert grid == {"study": "grid", "results": 4, "older": 4, "rewritten": 4, "unreadable": {}}
    assert module["rewritten"] == 1
    assert schemas(results / "grid") == [SCHEMA] * 4
    assert all(frame.equals(before[name]) for name, frame in numbers(results / "grid").items())
    rewritten = snapshot(results)
    assert main(["upgrade", str(results)]) == 0
    assert "grid: none of 4 results has an older form" in capsys.readouterr().out
    assert {path: content for path, (content, _) in snapshot(results).items() if "lease" not in path} == {
        path: content for path, (content, _) in rewritten.items() if "lease" not in path
    }


class PowerCut(BaseException):
    """The process ends."""


@pytest.mark.parametrize("survived", range(0, 24, 6))
def test_an_interrupted_upgrade_goes_on(results: Path, survived: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it ends: some results are then in the new form, one is in between, the rest are in the old form."""
    study = results / "grid"
    before = numbers(study)
    for name in ("curves", "replicas"):
        newer = dataclasses.replace(definition(name), version=2, migrations={1: lambda table: table})
        monkeypatch.setitem(DEFINITIONS, name, newer)
    left = [survived]

    def dies(method: str) -> None:
        real = getattr(Location, method)

        def call(place: Location, *given: Any, **named: Any) -> Any:
            if left[0] == 0:
                raise PowerCut
            left[0] -= 1
            return real(place, *given, **named)

        monkeypatch.setattr(Location, method, call)

    dies("move")
    dies("write_all")
    try:
        upgrade(Store(study), write=True)
    except PowerCut:
        pass
    else:
        assert survived > 15  # four results: two tables and a record are staged once, and moved
    left[0] = -1
    found = upgrade(Store(study), write=True)
    assert found.unreadable == {}
    assert schemas(study) == [SCHEMA] * 4
    records = Store(study).records()
    assert [record["files"]["curves"]["version"] for record in records] == [2] * 4
    assert [record["files"]["memory"]["version"] for record in records] == [1] * 4
    assert all(frame.equals(before[name]) for name, frame in numbers(study).items())
    assert not (study / STAGED).exists()


def test_what_cannot_be_read_stays_and_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = sorted((results / "grid" / "records").glob("*.json"))
    first.write_text("{")
    second.write_text(json.dumps({**json.loads(second.read_text()), "schema": SCHEMA + 1}))
    before = first.read_bytes(), second.read_bytes()
    assert main(["upgrade", str(results)]) == 1
    out = capsys.readouterr().out
    assert "grid: 2 of 4 results rewritten" in out
    assert f"  {first.stem}: stays as it is: {first} is damaged" in out
    assert f"  {second.stem}: stays as it is: {second} was written by a newer version of memsweep" in out
    assert (first.read_bytes(), second.read_bytes()) == before


def test_a_folder_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", str(tmp_path / "nothing")]) == 2
    assert "there is no stored result in" in capsys.readouterr().err
    assert not (tmp_path / "nothing").exists()
