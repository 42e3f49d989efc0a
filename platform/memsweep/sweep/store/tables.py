"""The tables of a result: their columns and types, and how they become Parquet bytes."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from memsweep.errors import StoreError, one_of
from memsweep.stability.optional import tables
from memsweep.sweep.store.record import MEND

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CURVES, REPLICAS, METRICS = "curves", "replicas", "metrics"
MEMORY, HISTORY, ALIGNMENT = "memory", "history", "alignment"
SHARPNESS = "sharpness"
CORE = (CURVES, REPLICAS, METRICS, MEMORY, HISTORY, ALIGNMENT, SHARPNESS)
"""The tables that are no measure's (``memsweep.stability.optional``)."""

_SIZE = {"identity": "string", "horizon": "int64", "width": "int64"}
SIZE = tuple(_SIZE)
"""The trial of a row of ``curves`` and ``replicas``, with the axes of a verdict's slopes; all but identity may be null.

The record holds all other settings of a trial, and a report joins them by identity."""

_COLUMNS: dict[str, dict[str, str]] = {
    CURVES: {
        **_SIZE,
        "seed": "int64",
        "ball": "string",
        "norm": "string",
        "method": "string",
        "radius": "float64",
        "error": "float64",
        "zero_loss": "float64",
        "exact": "bool",
        "stronger": "float64",
    },
    REPLICAS: {
        **_SIZE,
        "seed": "int64",
        "outcome": "string",
        "steps": "int64",
        "best_step": "int64",
        "validation_loss": "float64",
        "error": "float64",
        "zero_loss": "float64",
        "memoryless_loss": "float64",
        "margin": "float64",
        "slowest_rate": "float64",
        "encoder_norm": "float64",
        "readout_norm": "float64",
        "metric": "string",
        "test_metric": "float64",
        "gradient_over_weight_max": "float64",
        "gradient_over_weight_median": "float64",
        "gradient_over_weight_q90": "float64",
    },
    METRICS: {  # what a task reports beside its first metric
        "identity": "string",
        "seed": "int64",
        "metric": "string",
        "value": "float64",
    },
    MEMORY: {
        "identity": "string",
        "seed": "int64",
        "lag": "int64",
        "learned": "float64",
        "target": "float64",
        "gradient": "float64",
        "gradient_bound": "float64",
    },
    HISTORY: {
        "identity": "string",
        "seed": "int64",
        "step": "int64",
        "train_loss": "float64",
        "validation_loss": "float64",
    },
    ALIGNMENT: {
        "identity": "string",
        "seed": "int64",
        "step": "int64",
        "layer": "string",
        "cosine": "float64",
        "norm_ratio": "float64",
    },
    SHARPNESS: {  # in training
        **_SIZE,
        "seed": "int64",
        "step": "int64",
        "learning_rate": "float64",
        "sharpness": "float64",
        "ceiling": "float64",
        "margin": "float64",
        "output_change": "float64",
        "time_scale_low": "float64",
        "time_scale": "float64",
        "time_scale_high": "float64",
    },
}


def names() -> tuple[str, ...]:
    """The names of all tables: the core's, then those of the registered measures."""
    return (*CORE, *tables())


def columns(name: str) -> tuple[str, ...]:
    """The columns of a table, in order."""
    return tuple(_typed(name))


def _typed(name: str) -> Mapping[str, str]:
    """The columns of a table with their types."""
    return _COLUMNS[name] if name in _COLUMNS else {**_SIZE, "seed": "int64", **tables()[name]}


def schema(name: str) -> pa.Schema:
    """The Arrow schema of a table. ``metric``, ``width`` and ``horizon`` may be null, nothing else may."""
    return _schema(tuple(_typed(name).items()))


@functools.cache
def _schema(typed: tuple[tuple[str, str], ...]) -> pa.Schema:
    import pyarrow as pa

    types = {"string": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}
    return pa.schema([pa.field(column, types[kind], nullable=_nullable(column)) for column, kind in typed])


def to_parquet(name: str, frame: pd.DataFrame, identity: str) -> bytes:
    """A table as Parquet bytes; NaN and infinities of measured columns stay what they are.

    Raises:
        StoreError: columns are missing or unknown, a value does not fit its column, or a row has another identity.
    """
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(_to_arrow(name, frame, identity), sink)
    return sink.getvalue()


def from_parquet(name: str, data: bytes, identity: str, where: str) -> pa.Table:
    """The table in the bytes of a file, checked against the schema.

    Raises:
        StoreError: no Parquet; a column is missing, unknown or of another type; a value is null that may not be; a
            row is of another identity. The message names the file.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        # not read_table, whose data sets of many files cost a small one four times as much
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{where} is damaged ({error}). {MEND}") from error
    expected_schema = schema(name)
    got = {field.name: str(field.type) for field in table.schema}
    expected = {field.name: str(field.type) for field in expected_schema}
    if got != expected:
        differing = sorted(column for column in got.keys() | expected if got.get(column) != expected.get(column))
        raise StoreError(
            f"{where} is no {name} table of this version: {one_of(differing)} should be "
            f"{', '.join(f'{column} {kind}' for column, kind in expected.items() if column in differing) or 'absent'}. "
            f"{MEND}"
        )
    empty_cells = [field.name for field in expected_schema if not field.nullable and table[field.name].null_count]
    if empty_cells:
        raise StoreError(f"{where} has empty values in {one_of(empty_cells)}. {MEND}")
    if table.num_rows and not pc.all(pc.equal(table["identity"], identity)).as_py():
        raise StoreError(f"{where} has rows of another trial than {identity}. {MEND}")
    return pa.Table.from_arrays([table[column] for column in expected_schema.names], schema=expected_schema)


def _to_arrow(name: str, frame: pd.DataFrame, identity: str) -> pa.Table:
    import pyarrow as pa

    expected_schema = schema(name)
    missing = [column for column in expected_schema.names if column not in frame.columns]
    extra = [str(column) for column in frame.columns if column not in expected_schema.names]
    if missing or extra:
        raise StoreError(
            f"the {name} table of {identity} has the wrong columns (missing: {', '.join(missing) or 'none'}; "
            f"unknown: {', '.join(extra) or 'none'}). Allowed are exactly: {', '.join(expected_schema.names)}."
        )
    foreign = set(frame["identity"]) - {identity}
    if foreign:
        raise StoreError(
            f"the {name} table of {identity} has rows of another identity: {', '.join(sorted(map(str, foreign)))}."
        )
    arrays = []
    for field in expected_schema:
        # from_pandas turns NaN into null: right for a width that a model lacks, wrong for a measurement.
        try:
            array = (
                pa.Array.from_pandas(frame[field.name], type=field.type) if field.nullable else _measured(frame, field)
            )
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise StoreError(
                f"column {field.name!r} of the {name} table of {identity} must be {field.type}: {error}"
            ) from error
        if array.null_count and not field.nullable:
            raise StoreError(
                f"column {field.name!r} of the {name} table of {identity} has {array.null_count} empty values; "
                "only width, horizon and metric may have any (a missing measurement is nan)."
            )
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=expected_schema)


def _measured(frame: pd.DataFrame, field: pa.Field) -> pa.Array:
    import pyarrow as pa

    series = frame[field.name]
    values = series.to_numpy() if series.dtype.kind in "iufb" else series.to_list()
    return pa.array(values, type=field.type, from_pandas=False)


def _nullable(column: str) -> bool:
    return column in ("metric", "width", "horizon")
