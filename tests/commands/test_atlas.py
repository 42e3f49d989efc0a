"""``memsweep atlas``: the protocol is that of the stored rows, and a layer's row stands among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from memsweep import registry
from memsweep.commands.atlas import PROTOCOL, atlas_study, protocol_of
from memsweep.commands.atlas.rows import OWN, STORED_SEEDS, AtlasRow, Cell, atlas_text, own_row, stored_rows
from memsweep.config.load.hydra import read
from memsweep.errors import ConfigError
from paths import ROOT

LAYER = "own_mixer:Mixer"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "own_mixer.py").write_text((ROOT / "tests/support/nets/mixer.py").read_text())
    yield tmp_path
    registry.discover(ROOT)


def test_a_layer_gets_the_protocol_of_the_stored_rows() -> None:
    known = read(ROOT / f"search_spaces/tasks/{PROTOCOL}.yaml", ())
    own = protocol_of(LAYER)
    for section in ("protocol", "training", "search", "confirm"):
        assert own[section] == known[section]
    assert own["grid"] == {axis: known["grid"][axis] for axis in ("task", "model.parameters")}
    assert own["model"] == known["model"] | {"unit": {"name": "module", "factory": LAYER}}
    assert known["confirm"]["seeds"] == STORED_SEEDS
    assert "claims" not in own


def test_arguments_and_fewer_seeds_are_written_as_in_a_study(workspace: Path) -> None:
    layer = "own_mixer:Heads"
    own = atlas_study(
        layer, ["model.unit.arguments.heads=2", "confirm.seeds=3", "grid.task=[{name: parity, horizon: 4}]"], workspace
    )
    assert own.rows[0].model.unit.arguments["heads"] == 2
    assert own.confirm.seeds == 3
    assert len(own.rows) == 1
    with pytest.raises(ConfigError, match=r"1 problem in .*\n.*there is no not_there\.py"):
        atlas_study("not_there:Net", (), workspace)


def test_the_stored_rows_are_the_table_of_the_atlas() -> None:
    rows = stored_rows()
    assert [row.unit for row in rows][:2] == ["lru", "lstm"]
    assert len(rows) == 12
    lines = (ROOT / "docs/atlas/README.md").read_text().splitlines()
    told = next(line for line in lines if line.startswith("| `mamba3` | 98 "))
    cells = [cell.strip() for cell in told.split("|")[2:-1]]
    mamba = next(row for row in rows if row.unit == "mamba3")
    assert [round(100 * cell.middle) for cell in mamba.cells.values()] == [round(float(cell)) for cell in cells]


def loss_row(task: str, seeds: int, value: Cell, longer: Cell) -> SimpleNamespace:
    return SimpleNamespace(condition={"task": task}, seeds=seeds, value=value, longer={"accuracy_4T": longer})


def test_a_row_stands_among_the_others_and_says_what_it_lacks() -> None:
    stored = stored_rows()
    found = [loss_row("parity", 2, Cell(1.0, 0.9, 1.0), Cell(0.99, 0.98, 1.0))]
    own = own_row("my:Net", found, [*stored[0].cells], ["confirm.seeds=2"])
    text = atlas_text([own], stored, columns=200)
    (line,) = (line for line in text.splitlines() if line.startswith("→ my:Net  "))
    assert line.split("  ")[0] == "→ my:Net"
    assert "100 [90, 100]" in line
    assert "99 [98, 100]" in line
    assert line.count("–") == 7
    assert "2 fresh seeds, fewer than the 8 of the stored rows" in text
    assert "Settings of my:Net that are not the protocol's: confirm.seeds=2." in text
    assert all(
        len(each) <= 80 or "fresh" in each
        for each in atlas_text([own], stored, columns=80).splitlines()
        if each[:2] in ("  ", "→ ")
    )
    none = AtlasRow("my:Net", {name: Cell(*[float("nan")] * 3) for name in stored[0].cells}, OWN)
    assert "no task has a result yet" in atlas_text([none], stored)


def test_rows_are_ranked_over_the_columns_that_the_own_row_has() -> None:
    stored = stored_rows()
    task = next(iter(stored[0].cells))
    middles = sorted((row.cells[task].middle for row in stored), reverse=True)
    value = (middles[5] + middles[6]) / 2  # above the mean of most rows over all columns
    none = Cell(*[float("nan")] * 3)
    own = own_row("my:Net", [loss_row(task, 3, Cell(value, value, value), none)], [*stored[0].cells])
    text = atlas_text([own], stored, columns=400).splitlines()
    rows = [line[2:].split()[0] for line in text[3:] if line.strip()][:13]
    expected = sorted([own, *stored], key=lambda row: -row.cells[task].middle)
    assert rows == [row.unit for row in expected]
    assert "in the 1 of" in text[-1]
    seeds = {item["task"]: item["seeds"] for item in own.items()}
    assert seeds.pop(task) == 3
    assert set(seeds.values()) == {0}
    assert own.seeds == 3


def test_each_layer_has_a_study_of_its_own() -> None:
    layers = ["a/b.py:C", "a-b.py:C", "a_b:C", "a.b:C", "a b:C", "a:b:C", "a-b:C"]
    assert len({protocol_of(layer)["name"] for layer in layers}) == len(layers)
    assert protocol_of("my_nets:MyMixer")["name"] == "atlas-my_nets-MyMixer"
