"""The tables of a result, their columns and types, and its weights: how both become the bytes of files.

A new column needs one line here: a table that was written before lacks it, and is read with nulls in it, which mean
that it was not measured. A column that is renamed, or whose numbers come to mean something else, needs a new version
of its table and a migration.
"""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memsweep import registry
from memsweep.config.core.fields import DURING
from memsweep.errors import StoreError, one_of
from memsweep.sweep.store.form import Form
from memsweep.sweep.store.record import MEND, FileOf

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor

CURVES, REPLICAS, METRICS = "curves", "replicas", "metrics"
MEMORY, HISTORY = "memory", "history"

_SIZE = {"identity": "string", "horizon": "int64", "width": "int64"}
SIZE = tuple(_SIZE)
"""The trial of a row of ``curves`` and ``replicas``, with the axes of a verdict's slopes; all but identity may be null.

The record holds all other settings of a trial, and a report joins them by identity."""

_KEYS = ("identity", "seed")
"""Columns of every table, without which no row can be used."""
_MAY_BE_EMPTY = frozenset({"metric", "width", "horizon"})
"""Columns in which an empty value says that there is none; in any other it says that it was not measured."""


@dataclass(frozen=True, kw_only=True)
class Table(Form["pa.Table"]):
    """The form of a table.

    Attributes:
        columns: name -> type.
        grows: those whose growth with width and horizon is reported -> what each of them is, in words.
    """

    version: int = 1
    columns: Mapping[str, str]
    grows: Mapping[str, str] = dataclasses.field(default_factory=dict)


DEFINITIONS: dict[str, Table] = {
    CURVES: Table(
        columns={
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
            "reading": "string",
            "change": "float64",
            "threshold": "float64",
        }
    ),
    REPLICAS: Table(
        columns={
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
        }
    ),
    # what a task reports beside its first metric
    METRICS: Table(
        columns={
            "identity": "string",
            "seed": "int64",
            "metric": "string",
            "value": "float64",
        }
    ),
    MEMORY: Table(
        columns={
            "identity": "string",
            "seed": "int64",
            "lag": "int64",
            "learned": "float64",
            "target": "float64",
            "gradient": "float64",
            "gradient_bound": "float64",
        }
    ),
    HISTORY: Table(
        columns={
            "identity": "string",
            "seed": "int64",
            "step": "int64",
            "train_loss": "float64",
            "validation_loss": "float64",
        }
    ),
}
"""The tables that are no measure's (``memsweep.stability.optional``)."""


def names() -> tuple[str, ...]:
    """The names of all tables: those of ``DEFINITIONS``, then those of the registered measures."""
    return tuple({**DEFINITIONS, **of_measures()})


def definition(name: str) -> Table:
    """The form of a table."""
    return DEFINITIONS[name] if name in DEFINITIONS else of_measures()[name]


def of_measures() -> Mapping[str, Table]:
    """The tables of the registered measures, by name."""
    return _of_measures(tuple(registry.names(registry.MEASURE)))


def in_training() -> tuple[str, ...]:
    """The tables of the measures that are taken in training."""
    measures = (registry.get(registry.MEASURE, name) for name in registry.names(registry.MEASURE))
    return tuple(measure.table for measure in measures if measure.when == DURING)


def tracked() -> tuple[str, ...]:
    """The tables of measures that are files of a trial's run in a tracking server, too."""
    measures = (registry.get(registry.MEASURE, name) for name in registry.names(registry.MEASURE))
    return tuple(measure.table for measure in measures if measure.is_tracked)


@functools.cache
def _of_measures(registered: tuple[str, ...]) -> dict[str, Table]:
    measures = (registry.get(registry.MEASURE, name) for name in registered)
    return {
        measure.table: Table(
            version=measure.version,
            migrations=measure.migrations,
            columns={"identity": "string", **(_SIZE if measure.has_sizes else {}), "seed": "int64", **measure.columns},
            grows=measure.grows,
        )
        for measure in measures
        if measure.table not in DEFINITIONS
    }


def columns(name: str) -> tuple[str, ...]:
    """The columns of a table, in order."""
    return tuple(definition(name).columns)


@functools.cache
def schema(name: str) -> pa.Schema:
    """The Arrow schema of a table as it is read, of whatever version its file is: every column may be empty."""
    return _schema(name, written=False)


def _schema(name: str, *, written: bool) -> pa.Schema:
    """The schema of a table that is read or written; of what is written, measured columns are not empty."""
    import pyarrow as pa

    types = {"string": pa.string(), "float64": pa.float64(), "int64": pa.int64(), "bool": pa.bool_()}
    return pa.schema(
        [
            pa.field(column, types[kind], nullable=not written or column in _MAY_BE_EMPTY)
            for column, kind in definition(name).columns.items()
        ]
    )


def not_measured(name: str, table: pa.Table) -> list[str]:
    """The columns of a table that its file lacks, because the version that wrote it did not measure them."""
    measured = (column for column in columns(name) if column not in _MAY_BE_EMPTY)
    return [column for column in measured if table[column].null_count]


def require_known(files: Mapping[str, FileOf], where: str) -> None:
    """Refuse the files of a result among which a table has a version that is not known.

    Raises:
        OtherSchemaError: see ``Form.require_known``.
    """
    for name in {*names()} & files.keys():
        definition(name).require_known(files[name]["version"], f"the {name} table of {where}")


def to_parquet(name: str, frame: pd.DataFrame, identity: str) -> bytes:
    """A table as Parquet bytes; NaN and infinities of measured columns stay what they are.

    Raises:
        StoreError: columns are missing or unknown, a value does not fit its column, or a row has another identity.
    """
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(_to_arrow(name, frame, identity), sink)
    return sink.getvalue()


def from_parquet(name: str, data: bytes, identity: str, where: str, version: int) -> pa.Table:
    """The table in the bytes of a file of some version, in the form of today.

    A column that the file lacks is null, and one that today's form lacks is left out.

    Raises:
        StoreError: no Parquet; of a version that is not known; a column is of another type; no identity or no seed; a
            value is null that may not be; a row is of another identity. The message names the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # not read_table, whose data sets of many files cost a small one four times as much
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise StoreError(f"{where} is damaged ({error}). {MEND}") from error
    table = definition(name).migrated(table, version, where)
    _check(name, table, identity, where)
    arrays = [
        table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema(name)
    ]
    return pa.Table.from_arrays(arrays, schema=schema(name))


def migrated_parquet(name: str, table: pa.Table) -> bytes:
    """A table that ``from_parquet`` gave as Parquet bytes in the form of today, without what was not measured."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table.drop_columns(not_measured(name, table)), sink)
    return sink.getvalue()


def _check(name: str, table: pa.Table, identity: str, where: str) -> None:
    """Refuse a table with columns of other types, without a key, with empty values, or with rows of another trial."""
    import pyarrow.compute as pc

    got = {field.name: str(field.type) for field in table.schema}
    expected = {field.name: str(field.type) for field in schema(name)}
    wrong = [f"{column} {kind}" for column, kind in expected.items() if got.get(column, kind) != kind]
    wrong += [f"{column} {expected[column]}" for column in _KEYS if column not in got]
    if wrong:
        raise StoreError(f"{where} is no {name} table of this version: it should have {', '.join(wrong)}. {MEND}")
    here = got.keys() & expected.keys() - _MAY_BE_EMPTY
    if empty := [column for column in expected if column in here and table[column].null_count]:
        raise StoreError(f"{where} has empty values in {one_of(empty)}. {MEND}")
    if table.num_rows and not pc.all(pc.equal(table["identity"], identity)).as_py():
        raise StoreError(f"{where} has rows of another trial than {identity}. {MEND}")


def misfit(name: str, frame: pd.DataFrame) -> str | None:
    """Why rows cannot be stored as a table, a sentence without a full stop; None: they can."""
    try:
        _arrays(name, frame)
    except StoreError as error:
        return str(error)
    return None


def _to_arrow(name: str, frame: pd.DataFrame, identity: str) -> pa.Table:
    import pyarrow as pa

    try:
        arrays = _arrays(name, frame)
    except StoreError as error:
        raise StoreError(f"the {name} table of {identity}: {error}.") from error
    foreign = set(frame["identity"]) - {identity}
    if foreign:
        raise StoreError(
            f"the {name} table of {identity} has rows of another identity: {', '.join(sorted(map(str, foreign)))}."
        )
    return pa.Table.from_arrays(arrays, schema=_schema(name, written=True))


def _arrays(name: str, frame: pd.DataFrame) -> list[pa.Array]:
    """The columns of a table that is to be written.

    Raises:
        StoreError: they are not those of the table, without its name and a full stop.
    """
    import pyarrow as pa

    expected = _schema(name, written=True)
    missing = [column for column in expected.names if column not in frame.columns]
    extra = [str(column) for column in frame.columns if column not in expected.names]
    if missing or extra:
        raise StoreError(
            f"wrong columns (missing: {', '.join(missing) or 'none'}; unknown: {', '.join(extra) or 'none'}). Allowed "
            f"are exactly: {', '.join(expected.names)}"
        )
    arrays = []
    for field in expected:
        # from_pandas turns NaN into null: right for a width that a model lacks, wrong for a measurement.
        try:
            array = (
                pa.Array.from_pandas(frame[field.name], type=field.type) if field.nullable else _measured(frame, field)
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"column {field.name!r} must be {field.type}: {error}") from error
        if array.null_count and not field.nullable:
            raise StoreError(
                f"column {field.name!r} has {array.null_count} empty values; only width, horizon and metric may have "
                "any (a missing measurement is nan)"
            )
        arrays.append(array)
    return arrays


def _measured(frame: pd.DataFrame, field: pa.Field) -> pa.Array:
    import pyarrow as pa

    series = frame[field.name]
    values = series.to_numpy() if series.dtype.kind in "iufb" else series.to_list()
    return pa.array(values, type=field.type, from_pandas=False)


def to_safetensors(weights: Mapping[int, Mapping[str, Tensor]]) -> bytes:
    """The file that holds these weights, seed -> name -> tensor. Equal weights give equal bytes.

    A trial's replicas share a file, because a bucket answers a request for a file, not for a byte. The format runs no
    code when it is read (https://github.com/huggingface/safetensors). Names in it are ``<seed>/<the module's own>``.
    """
    from memsweep.learning.state.weights_file import to_bytes

    return to_bytes({f"{seed}/{name}": value for seed, named in weights.items() for name, value in named.items()})


def from_safetensors(data: bytes, where: str) -> dict[int, dict[str, Tensor]]:
    """The weights in the bytes of a file that ``to_safetensors`` wrote, seed -> name -> tensor.

    Raises:
        StoreError: it is another file; the message names it.
    """
    from memsweep.learning.state.weights_file import from_bytes

    weights: dict[int, dict[str, Tensor]] = {}
    try:
        for key, value in from_bytes(data).items():
            seed, _, name = key.partition("/")
            weights.setdefault(int(seed), {})[name] = value
    except ValueError as error:
        raise StoreError(f"{where} holds no weights of a trial ({error}). {MEND}") from error
    return weights
