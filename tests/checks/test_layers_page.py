"""The page of audited layers: made from stored audits alone, and enough of them."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.layers.known import layers
from benchmarks.layers.page import END, PAGE, START, stored, tables
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
