"""The nouns of a search: suggestions, the trials in which they are tried, and their results."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Suggestion:
    """Settings to try.

    Attributes:
        number: its place among the suggestions of its search, from 0.
        values: dotted path -> value; conditional fields that do not apply are missing.
        memo: the sampler's own notes on it, plain JSON, given back to the sampler with the result.
    """

    number: int
    values: Mapping[str, Any]
    memo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The result of a suggestion that has ended, which the sampler is told.

    Attributes:
        number: of the suggestion.
        values: one per objective, as measured (a diverged one is inf or NaN); None: it failed, nothing was measured.
        steps: optimizer steps that it trained.
        stopped: the scheduler stopped it early; ``values`` are those at ``steps``.
    """

    number: int
    values: tuple[float, ...] | None
    steps: int
    stopped: bool = False


@dataclass(frozen=True)
class SearchTrial:
    """A trial of the plan, as the search sees it.

    Attributes:
        identity: of the trial.
        cell: number of the grid's cell, which has a search of its own.
        number: of the suggestion.
        until: optimizer steps after which it ends; 0 for all of them.
        after: identity of the trial whose stored state it continues; empty where it starts from initial weights.
        rank: 0 in the search; from 1 for the confirmation of the cell's winner of that rank.
    """

    identity: str
    cell: int
    number: int
    until: int = 0
    after: str = ""
    rank: int = 0


class SuggestionState(enum.StrEnum):
    """The state of a suggestion."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped early"
    DIVERGED = "diverged"
    FAILED = "failed"


@dataclass(frozen=True)
class SuggestionRecord:
    """A suggestion with its trials and its result.

    Attributes:
        cell: number of its cell.
        suggestion: as suggested; under pbt with its present settings.
        trials: in the order of training, without that of a confirmation.
        values: objectives of the last trial that was observed; None before, and where it failed.
        steps: optimizer steps trained, counted once.
        state: running, or how it ended.
        rank: from 1 among those to be confirmed; 0 for the others.
    """

    cell: int
    suggestion: Suggestion
    trials: tuple[SearchTrial, ...]
    values: tuple[float, ...] | None
    steps: int
    state: SuggestionState
    rank: int = 0
