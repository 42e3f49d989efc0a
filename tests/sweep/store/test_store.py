"""The store keeps exactly what it was given, or says which file is wrong."""

from __future__ import annotations

import json
import math
import multiprocessing
import urllib.parse
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsweep import registry
from memsweep.errors import StoreError
from memsweep.sweep.planning.reuse import find_elsewhere
from memsweep.sweep.store import tables as table_files
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.record import SCHEMA, sealed
from memsweep.sweep.store.results import Store

A, B, C = "a" * 32, "b" * 32, "c" * 32
SEEDS, RADII = 2, (0.0, 0.1, 1.0)


def size(identity: str) -> dict[str, object]:
    return {"identity": identity, "horizon": None, "width": 4}


def make_record(identity: str, **changes: object) -> dict[str, object]:
    record = {
        "identity": identity,
        "study": "s",
        "outcome": "done",
        "config": {
            "task": {"name": "linear_functional"},
            "model": {"name": "diagonal_rnn", "width": 4},
            "training": {"steps": 7, "seeds": SEEDS},
            "perturbation": {},
        },
        "summary": {"error": 0.25, "worst": math.inf, "low": -math.inf, "margin": math.nan, "steps": 7, "why": "x"},
        "provenance": {"code_revision": "abc", "seconds": 1.5},
    }
    return record | changes


def make_tables(identity: str) -> dict[str, pd.DataFrame]:
    head = size(identity)
    curves = [
        {
            **head,
            "seed": s,
            "ball": "all",
            "norm": "spectral",
            "method": "worst_case",
            "radius": r,
            "zero_loss": 1.0,
            "exact": True,
            "stronger": math.nan,
            "reading": "drift",
            "change": r,
            "threshold": math.nan,
        }
        | {"error": math.inf if r == 1.0 else 0.25 + r}
        for s in range(SEEDS)
        for r in RADII
    ]
    measured = dict.fromkeys(("validation_loss", "error", "zero_loss", "memoryless_loss", "margin"), math.nan)
    replicas = [
        {**head, "seed": s, "outcome": "diverged", "steps": 7, "best_step": 5, **measured}
        | {"slowest_rate": math.nan, "encoder_norm": 1.0, "readout_norm": math.inf}
        | {"metric": None, "test_metric": math.nan}
        | dict.fromkeys([f"gradient_over_weight_{name}" for name in ("max", "median", "q90")], 1.0)
        for s in range(SEEDS)
    ]
    metrics = [{"identity": identity, "seed": s, "metric": "accuracy_2T", "value": 0.5} for s in (0, 1)]
    memory = [
        {"identity": identity, "seed": s, "lag": t, "learned": 0.1, "target": 0.2}
        | {"gradient": 0.5, "gradient_bound": math.nan}
        for s in (0, 1)
        for t in (0, 1)
    ]
    history = [{"identity": identity, "seed": 0, "step": 50, "train_loss": 0.5, "validation_loss": math.inf}]
    alignment = [{"identity": identity, "seed": 0, "step": 0, "layer": "all", "cosine": 0.5, "norm_ratio": math.nan}]
    frames = {"curves": curves, "replicas": replicas, "metrics": metrics}
    values = [{**head, "seed": 0, "map": "block", "index": 1, "value": 0.5}]
    over_inputs = [{**head, "seed": 0, "lag": 0, "median": 0.5, "high": 0.75, "largest": 1.0}]
    frames |= {"memory": memory, "history": history, "alignment": alignment}
    sharpness = [{**head, "seed": 0, "step": 0, "learning_rate": 0.01, "sharpness": 2.0, "margin": 0.5}]
    scales = {"output_change": 0.0, "time_scale_low": 0.5, "time_scale": 2.0, "time_scale_high": math.inf}
    frames["sharpness"] = [{**row, **scales, "ceiling": math.nan} for row in sharpness]
    worst = {"ball": "all", "norm": "spectral", "bound": 1.0, "radius": 0.1, "error": math.inf, "zero_error": 2.0}
    frames |= {"singular_values": values, "memory_over_inputs": over_inputs}
    frames["worst_inputs"] = [{**head, "seed": 0, **worst}]
    frames["linear_readout"] = [{**head, "seed": 0, "best": 1.5, "trained": 1.25, "states": 2}]
    return {name: pd.DataFrame(rows) for name, rows in frames.items()}


def filled(folder: Path, *identities: str) -> Store:
    store = Store(folder)
    for identity in identities:
        assert store.write(identity, make_record(identity), make_tables(identity))
    return store


def test_a_result_comes_back_as_it_went_in(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", B, A)
    assert store.identities() == {A, B}
    assert store.has(A)
    assert not store.has(C)
    record = store.record(A)
    assert record["schema"] == SCHEMA
    summary = record["summary"]
    assert summary["worst"] == math.inf
    assert summary["low"] == -math.inf
    assert math.isnan(summary["margin"])
    assert (summary["error"], summary["steps"], summary["why"]) == (0.25, 7, "x")
    assert [r["identity"] for r in store.records()] == [A, B]
    for name, given_frame in make_tables(A).items():
        read = store.tables(A)[name]
        assert tuple(read.columns) == table_files.columns(name)
        expected = given_frame[list(read.columns)].replace({None: math.nan})  # no exponent: null on disk, NaN in pandas
        pd.testing.assert_frame_equal(read, expected, check_dtype=False)
        assert sorted(set(store.table(name)["identity"])) == [A, B]


def test_a_record_is_strict_json_for_any_reader(tmp_path: Path) -> None:
    filled(tmp_path, A)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = (tmp_path / "records" / f"{A}.json").read_text()
    assert json.loads(text, parse_constant=refuse)["summary"]["worst"] == "inf"


def test_pandas_alone_reads_the_whole_study(tmp_path: Path) -> None:
    filled(tmp_path, A, B)
    counts = {"curves": 6, "replicas": 2, "metrics": 2, "memory": 4}
    for name in table_files.names():
        count = counts.get(name, 1)
        frame = pd.read_parquet(tmp_path / name)
        assert tuple(frame.columns) == table_files.columns(name)
        assert len(frame) == 2 * count
    curves = pd.read_parquet(tmp_path / "curves")
    assert np.isinf(curves["error"]).sum() == 2 * SEEDS
    assert curves["horizon"].isna().all()
    assert curves["width"].dtype == np.int64
    folders = {path.name for path in tmp_path.iterdir()}
    assert folders == {"records", *table_files.names(), ".partial"}
    assert list((tmp_path / ".partial").iterdir()) == []


def test_a_study_without_results_has_empty_tables_and_touches_no_disk(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert store.records() == []
    assert store.failures() == {}
    for name in table_files.names():
        frame = store.table(name)
        assert frame.empty
        assert tuple(frame.columns) == table_files.columns(name)
    assert not (tmp_path / "none").exists()


def test_results_are_immutable(tmp_path: Path) -> None:
    store = filled(tmp_path, A)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert not store.write(A, make_record(A, outcome="diverged"), {})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nothing_is_stored_when_a_table_cannot_be(tmp_path: Path) -> None:
    store = Store(tmp_path)
    good = make_tables(A)
    bad = {
        "lacks": good | {"curves": good["curves"].drop(columns="radius")},
        "extra": good | {"curves": good["curves"].assign(surprise=1)},
        "type": good | {"curves": good["curves"].assign(radius="far")},
        "integral": good | {"history": good["history"].assign(step=0.5)},
        "empty": good | {"replicas": good["replicas"].assign(outcome=None)},
        "foreign": good | {"memory": good["memory"].assign(identity=B)},
        "unknown": good | {"surprise": good["memory"]},
    }
    for name, tables in bad.items():
        with pytest.raises(StoreError, match=A):
            store.write(A, make_record(A), tables)
        assert not store.has(A), name
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_bad_record_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    lacking = make_record(A)
    del lacking["provenance"]
    with pytest.raises(StoreError, match="lacks provenance"):
        store.write(A, lacking, make_tables(A))
    with pytest.raises(StoreError, match="was to be stored as"):
        store.write(A, make_record(B), make_tables(A))
    with pytest.raises(StoreError, match="cannot be written as JSON"):
        store.write(A, make_record(A, config={"x": math.inf}), make_tables(A))
    with pytest.raises(StoreError, match="no trial identity"):
        store.write("../../etc/x", make_record("../../etc/x"), {})
    assert store.identities() == frozenset()


def test_numpy_scalars_are_plain_numbers_in_the_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    summary = {"a": np.float64("inf"), "b": np.int64(3), "c": np.float32(0.5), "d": np.bool_(True)}
    store.write(A, make_record(A, summary=summary), {})
    assert store.record(A)["summary"] == {"a": math.inf, "b": 3, "c": 0.5, "d": True}


def test_a_table_without_rows_has_no_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write(A, make_record(A), make_tables(A) | {"memory": pd.DataFrame([]).assign(identity=A)})
    store.write(B, make_record(B), {})
    assert len(store.table("curves")) == SEEDS * len(RADII)
    assert not (tmp_path / "memory").exists()
    assert tuple(store.table("memory").columns) == table_files.columns("memory")
    assert store.tables(B)["curves"].empty
    assert store.check([A, B]) == {}
    assert Store(tmp_path / "copy").copy_from(store, B)


def test_failures_are_replaced_and_end_with_success(tmp_path: Path) -> None:
    store = filled(tmp_path, B)
    store.fail(A, {"outcome": "failed", "error": "first", "traceback": ""})
    store.fail(A, {"outcome": "failed", "error": "second", "traceback": "…\n"})
    assert store.failures() == {A: {"identity": A, "outcome": "failed", "error": "second", "traceback": "…\n"}}
    store.write(A, make_record(A), make_tables(A))
    assert store.failures() == {}
    assert not (tmp_path / "failures" / f"{A}.json").exists()


@pytest.mark.parametrize("cut", [0, 1, 40, -1, -20])
def test_truncated_files_are_named_with_what_to_do(tmp_path: Path, cut: int) -> None:
    store = filled(tmp_path, A, B)
    record = tmp_path / "records" / f"{B}.json"
    table = tmp_path / "curves" / f"{B}.parquet"
    whole = record.read_bytes()
    for path, read in ((record, store.records), (table, lambda: store.table("curves"))):
        kept = path.read_bytes()
        # The last byte of the record is a line end: cut into the object itself.
        path.write_bytes(kept[: cut - 1 if cut < 0 else cut])
        with pytest.raises(StoreError) as caught:
            read()
        assert str(path) in str(caught.value)
        assert "memsweep resume STUDY" in str(caught.value)
        assert set(store.check([A, B])) == {B}
        path.write_bytes(kept)
    store.set_aside(B)
    assert store.identities() == {A}
    assert store.check([A]) == {}
    assert store.write(B, make_record(B), make_tables(B))
    assert record.read_bytes() == whole
    assert len(store.table("curves")) == 12


def test_a_missing_table_of_a_stored_result_is_an_error(tmp_path: Path) -> None:
    store = filled(tmp_path, A, B)
    (tmp_path / "memory" / f"{A}.parquet").unlink()
    with pytest.raises(StoreError, match="is missing though its record exists"):
        store.table("memory")


@pytest.mark.parametrize("name", table_files.names())
def test_a_file_that_is_not_what_was_written_is_known_though_it_can_be_read(tmp_path: Path, name: str) -> None:
    """Bit rot, a file of another run, zeros of the right length: the hash in the record tells."""
    store = filled(tmp_path, A, B)
    path = tmp_path / name / f"{B}.parquet"
    whole = path.read_bytes()
    other = make_tables(B)[name]
    other.iloc[0, other.columns.get_loc("seed")] += 7
    foreign = table_files.to_parquet(name, other, B)
    for data in (foreign, bytes(len(whole)), whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(data)
        assert set(store.check([A, B])) == {B}
        with pytest.raises(StoreError, match="it is not what was written"):
            store.table(name)


def test_changed_and_foreign_records_are_refused(tmp_path: Path) -> None:
    store = filled(tmp_path, A)
    path = tmp_path / "records" / f"{A}.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"outcome": "diverged"}))
    with pytest.raises(StoreError, match="it is not what was written"):
        store.record(A)
    path.write_text(json.dumps(sealed(record | {"outcome": "dune"})))
    with pytest.raises(StoreError, match="malformed: outcome"):
        store.record(A)
    path.write_text(json.dumps(sealed(record | {"identity": B})))
    with pytest.raises(StoreError, match="holds the record of"):
        store.record(A)
    path.write_text("[1, 2]")
    with pytest.raises(StoreError, match="holds a list"):
        store.record(A)
    with pytest.raises(StoreError, match="holds no result"):
        store.record(B)


def test_an_unfinished_write_is_no_result(tmp_path: Path) -> None:
    """Tables without a record, as a kill between the two leaves them, are not read and are written over."""
    store = filled(tmp_path, A, B)
    (tmp_path / "records" / f"{B}.json").unlink()
    (tmp_path / "history" / f"{B}.parquet").write_bytes(b"half")
    assert store.identities() == {A}
    assert set(store.table("curves")["identity"]) == {A}
    assert store.write(B, make_record(B), make_tables(B))
    assert set(store.table("history")["identity"]) == {A, B}


def _write_many(folder: Path, identities: list[str], won: multiprocessing.Queue[int]) -> None:
    registry.discover()  # a new process knows no measure, nor its table
    store = Store(folder)
    won.put(sum(store.write(identity, make_record(identity), make_tables(identity)) for identity in identities))


@pytest.mark.more
def test_two_processes_may_write_the_same_results(tmp_path: Path) -> None:
    identities = [f"{i:032x}" for i in range(8)]
    context = multiprocessing.get_context("spawn")
    won: multiprocessing.Queue[int] = context.Queue()
    writers = [context.Process(target=_write_many, args=(tmp_path, identities, won)) for _ in range(2)]
    for writer in writers:
        writer.start()
    counts = [won.get(timeout=600) for _ in writers]
    for writer in writers:
        writer.join(timeout=600)
        assert writer.exitcode == 0
    assert sum(counts) >= len(identities)
    assert Store(tmp_path).identities() == set(identities)
    assert len(Store(tmp_path).table("curves")) == 8 * SEEDS * len(RADII)


def test_results_are_found_in_other_studies_and_adopted_unchanged(tmp_path: Path) -> None:
    filled(tmp_path / "one", A)
    filled(tmp_path / "two", A, B)
    (tmp_path / "mlartifacts").mkdir()
    (tmp_path / "mlflow.db").touch()
    assert find_elsewhere(tmp_path, [A, B, C]) == {A: Location.at(tmp_path / "one"), B: Location.at(tmp_path / "two")}
    assert find_elsewhere(tmp_path / "none", [A]) == {}
    three = Store(tmp_path / "three")
    three.fail(B, {"outcome": "failed", "error": "x", "traceback": ""})
    assert three.copy_from(Store(tmp_path / "two"), B)
    assert not three.copy_from(Store(tmp_path / "two"), B)
    assert three.failures() == {}
    for name in ("records", *table_files.names()):
        file = f"{B}.json" if name == "records" else f"{B}.parquet"
        assert (tmp_path / "three" / name / file).read_bytes() == (tmp_path / "two" / name / file).read_bytes()


def test_a_damaged_result_does_not_spread(tmp_path: Path) -> None:
    filled(tmp_path / "one", A)
    (tmp_path / "one" / "curves" / f"{A}.parquet").write_bytes(b"PAR1")
    two = Store(tmp_path / "two")
    with pytest.raises(StoreError, match="is damaged"):
        two.copy_from(Store(tmp_path / "one"), A)
    assert not two.has(A)
    assert find_elsewhere(tmp_path, [A]) == {}


def test_a_disk_that_refuses_is_explained(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"cannot write .*finished results are kept"):
        Store(tmp_path / "s").write(A, make_record(A), make_tables(A))


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_folder_names_are_safe_and_injective(one: str, two: str) -> None:
    first = folder_name(one)
    assert set(first) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-%")
    assert first.strip(".")
    assert urllib.parse.unquote(first) == one
    assert (first == folder_name(two)) == (one == two)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("quickstart", "quickstart"),
        (".", "%2E"),
        ("..", "%2E."),
        ("<script>alert(1)</script>", "%3Cscript%3Ealert%281%29%3C%2Fscript%3E"),
        ("a~b c%", "a%7Eb%20c%25"),
        ("mlartifacts", "%6Dlartifacts"),
        ("mlflow.db", "%6Dlflow.db"),
        ("é", "%C3%A9"),
    ],
)
def test_folder_names_of_note(name: str, folder: str) -> None:
    assert folder_name(name) == folder


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 60])
def test_names_without_a_folder_are_refused(name: str) -> None:
    with pytest.raises(StoreError, match="Give the study another name"):
        folder_name(name)
