"""Files of older versions are read; newer ones, and tables of another form, are refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_store import A, B, filled

from memsweep.errors import StoreError
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.planning.reuse import find_elsewhere
from memsweep.sweep.store.form import OtherSchemaError
from memsweep.sweep.store.record import SCHEMA, file_of, sealed, to_json
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.tables import names as table_names


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A study of two results."""
    filled(tmp_path / "old", A, B)
    return tmp_path / "old"


def rewrite(file: Path, changes: dict[str, Any], *, seal: bool = True) -> None:
    """Changes the content of a sealed file, under a right seal or under none."""
    content = {**json.loads(file.read_text()), **changes}
    content.pop("sha256", None)
    file.write_bytes(to_json(sealed(content) if seal else content, "it"))


@pytest.mark.parametrize("seal", [True, False], ids=["sealed", "unsealed"])
@pytest.mark.parametrize("schema", [0, 1, 2, SCHEMA + 1, 1000])
def test_a_record_of_another_version_is_refused_with_what_to_do(old: Path, schema: int, seal: bool) -> None:
    file = old / "records" / f"{A}.json"
    rewrite(file, {"schema": schema, "new": {"deep": 1}}, seal=seal)
    store = Store(old)
    for read in (lambda: store.record(A), store.records, lambda: store.table("curves"), lambda: store.tables(A)):
        with pytest.raises(OtherSchemaError) as caught:
            read()
        age, way = ("a newer", "Install") if schema > SCHEMA else ("an older", "Read it with the version that wrote it")
        assert f"{file} was written by {age} version of memsweep, whose files have schema {schema}" in str(caught.value)
        assert f"reads schema 3 to {SCHEMA}. {way}" in str(caught.value)
        assert "or run the study again in another results folder (--results)" in str(caught.value)
    assert find_elsewhere(old.parent, [A]) == {}  # nor is it reused
    with pytest.raises(OtherSchemaError):  # it may be whole: never set aside as damaged
        store.check([A])


@pytest.mark.parametrize("schema", ["3", None, [3], {}, True, 3.0])
def test_a_schema_that_is_no_whole_number_is_damage(old: Path, schema: Any) -> None:
    rewrite(old / "records" / f"{A}.json", {"schema": schema})
    assert "schema must be int" in Store(old).check([A])[A]


def test_a_record_without_a_seal_is_damaged(old: Path) -> None:
    rewrite(old / "records" / f"{A}.json", {}, seal=False)
    assert "is damaged: it is not what was written" in Store(old).check([A])[A]


@pytest.mark.parametrize("schema", [0, 1, 2, 4])
def test_a_plan_of_another_version_is_refused_with_what_to_do(tmp_path: Path, schema: int) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"schema": schema, "study": "s", "trials": []}))
    with pytest.raises(OtherSchemaError, match=rf"schema {schema}; .*run the study again in another results folder"):
        read_plan(tmp_path)


Change = Callable[[pa.Table], pa.Table]


def replace_table(study: Path, name: str, change: Change, version: int = 1) -> Path:
    """Another table in the place of one of a result, as if a version of memsweep had written it."""
    file, record = study / name / f"{A}.parquet", study / "records" / f"{A}.json"
    pq.write_table(change(pq.read_table(file, partitioning=None)), file)
    files = json.loads(record.read_text())["files"]
    rewrite(record, {"files": {**files, name: file_of(file.read_bytes(), version)}})
    return file


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
    values = [*table["identity"].to_pylist()[:-1], B]
    return table.set_column(table.column_names.index("identity"), table.schema.field("identity"), [values])


CHANGES: dict[str, tuple[str, Change, list[str]]] = {
    "no identity": ("curves", lambda table: table.drop_columns(["identity"]), ["curves table", "identity string"]),
    "no seed": ("memory", lambda table: table.drop_columns(["seed"]), ["memory table", "seed int64"]),
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
    "another trial": ("history", other_row, ["rows of another trial", A]),
}


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_a_table_of_another_form_is_refused_by_name(old: Path, tmp_path: Path, kind: str) -> None:
    """The hash is right: the file is what somebody's program wrote, and not damaged."""
    name, change, words = CHANGES[kind]
    file = replace_table(old, name, change)
    store, other = Store(old), Store(tmp_path / "other")
    for read in (lambda: store.table(name), lambda: store.tables(A), lambda: other.copy_from(store, A)):
        with pytest.raises(StoreError) as caught:
            read()
        assert str(file) in str(caught.value)
        assert all(word in str(caught.value) for word in words), str(caught.value)
    assert other.identities() == frozenset()
    for untouched in set(table_names()) - {name}:
        assert len(store.table(untouched)) > 0
