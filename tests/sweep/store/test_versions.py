"""Results of older and newer versions: read as they were, or refused with a reason, and never misread.

``schema_1`` is a study that memsweep wrote when records had no hashes of their tables.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memsweep.errors import StoreError
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.record import READ, SCHEMA, OtherSchemaError
from memsweep.sweep.store.results import Store, find_elsewhere
from memsweep.sweep.store.tables import LATER, TABLES

OLD_TABLES = tuple(name for name in TABLES if name not in LATER)
SETTINGS = ["task", "kernel", "rate", "exponent", "model", "activation", "parameterization", "normalize"]
"""Columns of older tables that are in the record as well, and that this version leaves out."""
GOLDEN = Path(__file__).parent / "schema_1"
DONE, DIVERGED = "ad21d1e086e97195d144e163fe0b9ddd", "bbd5d02b981f0908c6ee7d30442b387d"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the study that schema 1 wrote."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "old"))


def test_a_result_of_schema_1_is_read_as_it_was(old: Path) -> None:
    store = Store(old)
    assert (SCHEMA, READ) == (3, (1, 2, 3)), (
        "a new schema wants golden files of the one before it, and this test for them"
    )
    assert store.identities() == {DONE, DIVERGED}
    assert store.check(store.identities()) == {}
    done, diverged = store.records()
    assert (done["outcome"], diverged["outcome"]) == ("done", "diverged")
    assert done["summary"]["error"] == 3.9438810863054083
    assert diverged["summary"]["error"] == math.inf
    for record in (done, diverged):
        raw = json.loads((GOLDEN / "records" / f"{record['identity']}.json").read_text())
        summary = {key: math.inf if value == "inf" else value for key, value in raw["summary"].items()}
        assert record == raw | {"summary": summary}
    for name in OLD_TABLES:
        raw_table = pd.concat([pd.read_parquet(GOLDEN / name / f"{identity}.parquet") for identity in (DONE, DIVERGED)])
        read = store.table(name)
        raw_table = raw_table.reset_index(drop=True).drop(columns=SETTINGS, errors="ignore")
        pd.testing.assert_frame_equal(read[raw_table.columns], raw_table)
        assert read.drop(columns=raw_table.columns).isna().all(axis=None), "columns that came later are unknown"
    for name in LATER:
        assert store.table(name).empty
    assert "gradient" in store.table("memory")
    assert "memoryless_loss" in store.table("replicas")
    assert len(store.table("curves")) == 2 * 2 * 3
    assert math.isinf(store.tables(DIVERGED)["curves"]["error"].iloc[-1])


def test_damage_of_a_result_of_schema_1_is_found_without_hashes(old: Path) -> None:
    file = old / "memory" / f"{DONE}.parquet"
    file.write_bytes(file.read_bytes()[:700])
    (damaged,) = Store(old).check([DONE, DIVERGED]).items()
    assert damaged[0] == DONE
    assert str(file) in damaged[1]
    file.unlink()
    assert "is missing though its record exists" in Store(old).check([DONE])[DONE]


def test_a_result_of_schema_1_is_adopted_as_it_is(old: Path, tmp_path: Path) -> None:
    assert find_elsewhere(tmp_path, [DONE, "x"]) == {DONE: Location.at(old)}
    new = Store(tmp_path / "new")
    assert new.copy_from(Store(old), DONE)
    for file in (f"records/{DONE}.json", *(f"{name}/{DONE}.parquet" for name in OLD_TABLES)):
        assert (tmp_path / "new" / file).read_bytes() == (GOLDEN / file).read_bytes()
    assert new.record(DONE)["schema"] == 1


@pytest.mark.parametrize("schema", [0, 4, 1000, "2", None, [2], {}])
def test_a_record_of_another_schema_is_refused_with_a_sentence(old: Path, schema: Any) -> None:
    file = old / "records" / f"{DONE}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": schema, "files": {}, "new": {"deep": 1}}))
    store = Store(old)
    for read in (lambda: store.record(DONE), store.records, lambda: store.table("curves"), lambda: store.tables(DONE)):
        with pytest.raises(StoreError) as caught:
            read()
        assert f"has schema {schema!r}; this version of memsweep reads 1 to 3" in str(caught.value)
        assert str(file) in str(caught.value)
    assert find_elsewhere(old.parent, [DONE]) == {}  # nor is it reused
    if isinstance(schema, int):  # of another version, and whole as far as anybody can tell: never set aside as damaged
        with pytest.raises(OtherSchemaError):
            store.check([DONE])
    else:
        assert "schema" in store.check([DONE])[DONE]
    file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "schema"}))
    with pytest.raises(StoreError, match="has schema None"):
        store.record(DONE)


@pytest.mark.parametrize("schema", [1, 4, "1", None])
def test_a_plan_of_another_schema_is_refused_with_a_sentence(old: Path, schema: Any) -> None:
    file = old / "plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": schema}))
    with pytest.raises(StoreError, match=rf"schema {schema!r}; this version of memsweep reads 3"):
        read_plan(old)


Change = Callable[[pa.Table], pa.Table]


def retyped(column: str, kind: pa.DataType) -> Change:
    return lambda table: table.set_column(
        table.column_names.index(column), pa.field(column, kind), table[column].cast(kind)
    )


def with_null(column: str) -> Change:
    def change(table: pa.Table) -> pa.Table:
        values = [None, *table[column].to_pylist()[1:]]
        at = table.column_names.index(column)
        return table.set_column(at, pa.field(column, table.schema.field(column).type), [values])

    return change


def other_row(table: pa.Table) -> pa.Table:
    """One row, not the first, is of another trial."""
    values = [*table["identity"].to_pylist()[:-1], DIVERGED]
    return table.set_column(table.column_names.index("identity"), table.schema.field("identity"), [values])


CHANGES: dict[str, tuple[str, Change, list[str]]] = {
    "missing": ("curves", lambda table: table.drop_columns(["radius"]), ["curves table", "radius double"]),
    "extra": ("curves", lambda table: table.append_column("angle", table["radius"]), ["angle", "absent"]),
    "renamed": (
        "replicas",
        lambda table: table.rename_columns([{"margin": "gap"}.get(name, name) for name in table.column_names]),
        ["gap", "margin double"],
    ),
    "swapped names": (
        "memory",
        lambda table: table.rename_columns(
            [{"lag": "learned", "learned": "lag"}.get(name, name) for name in table.column_names]
        ),
        ["lag int64", "learned double"],
    ),
    "float to float32": ("curves", retyped("error", pa.float32()), ["error double"]),
    "int to float": ("replicas", retyped("steps", pa.float64()), ["steps int64"]),
    "number to text": ("history", retyped("step", pa.string()), ["step int64"]),
    "null measurement": ("curves", with_null("error"), ["empty values in error"]),
    "null seed": ("replicas", with_null("seed"), ["empty values in seed"]),
    "null identity": ("memory", with_null("identity"), ["empty values in identity"]),
    "another trial": ("history", other_row, ["rows of another trial", DONE]),
    "another trial's file": ("curves", lambda table: pq.read_table(GOLDEN / "curves" / f"{DIVERGED}.parquet"), [DONE]),
}


@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_a_table_of_another_form_is_refused_by_name(old: Path, tmp_path: Path, kind: str, schema: int) -> None:
    """Of schema 2 the hash is right: the file is what somebody's program wrote, and not damaged."""
    name, change, words = CHANGES[kind]
    file = old / name / f"{DONE}.parquet"
    pq.write_table(change(pq.read_table(file, partitioning=None)), file)
    if schema == 2:
        record = json.loads((old / "records" / f"{DONE}.json").read_text())
        contents = {table: (old / table / f"{DONE}.parquet").read_bytes() for table in OLD_TABLES}
        files = {
            table: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for table, data in contents.items()
        }
        (old / "records" / f"{DONE}.json").write_text(json.dumps(record | {"schema": 2, "files": files}))
    store, other = Store(old), Store(tmp_path / "other")
    for read in (lambda: store.table(name), lambda: store.tables(DONE), lambda: other.copy_from(store, DONE)):
        with pytest.raises(StoreError) as caught:
            read()
        assert str(file) in str(caught.value)
        assert all(word in str(caught.value) for word in words), str(caught.value)
    assert other.identities() == frozenset()
    for untouched in set(OLD_TABLES) - {name}:
        assert len(store.table(untouched)) > 0
    if schema == 1:
        assert all(word in store.check([DONE])[DONE] for word in words)
