"""The sections ``search`` and ``confirm`` of a study file: read, written back, and what follows from them.

``memsweep.config.search.settings`` checks them against the cells of the study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from memsweep.config.core.build import section
from memsweep.config.core.problems import sentence, show
from memsweep.config.core.reflect import keys
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import METRICS, TEST, Domain, Search, SearchConfig
from memsweep.config.search.domains import (
    FORM,
    domain_to_plain,
    flatten_fields,
    read_domain,
    split_fields,
)
from memsweep.errors import ConfigError, did_you_mean, one_of

SEARCH: Final = "search"
CONFIRM: Final = "confirm"


def read_search(data: Any, problems: list[str]) -> Search | None:
    """The section ``search`` of a study from plain data; None when there is none.

    Returns:
        Where something is wrong, the valid rest, so that more can be said: the valid domains, and the usual settings
        in the place of wrong ones; or None.
    """
    if data is None:
        return None
    if not isinstance(data, Mapping):
        rule = (
            f"must be a mapping of searched fields to domains ({FORM}), and of settings ({one_of(keys(SearchConfig))})"
        )
        problems.append(sentence(SEARCH, rule, show(data)))
        return None
    fields, written = split_fields(data)
    space = {path: read_domain(path, value, problems) for path, value in flatten_fields(fields, problems).items()}
    if not space:
        form = "training.learning_rate: {log_uniform: [1e-4, 1e-1]}"
        rule = f"searches nothing. Name a field, as in {form}, or take the search out (~search on the command line)"
        problems.append(sentence(SEARCH, rule))
    settings = _settings(written, problems)
    known = _valid_domains(space)
    return Search(settings or SearchConfig(), known) if known else None


def _valid_domains(space: Mapping[str, Domain | None]) -> dict[str, Domain]:
    """The domains that are valid, without those whose conditions name one that is not."""
    known = {path: domain for path, domain in space.items() if domain is not None}
    while lame := [path for path in known if any(one in space and one not in known for one in known[path].when)]:
        known = {path: domain for path, domain in known.items() if path not in lame}
    return known


def search_to_dict(search: Search) -> dict[str, Any]:
    """Plain data in the form of the study file, every setting spelled out; ``search_from_dict`` reads it back."""
    space = {path: domain_to_plain(domain) for path, domain in search.space.items()}
    return {**space, **to_dict(search.settings)}


def search_from_dict(data: Any) -> Search | None:
    """The search that ``search_to_dict`` wrote; the exact inverse.

    Raises:
        ConfigError: the data is no search of this version.
    """
    problems: list[str] = []
    search = read_search(data, problems)
    if problems:
        raise ConfigError(problems, "the stored search")
    return search


def modes(search: Search) -> tuple[str, ...]:
    """``min`` or ``max`` for each objective: as written, or as is usual for a metric that every task has.

    Raises:
        KeyError: a task's own metric has no usual direction, and none is written; a checked search has one.
    """
    return search.settings.mode or tuple(METRICS[name] for name in search.settings.objective)


def _settings(written: Mapping[str, Any], problems: list[str]) -> SearchConfig | None:
    """The settings, or None; a bare word stands for a list of one, a bare name for a scheduler without fields."""
    data = dict(written)
    for key in ("objective", "mode"):
        data |= {key: [data[key]]} if isinstance(data.get(key), str) else {}
    if isinstance(data.get("scheduler"), str):
        data["scheduler"] = {"name": data["scheduler"]}
    settings = section(SearchConfig, data, SEARCH, problems)
    goals = {key: data[key] for key in ("objective", "mode") if key in data}
    if (draft := settings or section(SearchConfig, goals, SEARCH, [])) is not None:
        problems += _objective_problems(draft)
    return settings


def _objective_problems(settings: SearchConfig) -> Iterator[str]:
    at = f"{SEARCH}.objective"
    names = settings.objective
    known = f"{one_of(METRICS)}, or {TEST}<a metric of the task>"
    if not names:
        yield sentence(at, f"is empty. Name what is searched for: {known}")
    if len(set(names)) < len(names):
        yield sentence(at, "names one objective twice", show(list(names)))
    for name in names:
        if name not in METRICS and not name.startswith(TEST):
            yield sentence(at, f"there is no metric {show(name)}.{did_you_mean(name, METRICS)} Metrics: {known}")
    own = [name for name in names if name.startswith(TEST)]
    if own and not settings.mode:
        rule = f"is required with {own[0]}: say for each objective whether min or max is good"
        yield sentence(f"{SEARCH}.mode", rule)
