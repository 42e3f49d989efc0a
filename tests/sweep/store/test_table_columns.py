"""A table that grows: what was stored before stays readable, and what is missing alone is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from test_store import A, filled
from test_versions import replace_table
from test_written_by import STUDIES, of_version

import memsweep.stability.results
from memsweep.cli import main
from memsweep.report import judge
from memsweep.report.page.render import render
from memsweep.report.read.study import load_study, not_measured
from memsweep.report.rows.report import tables_of
from memsweep.report.terminal import report_text
from memsweep.stability.results import TrialResult, result_of
from memsweep.sweep.planning.fingerprint import forget
from memsweep.sweep.planning.reuse import find_elsewhere, stored_training
from memsweep.sweep.store import tables as table_files
from memsweep.sweep.store.form import OtherSchemaError
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import DEFINITIONS, REPLICAS, definition
from memsweep.sweep.store.tables import names as table_names
from paths import ROOT
from sweeping import BASE, ready, sweep

LATER = {"flatness": "float64", "shape": "string", "turns": "int64", "round": "bool"}
Define = Callable[..., None]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives a table another definition, as a later version of memsweep would."""

    def set_definition(name: str, **changes: Any) -> None:
        monkeypatch.setitem(DEFINITIONS, name, dataclasses.replace(definition(name), **changes))
        table_files.schema.cache_clear()

    yield set_definition
    monkeypatch.undo()
    table_files.schema.cache_clear()


@pytest.mark.parametrize("folder", STUDIES, ids=of_version)
def test_a_new_column_is_not_measured_in_results_from_before(folder: Path, define: Define) -> None:
    store = Store(folder)
    before = {name: store.table(name) for name in table_names()}
    for name in table_names():
        define(name, columns={**definition(name).columns, **LATER})
    assert store.check(store.identities()) == {}
    for name, frame in before.items():
        table = store.table(name)
        pd.testing.assert_frame_equal(table[list(frame)], frame, check_exact=True)
        assert table["flatness"].dtype == "float64"
        assert table[list(LATER)].isna().all(axis=None)
    study = load_study(folder)
    filled_tables = {name for name, frame in before.items() if len(frame)}
    assert study.missing == ()
    assert {column for column in study.absent if column.endswith(".flatness")} == {
        f"{name}.flatness" for name in filled_tables
    }
    words = f"replicas.flatness, which an earlier version of memsweep that computed them did not store ({study.planned}"
    assert any(text.startswith(words) for text in not_measured(study))
    for identity in store.identities():
        assert stored_training(store, identity)


def test_the_page_and_the_terminal_say_what_was_not_measured(define: Define) -> None:
    (folder,) = (folder for folder in STUDIES if folder.name == "mixed")
    define(REPLICAS, columns={**DEFINITIONS[REPLICAS].columns, **LATER})
    contents = judge(folder)
    tables = tables_of(contents)
    for shown in (report_text(contents, tables, width=500), render(contents, tables, (), {})):
        assert "Not measured: replicas.flatness, which an earlier version" in shown


@pytest.mark.more
def test_what_is_missing_alone_is_measured(
    tmp_path: Path, define: Define, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A later version measures one more column: the plan says how many trials that is, and nothing is trained."""
    study, results = tmp_path / "grown.yaml", ready(tmp_path / "results")
    study.write_text(BASE)
    assert sweep(study, results, "--inline") == 0
    store = Store(results / "grown")
    (before,) = store.identities()
    define(REPLICAS, columns={**DEFINITIONS[REPLICAS].columns, "flatness": "float64"})
    changed, read = Path(memsweep.stability.results.__file__), Path.read_bytes
    more = b"\ndef _flatness():\n    return 1.5\n"
    later = read(changed).replace(b"zero_loss, memoryless = ", b"_flatness(); zero_loss, memoryless = ") + more
    monkeypatch.setattr(Path, "read_bytes", lambda path: later if path == changed else read(path))
    forget("memsweep.stability.results")

    def measured(*given: Any) -> TrialResult:
        result = result_of(*given)
        return dataclasses.replace(
            result, tables={**result.tables, REPLICAS: result.tables[REPLICAS].assign(flatness=1.5)}
        )

    monkeypatch.setattr("memsweep.trial.result_of", measured)
    monkeypatch.setattr("memsweep.learning.loop._step", None)  # a training step fails
    capsys.readouterr()
    assert main(["plan", str(study), "--no-probe", "--results", str(results), "--workspace", str(ROOT)]) == 0
    assert "to measure only: 1 trial, whose trained weights are stored" in capsys.readouterr().out
    assert sweep(study, results, "--inline") == 0
    assert "1 of them only measured, from stored weights" in capsys.readouterr().out
    (after,) = store.identities() - {before}
    assert list(store.tables(after)[REPLICAS]["flatness"]) == [1.5, 1.5]
    assert store.tables(before)[REPLICAS]["flatness"].isna().all()
    monkeypatch.undo()
    forget("memsweep.stability.results")


def test_an_unknown_column_is_passed_over(tmp_path: Path) -> None:
    store = filled(tmp_path, A)
    before = store.table("curves")
    replace_table(tmp_path, "curves", lambda table: table.append_column("angle", table["radius"]))
    pd.testing.assert_frame_equal(store.table("curves"), before)
    assert Store(tmp_path / "other").copy_from(store, A)


def test_an_older_table_is_migrated_while_it_is_read(tmp_path: Path, define: Define) -> None:
    """A column gets another name, then another unit."""
    store = filled(tmp_path, A)
    before = store.table("curves")["radius"].to_numpy()
    changed = {("size" if name == "radius" else name): kind for name, kind in DEFINITIONS["curves"].columns.items()}

    def renamed(table: pa.Table) -> pa.Table:
        return table.rename_columns([{"radius": "size"}.get(name, name) for name in table.column_names])

    def in_percent(table: pa.Table) -> pa.Table:
        values = pa.array(table["size"].to_numpy() * 100)
        return table.set_column(table.column_names.index("size"), "size", values)

    define("curves", columns=changed, version=3, migrations={1: renamed, 2: in_percent})
    assert (store.table("curves")["size"].to_numpy() == 100 * before).all()
    assert store.check([A]) == {}
    other = Store(tmp_path / "other")
    assert other.copy_from(store, A)  # as it is: its record still says the version
    assert (other.table("curves")["size"].to_numpy() == 100 * before).all()


def test_a_table_of_a_newer_version_is_refused_in_a_sentence(tmp_path: Path, define: Define) -> None:
    store = filled(tmp_path / "s", A)
    replace_table(tmp_path / "s", "memory", lambda table: table, version=2)
    for read in (lambda: store.record(A), lambda: store.table("curves"), lambda: store.check([A])):
        with pytest.raises(OtherSchemaError, match=r"the memory table of .*newer version of memsweep, .* schema 2; "):
            read()
    assert find_elsewhere(tmp_path, [A]) == {}
    define("memory", version=2, migrations={1: lambda table: table})
    assert store.check([A]) == {}


def test_every_version_of_a_table_has_a_migration() -> None:
    for name in table_names():
        form = definition(name)
        assert form.oldest == 1, name
        assert sorted(form.migrations) == list(range(1, form.version)), name
