"""The section ``claims`` of a study: a published table, comparisons of its cells, or both.

::

    claims:
      source: README of the method's repository
      rows:
        - {name: Diagonal RNN, where: {model: diagonal_rnn, parameterization: direct}, exponential: stable}
      compare: [...]

Each row names its conditions (``where``) and gives a verdict for each kernel. Without a table, the section may be the
list of comparisons itself (``memsweep.config.claims.comparisons``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memsweep import registry
from memsweep.config.claims.comparisons import EXAMPLE, Cells, read_comparisons
from memsweep.config.core.problems import join, not_one_of, sentence, show
from memsweep.config.core.reflect import keys, part_config
from memsweep.config.schema.claims import Claim, Claims
from memsweep.errors import did_you_mean, one_of

CLAIMS = "claims"
COLUMNS = ("task", "kernel", "rate", "exponent", "model", "activation", "parameterization", "normalize")
"""The keys of a row's ``where``: the condition columns of the report."""
VERDICTS = ("stable", "unstable")
_NAME, _WHERE, _ROWS, _SOURCE, _COMPARE = "name", "where", "rows", "source", "compare"
_KEYS = (_SOURCE, _ROWS, _COMPARE)
_REGISTERED = {"task": registry.TASK, "model": registry.MODEL, "parameterization": registry.PARAMETERIZATION}


def study_claims(data: Any, cells: Cells, problems: list[str]) -> Claims | None:
    """The ``claims`` section of a study from plain data; None when there is none or it is wrong.

    ``cells`` are empty where something else is wrong: then comparisons are not checked against them.
    """
    if data is None:
        return None
    before = len(problems)
    if isinstance(data, list | tuple):
        claims = Claims(compare=read_comparisons(data, CLAIMS, cells, problems))
        return claims if len(problems) == before else None
    if not isinstance(data, Mapping):
        rule = f"must be a mapping with the keys {_SOURCE} and {_ROWS}, or a list of comparisons such as {EXAMPLE}"
        problems.append(sentence(CLAIMS, rule, show(data)))
        return None
    for key in data:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS)
            problems.append(sentence(join(CLAIMS, key), f"no such field.{hint} Fields: {', '.join(_KEYS)}"))
    path = join(CLAIMS, _COMPARE)
    compare = read_comparisons(data[_COMPARE], path, cells, problems) if _COMPARE in data else ()
    source, table = ("", ()) if _COMPARE in data and not {_SOURCE, _ROWS} & data.keys() else _table(data, problems)
    return Claims(source, table, compare) if len(problems) == before else None


def _table(data: Mapping[str, Any], problems: list[str]) -> tuple[str, tuple[Claim, ...]]:
    source, rows = data.get(_SOURCE), data.get(_ROWS)
    if not isinstance(source, str) or not source.strip():
        problems.append(sentence(join(CLAIMS, _SOURCE), "must say in words where this was published", show(source)))
    if not isinstance(rows, list | tuple) or not rows:
        problems.append(sentence(join(CLAIMS, _ROWS), "must be a list of at least one row", show(rows)))
        return str(source), ()
    return str(source), tuple(_row(row, f"{CLAIMS}.{_ROWS}[{index}]", problems) for index, row in enumerate(rows))


def _row(row: Any, path: str, problems: list[str]) -> Claim:
    if not isinstance(row, Mapping):
        problems.append(sentence(path, f"must be a mapping: a {_NAME}, {_WHERE}, and a verdict per kernel", show(row)))
        return Claim("", {}, {})
    name = row.get(_NAME)
    if not isinstance(name, str) or not name.strip():
        problems.append(sentence(join(path, _NAME), "must be the row's label, as text", show(name)))
    verdicts = {key: value for key, value in row.items() if key not in (_NAME, _WHERE)}
    if not verdicts:
        problems.append(sentence(path, "claims nothing. Give it a verdict for a kernel, such as exponential: stable"))
    for kernel, verdict in verdicts.items():
        problems += _verdict_problems(kernel, verdict, path)
    return Claim(str(name), _where(row.get(_WHERE, {}), join(path, _WHERE), problems), verdicts)


def _verdict_problems(kernel: Any, verdict: Any, path: str) -> Iterable[str]:
    known = _kernels()
    if known and kernel not in known:
        near = did_you_mean(kernel, (*known, _WHERE, _NAME))
        yield sentence(join(path, kernel), f"there is no such kernel.{near} Kernels: {one_of(known)}")
    if verdict not in VERDICTS:
        yield str(not_one_of(join(path, kernel), verdict, VERDICTS))


def _where(data: Any, path: str, problems: list[str]) -> dict[str, tuple[Any, ...]]:
    if not isinstance(data, Mapping):
        problems.append(sentence(path, "must be a mapping of condition columns to values", show(data)))
        return {}
    where: dict[str, tuple[Any, ...]] = {}
    for column, value in data.items():
        if column not in COLUMNS:
            hint = did_you_mean(column, COLUMNS)
            problems.append(sentence(join(path, column), f"no such column.{hint} Columns: {', '.join(COLUMNS)}"))
            continue
        where[column] = tuple(value) if isinstance(value, list | tuple) else (value,)
        problems += _value_problems(column, where[column], join(path, column))
    return where


def _value_problems(column: str, values: tuple[Any, ...], path: str) -> Iterable[str]:
    if not values:
        yield sentence(path, "is an empty list, which no condition fits. Leave the column out")
    for value in values:
        if not (value is None or isinstance(value, bool | int | float | str)):
            yield sentence(path, "must be a value or a list of values", show(value))
        elif column in _REGISTERED and value is not None:
            bare = str(value).partition("(")[0]
            if bare not in registry.names(_REGISTERED[column]):
                yield sentence(path, registry.unknown(_REGISTERED[column], bare))
        elif column == "kernel" and (known := _kernels()) and value not in known:
            yield sentence(path, f"there is no such kernel.{did_you_mean(value, known)} Kernels: {one_of(known)}")


def _kernels() -> tuple[str, ...]:
    """Every kernel that a registered task offers; empty (nothing to check against) where a task takes any text."""
    kernels: dict[str, None] = {}
    for name in registry.names(registry.TASK):
        field = keys(part_config(registry.TASK, name)).get("kernel")
        if field is not None and not field.metadata.get("choices"):
            return ()
        kernels |= dict.fromkeys(field.metadata["choices"] if field is not None else ())
    return tuple(kernels)
