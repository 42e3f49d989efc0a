"""The page of audited layers: made from stored audits alone, and enough of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.layers.__main__ import expired
from benchmarks.layers.__main__ import main as look_at_layers
from benchmarks.layers.known import Layer, layers
from benchmarks.layers.made_by import audit_code, made_by
from benchmarks.layers.page import END, PAGE, START, stored, tables, write
from benchmarks.mutants.__main__ import write as write_mutants
from benchmarks.published import gallery, seeds
from memsweep import registry
from memsweep.checks.part import checks


def test_the_page_is_that_of_its_stored_audits() -> None:
    shown = PAGE.read_text(encoding="utf-8").split(START)[1].split(END)[0]
    assert shown.strip().splitlines() == tables(stored())


def test_the_order_of_the_store_is_not_that_of_the_page() -> None:
    rows = stored()
    assert tables(rows[::-1]) == tables(rows)


def test_there_are_sixty_layers_of_five_packages_each_with_every_check() -> None:
    rows = stored()
    assert len(rows) >= 60
    assert len({row["layer"].split(":")[0] for row in rows}) >= 5
    for row in rows:
        assert [*row["checks"]] == [check.name for check in checks()], row["layer"]
        assert row["version"]
        assert "not enough" not in row["checks"].values()


def test_a_layer_audited_again_takes_the_place_of_its_earlier_line(tmp_path: Path) -> None:
    store = tmp_path / "audits.jsonl"
    store.write_text("".join(json.dumps({"layer": "a:b", "version": number}) + "\n" for number in (1, 2)))
    assert stored(store) == [{"layer": "a:b", "version": 2}]


def test_a_fault_stands_in_the_row_and_with_its_sentence() -> None:
    row = next(row for row in stored() if "fault" not in row["checks"].values())
    broken = row | {"checks": row["checks"] | {"pieces": "fault"}, "said": {"pieces": "In pieces | it\nis another."}}
    lines = "\n".join(tables([broken]))
    assert "| **pieces** |" in lines
    assert "| pieces | In pieces ¦ it is another. |" in lines
    assert "1 layers; 0 of them without a fault." in lines


def test_a_layer_whose_package_is_away_is_named() -> None:
    found, away = layers(["torch:GRU", "ncps:LTC"])
    assert next(layer.name for layer in found) == "torch:GRU"
    assert len(found) + len(away) == 2
    assert found[0].version


@pytest.fixture
def own() -> list[Layer]:
    """Two layers of ours."""
    registry.discover()
    found, _ = layers([f"memsweep:residual_stack of {name}" for name in ("gru", "lstm")])
    return found


def test_an_audit_by_other_code_or_versions_has_expired(tmp_path: Path, own: list[Layer]) -> None:
    store, layer = tmp_path / "audits.jsonl", own[0]
    assert expired([layer], store) == [layer]
    row = {"layer": layer.name, "version": layer.version, "made_by": made_by(layer)}
    store.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert not expired([layer], store)
    for other in (
        row | {"version": "0.0.1"},
        {name: value for name, value in row.items() if name != "made_by"},
        row | {"made_by": row["made_by"] | {"torch": "1.0"}},
        row | {"made_by": row["made_by"] | {"audit": "of another check"}},
    ):
        store.write_text(json.dumps(other) + "\n", encoding="utf-8")
        assert expired([layer], store) == [layer], other


def test_the_code_of_a_row_is_that_of_its_checks_and_of_its_own_layer(
    monkeypatch: pytest.MonkeyPatch, own: list[Layer]
) -> None:
    gru, lstm = own
    before = made_by(gru)
    assert before["audit"] == made_by(lstm)["audit"]
    assert before["layer"] != made_by(lstm)["layer"]
    audit_code.cache_clear()
    monkeypatch.setattr("benchmarks.layers.made_by.checks", lambda: checks()[1:])
    assert made_by(gru)["audit"] != before["audit"]
    audit_code.cache_clear()


def test_the_page_says_which_code_made_a_row() -> None:
    row = stored()[0]
    old = {name: value for name, value in row.items() if name != "made_by"}
    new = row | {"layer": "torch:New", "made_by": {"audit": "0123456789abcdef"}}
    first, *lines = tables([old, new])
    assert "Code of the audit: 1 by 012345, 1 made before codes were stored." in first
    assert sum(line.endswith("| 012345 |") for line in lines) == 1


@pytest.mark.parametrize("line", ["", '{"layer": "torch:GRU"', "[]", '{"layer": "torch:GRU"}'])
def test_a_stored_line_that_is_no_audit_is_named(tmp_path: Path, line: str) -> None:
    store = tmp_path / "audits.jsonl"
    store.write_text(json.dumps(stored()[0]) + f"\n{line}\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"line 2 is no audit of a layer.*Take the line away"):
        stored(store)


@pytest.mark.parametrize("rows", [None, 0, 1])
def test_a_store_of_fewer_layers_than_the_page_leaves_it_as_it_is(tmp_path: Path, rows: int | None) -> None:
    store, page = tmp_path / "audits.jsonl", tmp_path / "layers.md"
    before = PAGE.read_text(encoding="utf-8")
    page.write_text(before, encoding="utf-8")
    if rows is not None:
        store.write_text("".join(json.dumps(row) + "\n" for row in stored()[:rows]), encoding="utf-8")
    with pytest.raises(SystemExit, match=rf"audits.jsonl has {rows or 0} layers, and layers.md shows {len(stored())}"):
        write(store, page)
    with pytest.raises(SystemExit, match=r"audits.jsonl has 0 layers, and layers.md shows 30"):
        write_mutants(tmp_path / "away" / "audits.jsonl", 11, page)
    assert page.read_text(encoding="utf-8") == before
    write(page=page)
    assert page.read_text(encoding="utf-8") == before


@pytest.mark.parametrize("page", [gallery, seeds])
def test_a_page_whose_store_is_away_stays_as_it_is(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [page.__name__])
    monkeypatch.setattr(page, "TOLD" if page is gallery else "RESULTS", tmp_path / "away.csv")
    before = page.PAGE.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match=r"away.csv is missing or .*stays as it is. Restore the file"):
        page.main()
    assert page.PAGE.read_text(encoding="utf-8") == before


def test_a_name_of_no_layer_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["layers", "torch:GRU", "torch:GRV"])
    with pytest.raises(SystemExit):
        look_at_layers()
    assert "no layer or package here is called torch:GRV;" in capsys.readouterr().err
