"""The searched fields of a study: from plain data to domains, and back.

A section ``search`` mixes two kinds of keys. Those that begin with a section of a trial are searched fields, written
dotted or nested; all others set up the search itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from memsweep.config.core.problems import join, sentence, show
from memsweep.config.core.reflect import keys
from memsweep.config.schema.axes import duplicates
from memsweep.config.schema.search import CHOICE, INT, KINDS, LOG_INT, LOG_UNIFORM, Domain, is_finite
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import did_you_mean

SECTIONS = tuple(keys(TrialConfig))
WHEN = "when"
FORM = (
    "{uniform: [low, high]}, {log_uniform: [low, high]}, {int: [low, high]}, {log_int: [low, high]} or {choice: [...]}"
)
_WORDS = (*KINDS, WHEN)


def split(section: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of a section ``search`` that are searched fields, and the others; both as they were written."""
    fields: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in section.items():
        side = fields if isinstance(key, str) and key.split(".")[0] in SECTIONS else settings
        side[key] = value
    return fields, settings


def flattened(fields: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Searched fields with nested mappings turned into dotted paths; what stands for a domain is left as written."""
    found: dict[str, Any] = {}
    for path, value in _leaves(fields, ""):
        if path in found:
            problems.append(sentence(f"search.{path}", "is written twice, once with dots and once nested. Keep one"))
        else:
            found[path] = value
    return found


def _leaves(fields: Mapping[Any, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        here = join(path, key)
        inner = list(value.values()) if isinstance(value, Mapping) else []
        if any(isinstance(one, Mapping) for one in inner) and not any(word in value for word in _WORDS):
            yield from _leaves(value, here)
        else:
            yield here, value


def read_domain(path: str, data: Any, problems: list[str]) -> Domain | None:
    """One domain, or None with the reasons added to ``problems``.

    Args:
        path: the searched field.
        data: plain data, ``{log_uniform: [1e-4, 1e-1], when: {model.activation: tanh}}``.
        problems: collects what is wrong.
    """
    at = f"search.{path}"
    kinds = [key for key in data if key in KINDS] if isinstance(data, Mapping) else []
    if not isinstance(data, Mapping) or (not kinds and WHEN not in data):
        near = did_you_mean(next(iter(data)), KINDS) if isinstance(data, Mapping) and data else ""
        problems.append(sentence(at, f"must be one of {FORM}{near.rstrip('?')}", show(data)))
        return None
    before = len(problems)
    for key in data:
        if key not in _WORDS:
            rule = f"no such word.{did_you_mean(key, _WORDS)} A domain is {FORM}, and may have a condition, {WHEN}"
            problems.append(sentence(join(at, key), rule))
    when = _when(data.get(WHEN), at, problems)
    if len(kinds) != 1:
        got = f"{' and '.join(kinds)}" if kinds else f"{WHEN} alone"
        problems.append(sentence(at, f"must be one of {FORM}", got))
        return None
    kind = kinds[0]
    values = data[kind]
    if kind == CHOICE:
        problems += _choice_problems(f"{at}.{kind}", values)
        made = Domain(CHOICE, values=tuple(values), when=when) if len(problems) == before else None
    else:
        problems += _interval_problems(kind, f"{at}.{kind}", values)
        ends = (float(values[0]), float(values[1])) if len(problems) == before else (0.0, 1.0)
        made = Domain(kind, *ends, when=when) if len(problems) == before else None
    return made


def domain_to_plain(domain: Domain) -> dict[str, Any]:
    """A domain in the form of a study file; ``read_domain`` reads it back, exactly."""
    plain: dict[str, Any] = {domain.kind: list(domain.ends)}
    if domain.when:
        plain[WHEN] = {path: list(values) for path, values in domain.when.items()}
    return plain


def _choice_problems(at: str, values: Any) -> Iterator[str]:
    if not isinstance(values, list | tuple):
        yield sentence(at, "must be a list of the values to choose from: [...]", show(values))
    elif not values:
        yield sentence(at, "is empty. Give it at least one value, or leave the field out of the search")
    else:
        if twice := duplicates(values):
            yield sentence(at, f"names a value twice: {', '.join(twice)}. Name each once")
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                yield sentence(at, "must be finite where it is a number", show(value))


def _interval_problems(kind: str, at: str, values: Any) -> Iterator[str]:
    whole = kind in (INT, LOG_INT)
    rule = f"must be two {'whole' if whole else 'finite'} numbers, [low, high]"
    if not isinstance(values, list | tuple) or len(values) != 2 or not all(map(is_finite, values)):
        yield sentence(at, rule, show(values))
        return
    low, high = values
    if whole and (type(low) is not int or type(high) is not int):
        yield sentence(at, rule, show(values))
    elif whole and max(abs(low), abs(high)) > 2**53:
        yield sentence(at, "must lie between -2**53 and 2**53", show(values))
    elif low >= high:
        yield sentence(at, "must have its low end below its high end: [low, high]", show(values))
    elif not math.isfinite(float(high) - float(low)):
        yield sentence(at, "is wider than the largest number. Make it narrower", show(values))
    elif kind in (LOG_UNIFORM, LOG_INT) and low <= 0:
        linear = kind.removeprefix("log_")
        yield sentence(at, f"must begin above 0, because logarithms do. Or take {linear}", show(values))


def _when(data: Any, at: str, problems: list[str]) -> dict[str, tuple[Any, ...]]:
    if data is None:
        return {}
    if not isinstance(data, Mapping) or not data:
        rule = "must say where the field is searched: {path: value} or {path: [values]}"
        problems.append(sentence(f"{at}.{WHEN}", rule, show(data)))
        return {}
    found: dict[str, tuple[Any, ...]] = {}
    for path, value in data.items():
        values = tuple(value) if isinstance(value, list | tuple) else (value,)
        if not values:
            rule = "is an empty list, which nothing fits. Give it a value, or leave it out"
            problems.append(sentence(join(f"{at}.{WHEN}", path), rule))
        found[str(path)] = values
    return found
