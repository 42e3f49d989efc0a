"""The settings of trials, read from their configs: stored tables hold measurements, and are joined by identity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from memsweep.config.schema.canonical import flatten

_SEEDS = ("training.first_seed", "training.seeds")


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> value of a canonical config; a part's name stands at the part's own path, a list is JSON."""
    return {path.removesuffix(".name"): _hashable(value) for path, value in flatten(config).items()}


def trial_table(
    records: Mapping[str, Mapping[str, Any]], replicas: pd.DataFrame, always: Iterable[str]
) -> pd.DataFrame:
    """A row per trial, with the settings that measured tables lack.

    Args:
        records: identity -> record; of each, its config.
        replicas: columns identity, width and horizon.
        always: dotted paths of fields that are columns wherever a config has them.

    Returns:
        Columns identity; ``always`` and all fields that differ between the trials, by dotted path; width and horizon;
        the first seed and the number of seeds. A field that a trial lacks is None.
    """
    fields = {identity: fields_of(record["config"]) for identity, record in records.items()}
    paths = dict.fromkeys(path for values in fields.values() for path in values)
    differing = [path for path in paths if len({values.get(path) for values in fields.values()}) > 1]
    names = [path for path in dict.fromkeys([*always, *differing]) if path in paths and path not in _SEEDS]
    columns = ["identity", *names, "width", "horizon", *_SEEDS]
    if not fields:
        return pd.DataFrame(columns=columns)
    sizes = replicas.drop_duplicates("identity").set_index("identity")[["width", "horizon"]]
    rows = [
        {"identity": identity} | {path: values.get(path) for path in (*names, *_SEEDS)}
        for identity, values in fields.items()
    ]
    return pd.DataFrame(rows, dtype=object).join(sizes, on="identity")[columns]


def with_settings(table: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """A measured table with the settings of each row's trial behind its identity.

    Args:
        table: has a column identity.
        trials: of ``trial_table``. Its columns that the table lacks are added; the seeds only where they vary.
    """
    constant = [name for name in _SEEDS if name in trials and trials[name].nunique(dropna=False) < 2]
    added = trials.drop(columns=[*constant, *({*trials.columns} & {*table.columns} - {"identity"})])
    added = typed(added)
    rest = [name for name in table.columns if name != "identity"]
    words = table.astype(dict.fromkeys(table.select_dtypes("category").columns, "str"))  # as every reader knows them
    return words.merge(added, on="identity", how="left")[[*added.columns, *rest]]


def typed(trials: pd.DataFrame) -> pd.DataFrame:
    """Settings with numbers as numbers; a column of several types, which no file format holds, is text."""
    plain = trials.infer_objects()
    mixed = [name for name in plain.columns if pd.api.types.infer_dtype(plain[name], skipna=True).startswith("mixed")]
    return plain.assign(**{name: plain[name].map(_as_text, na_action="ignore") for name in mixed})


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _hashable(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, tuple, dict)) else value
