"""What is claimed about a study: its ``claims`` section, a published table, or sentences that compare cells, or both.

Claims are compared with the verdicts in the report, and decide nothing: no trial's identity contains them. ::

    claims:
      source: README of the method's repository
      rows:
        - {name: Diagonal RNN, where: {model: diagonal_rnn, parameterization: direct}, exponential: stable}
      compare:
        - radius(exp) > radius(direct) at width 8

Each row names the conditions that it speaks of (``where``) and gives a verdict for each kernel. Without a table, the
section may be the list of sentences itself (see ``memsweep.config.claims.sentences``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from memsweep import registry
from memsweep.config.claims.comparisons import Comparison
from memsweep.config.claims.sentences import EXAMPLE, GrammarError, Sentence, parsed
from memsweep.config.core.problems import join, sentence, show
from memsweep.config.core.reflect import keys, part_config
from memsweep.errors import did_you_mean, one_of

CLAIMS = "claims"
COLUMNS = ("task", "kernel", "rate", "exponent", "model", "activation", "parameterization", "normalize")
"""What a row's ``where`` may speak of: the condition columns of the report."""
VERDICTS = ("stable", "unstable")
_NAME, _WHERE, _ROWS, _SOURCE, _COMPARE = "name", "where", "rows", "source", "compare"
_KEYS = (_SOURCE, _ROWS, _COMPARE)
_REGISTERED = {"task": registry.TASK, "model": registry.MODEL, "parameterization": registry.PARAMETERIZATION}


@dataclass(frozen=True)
class Claim:
    """One row of a published table.

    Attributes:
        name: the row's label, as published.
        where: condition column -> the values it may have; a row without conditions speaks of all.
        verdicts: kernel -> ``stable`` or ``unstable``.
    """

    name: str
    where: Mapping[str, tuple[Any, ...]]
    verdicts: Mapping[str, str]

    def covers(self, condition: Mapping[str, Any]) -> bool:
        """Whether the row speaks of a condition (column -> value, None where it has no such field).

        A part with fields, ``best(a=1.0, b=0.5)``, is meant by this label and by its bare name.
        """
        return all(any(_same(condition.get(column), value) for value in self.where[column]) for column in self.where)


@dataclass(frozen=True)
class Claims:
    """A published table, comparisons of cells, or both.

    Attributes:
        source: where the table was published, in words; empty without a table.
        rows: of the table, in the order of publication.
        compare: the sentences, in the order in which they are written.
    """

    source: str = ""
    rows: tuple[Claim, ...] = ()
    compare: tuple[Comparison, ...] = ()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that any row speaks of, in order of appearance."""
        return tuple(dict.fromkeys(kernel for row in self.rows for kernel in row.verdicts))


Resolve = Callable[[Sentence, str], Comparison | None]
"""Looks up in the study what a sentence, which stands at a path of the study file, speaks of; None where it fails."""


def read_claims(data: Any, problems: list[str], resolve: Resolve | None = None) -> Claims | None:
    """The ``claims`` section of a study; None when there is none or it is wrong.

    Args:
        data: plain data, None where the study has no claims.
        problems: gets one sentence for everything that is wrong.
        resolve: looks names up; None: sentences are checked for their grammar and left out.
    """
    if data is None:
        return None
    before = len(problems)
    if isinstance(data, list | tuple):
        compare = _sentences(data, CLAIMS, problems, resolve)
        return Claims(compare=compare) if len(problems) == before else None
    if not isinstance(data, Mapping):
        rule = f"must be a mapping with the keys {_SOURCE} and {_ROWS}, or a list of sentences such as {EXAMPLE}"
        problems.append(sentence(CLAIMS, rule, show(data)))
        return None
    for key in data:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS)
            problems.append(sentence(join(CLAIMS, key), f"no such field.{hint} Fields: {', '.join(_KEYS)}"))
    compare = ()
    if _COMPARE in data:
        compare = _sentences(data[_COMPARE], join(CLAIMS, _COMPARE), problems, resolve)
    source, rows = ("", ()) if _COMPARE in data and not {_SOURCE, _ROWS} & data.keys() else _table(data, problems)
    return Claims(source, rows, compare) if len(problems) == before else None


def _table(data: Mapping[str, Any], problems: list[str]) -> tuple[str, tuple[Claim, ...]]:
    source, rows = data.get(_SOURCE), data.get(_ROWS)
    if not isinstance(source, str) or not source.strip():
        problems.append(sentence(join(CLAIMS, _SOURCE), "must say in words where this was published", show(source)))
    if not isinstance(rows, list | tuple) or not rows:
        problems.append(sentence(join(CLAIMS, _ROWS), "must be a list of at least one row", show(rows)))
        return str(source), ()
    return str(source), tuple(_row(row, f"{CLAIMS}.{_ROWS}[{index}]", problems) for index, row in enumerate(rows))


def _sentences(data: Any, path: str, problems: list[str], resolve: Resolve | None) -> tuple[Comparison, ...]:
    if not isinstance(data, list | tuple) or not data:
        problems.append(sentence(path, f"must be a list of at least one sentence such as {EXAMPLE}", show(data)))
        return ()
    found: dict[str, Comparison] = {}
    for index, text in enumerate(data):
        here = f"{path}[{index}]"
        read = _sentence(text, here, problems)
        if read is not None and read.text in found:
            problems.append(sentence(here, "repeats an earlier sentence. Take one of them out", show(read.text)))
        elif read is not None and resolve is not None and (meant := resolve(read, here)) is not None:
            found[read.text] = meant
    return tuple(found.values())


def _sentence(text: Any, path: str, problems: list[str]) -> Sentence | None:
    if not isinstance(text, str):
        problems.append(sentence(path, f"must be a sentence such as {EXAMPLE}, as text", show(text)))
        return None
    try:
        return parsed(text)
    except GrammarError as error:
        cut = "" if "(" in text else ". In a list in brackets a comma begins a new entry: put the sentence in quotes"
        problems.append(sentence(path, f"{show(text)} {error}{cut}"))
        return None


def claims_to_dict(claims: Claims) -> dict[str, Any]:
    """Plain data: a table in the form of the study file, which ``read_claims`` reads back, and what was compared."""
    rows = [
        {_NAME: row.name, _WHERE: {column: list(row.where[column]) for column in row.where}, **row.verdicts}
        for row in claims.rows
    ]
    table = {_SOURCE: claims.source, _ROWS: rows} if rows else {}
    compare = [comparison.to_dict() for comparison in claims.compare]
    return {**table, **({_COMPARE: compare} if compare else {})}


def claims_from_dict(data: Any) -> Claims | None:
    """The claims that ``claims_to_dict`` wrote, without asking whether every name in them is registered here."""
    if not data:
        return None
    rows = [
        Claim(
            name=str(row[_NAME]),
            where={column: tuple(values) for column, values in row[_WHERE].items()},
            verdicts={kernel: str(verdict) for kernel, verdict in row.items() if kernel not in (_NAME, _WHERE)},
        )
        for row in data.get(_ROWS, ())
    ]
    compare = [Comparison.from_dict(comparison) for comparison in data.get(_COMPARE, ())]
    return Claims(str(data.get(_SOURCE, "")), tuple(rows), tuple(compare))


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
        hint = did_you_mean(verdict, VERDICTS).strip().rstrip("?").replace("Did", "did")
        got = f"{show(verdict)} ({hint}?)" if hint else show(verdict)
        yield sentence(join(path, kernel), f"must be one of {one_of(VERDICTS)}", got)


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
    found: dict[str, None] = {}
    for name in registry.names(registry.TASK):
        config = part_config(registry.TASK, name)
        field = keys(config).get("kernel") if config is not None else None
        if field is not None and not field.metadata.get("choices"):
            return ()
        found |= dict.fromkeys(field.metadata["choices"] if field is not None else ())
    return tuple(found)


def _same(value: Any, claimed: Any) -> bool:
    if isinstance(value, bool) or isinstance(claimed, bool):
        return value is claimed
    if isinstance(value, str) and isinstance(claimed, str):
        return claimed in (value, value.partition("(")[0])
    return bool(value == claimed)
