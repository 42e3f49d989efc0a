"""The file of a row of the atlas: what ``--export`` writes and ``--add`` reads, its form, and what must agree in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from memsweep import __version__
from memsweep.commands.atlas.rows import LONGER, TIMES, AtlasRow, Cell, known_cell
from memsweep.commands.outputs import write_file
from memsweep.report.analysis.losses import ACCURACY, Spread
from memsweep.sweep.planning.fingerprint import named_fingerprint
from memsweep.sweep.planning.identity import Arithmetic, training_code
from memsweep.sweep.store.form import Form, OtherSchemaError, mismatch
from memsweep.sweep.store.record import IdentityOf, now

if TYPE_CHECKING:
    from memsweep.report.analysis.contents import Contents
    from memsweep.report.analysis.losses import LossRow

KIND = "memsweep atlas row"
"""The first key of such a file, so that no other one is taken for it."""
SCHEMA = 1
_FORM = Form[dict[str, Any]](SCHEMA)
MOST = 4_000_000
"""Bytes that are read of a file: a row has some tens of kB."""
_ROUNDED = 1e-9  # by which a median may differ that another machine took


class CellOf(TypedDict):
    """Accuracy on a task: median, least and most over seeds, and their number."""

    accuracy: float
    low: float
    high: float
    seeds: int


class TrialOf(TypedDict):
    """A trial of the row.

    Attributes:
        identity: of the trial, as its record has it.
        config: its canonical configuration.
        identity_of: the other parts of its identity.
        training_code: hash of the code that trained it.
        layer_code: hash of the author's code alone.
        parameters: of its model.
        values: metric -> number of each seed; null where training diverged.
    """

    identity: str
    config: dict[str, Any]
    identity_of: IdentityOf
    training_code: str
    layer_code: str
    parameters: int
    values: dict[str, Sequence[float | None]]


class RowFile(TypedDict):
    """A row of the atlas.

    Attributes:
        kind: ``KIND``.
        schema: version of this form.
        layer: import path of the layer, as its author typed it.
        protocol: the study by whose settings it was trained.
        overrides: the author's, which are not the protocol's.
        memsweep: version that wrote the file.
        written: when, UTC.
        cells: column of the atlas -> headline figures. They follow from the values of the trials.
        trials: whose seeds they are over.
    """

    kind: str
    schema: int
    layer: str
    protocol: str
    overrides: list[str]
    memsweep: str
    written: str
    cells: dict[str, CellOf]
    trials: list[TrialOf]


def write_row(path: Path, own: AtlasRow, contents: Contents, protocol: str) -> None:
    """Writes the row of a layer whose study has these results.

    Raises:
        StorageError: the file cannot be written.
    """
    trials = [trial for row in contents.losses for trial in _trials(row, contents)]
    file: RowFile = {
        "kind": KIND,
        "schema": SCHEMA,
        "layer": own.unit,
        "protocol": protocol,
        "overrides": list(own.changed),
        "memsweep": __version__,
        "written": now(),
        "cells": {
            name: {"accuracy": cell.middle, "low": cell.low, "high": cell.high, "seeds": cell.seeds}
            for name, cell in own.cells.items()
            if cell.known
        },
        "trials": trials,
    }
    write_file(path, (json.dumps(file, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode())


def _trials(row: LossRow, contents: Contents) -> Iterator[TrialOf]:
    from memsweep.config.schema.canonical import trial_from_dict

    identities = row.column("identity").to_numpy()
    numbers = {ACCURACY: row.column("test_metric").to_numpy(float), **row.lengths}
    for identity in row.identities:
        record = contents.study.records[identity]
        config, place = trial_from_dict(record["config"]), record["provenance"]["identity_of"]
        yield {
            "identity": identity,
            "config": record["config"],
            "identity_of": place,
            "training_code": training_code(config, Arithmetic(place["device"], place["shards"])),
            "layer_code": named_fingerprint(config),
            "parameters": parameters_of(config),
            "values": {
                name: [None if math.isnan(value) else value for value in values[identities == identity].tolist()]
                for name, values in numbers.items()
                if len(values) == len(identities)
            },
        }


def parameters_of(config: Any) -> int:
    """How many parameters the model of a trial has; its layer is made for that."""
    from memsweep import registry

    return int(registry.get(registry.MODEL, config.model.name).count_parameters(config.model, config.task))


def content_of(path: Path) -> bytes:
    """The bytes of such a file, as far as ``read_row`` wants them.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(MOST)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from error


def read_row(content: bytes) -> RowFile:
    """The row in such a file, whose form is right; what it says is not looked at.

    Raises:
        ValueError: a sentence that says what is wrong with the file.
    """
    if len(content) >= MOST:
        raise ValueError(f"it has {MOST:,} bytes or more, and a row of the atlas has some ten thousand")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ValueError(
            f"it is no row of the atlas, whose key 'kind' says {KIND!r}: memsweep atlas --export writes one"
        )
    if type(data.get("schema")) is not int:
        raise ValueError("its key 'schema' must be a whole number")
    try:
        data = _FORM.migrated(data, data["schema"], "the file")
    except OtherSchemaError as error:
        raise ValueError(str(error).rstrip(".")) from error
    if wrong := mismatch(data, RowFile):
        raise ValueError(f"it is malformed: {wrong}")
    return cast(RowFile, data)


def cells_of(trials: Iterable[TrialOf], columns: Iterable[str]) -> dict[str, Cell]:
    """The headline figures that follow from the values of trials, by column; nan where no trial has the task."""
    found: dict[str, dict[str, list[float]]] = {}
    for trial in trials:
        of_task = found.setdefault(str(trial["config"]["task"]["name"]), {})
        for metric, values in trial["values"].items():
            of_task.setdefault(metric, []).extend(math.nan if value is None else value for value in values)
    cells = {}
    for column in columns:
        of_task = found.get(column.removesuffix(TIMES), {})
        values = of_task.get(LONGER if column.endswith(TIMES) else ACCURACY, [])
        cells[column] = known_cell(Spread.of(values), len(of_task.get(ACCURACY, ())))
    return cells


def differing(told: Mapping[str, CellOf], computed: Mapping[str, Cell]) -> list[str]:
    """The columns whose figures in the file do not follow from the values of its trials."""
    known = {name: cell for name, cell in computed.items() if cell.known}
    return [
        name
        for name in {**told, **known}
        if name not in told or name not in known or not _equal(told[name], known[name])
    ]


def _equal(told: CellOf, cell: Cell) -> bool:
    pairs = ((told["accuracy"], cell.middle), (told["low"], cell.low), (told["high"], cell.high))
    return told["seeds"] == cell.seeds and all(abs(one - other) <= _ROUNDED for one, other in pairs)
