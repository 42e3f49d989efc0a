"""What ``memsweep describe`` says of a study's search."""

from __future__ import annotations

from typing import Any

from memsweep.config.core.problems import show
from memsweep.config.schema.search import (
    ASHA,
    CELL,
    HYPERBAND,
    MEDIAN,
    PBT,
    ConfirmConfig,
    Domain,
    SchedulerConfig,
    Search,
)
from memsweep.config.search.domains import FORM
from memsweep.config.search.sections import modes

NOTE = (
    "How settings are searched. Keys that begin with a section of a trial are searched fields, each with a domain: "
    f"{FORM}; a domain may have a condition, when: {{path: value or [values]}}. The key first lists suggestions to "
    "try first. All other keys:"
)


def searched_lines(search: Search, confirm: ConfirmConfig | None) -> list[str]:
    """What is searched, how, and how winners are confirmed, a line each."""
    settings = search.settings
    goals = [f"{mode} {name}" for name, mode in zip(settings.objective, modes(search), strict=True)]
    where = "in each cell" if settings.scope == CELL else "for all cells together"
    suggestions = counted(settings.trials, "suggestion")
    lines = [f"search by {settings.algorithm}, seed {settings.seed}: {suggestions} {where}, {settings.batch} at once"]
    lines += [f"  {path:<28}  {_spelled(domain)}" for path, domain in search.space.items()]
    lines += [f"  {'objective':<28}  {', '.join(goals)}"]
    lines += [f"  {'scheduler':<28}  {_scheduled(settings.scheduler)}"]
    lines += [f"  {'first':<28}  {counted(len(search.first), 'suggestion')} of the study's own"] if search.first else []
    lines += [f"  {'warm start':<28}  from the study {settings.warm_start}"] if settings.warm_start else []
    if confirm is not None:
        best = "best" if confirm.top == 1 else f"{confirm.top} best"
        lines.append(f"confirm the {best} of each cell on {counted(confirm.seeds, 'fresh seed')} and fresh data")
    return lines


def _spelled(domain: Domain) -> str:
    values = f"{domain.kind} [{', '.join(map(_word, domain.ends))}]"
    when = [f"{path} is {' or '.join(map(_word, wanted))}" for path, wanted in domain.when.items()]
    return f"{values}, when {' and '.join(when)}" if when else values


def _scheduled(scheduler: SchedulerConfig) -> str:
    """The scheduler with those of its fields that it uses; its unit is the optimizer step."""
    used = {
        ASHA: f"grace {scheduler.grace} steps, reduction {scheduler.reduction:g}",
        HYPERBAND: f"grace {scheduler.grace} steps, reduction {scheduler.reduction:g}",
        MEDIAN: f"grace {scheduler.grace} steps, interval {scheduler.interval} steps",
        PBT: f"interval {scheduler.interval} steps, quantile {scheduler.quantile:g}, resample {scheduler.resample:g}",
    }
    return f"{scheduler.name}: {used[scheduler.name]}" if scheduler.name in used else scheduler.name


def counted(count: int, word: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{count:,} {word}{'s' if count != 1 else ''}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else show(value)
