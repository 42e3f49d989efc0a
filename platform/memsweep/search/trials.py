"""The nouns of a search: suggestions, the rows that they train in, and what the sampler heard of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Suggestion:
    """Settings to try.

    Attributes:
        number: its place among its block's suggestions, from 0.
        values: dotted path -> value; conditional fields that do not apply are missing.
        memo: what the sampler wrote about it for itself, plain JSON, given back to it with the result.
    """

    number: int
    values: Mapping[str, Any]
    memo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Told:
    """What the sampler hears of a suggestion that has ended.

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
class SearchRow:
    """A row of the plan, as the search sees it.

    Attributes:
        identity: of the trial.
        block: the search that it belongs to: the cell's number, or 0 where one search has all cells.
        cell: number of the grid's cell, in the order of the rows.
        number: of the suggestion.
        until: optimizer steps after which it ends; 0 for all of them.
        after: identity of the row whose kept state it goes on from; empty where it starts anew.
        rank: 0 in the search; from 1 for the confirmation of the cell's winner of that rank.
    """

    identity: str
    block: int
    cell: int
    number: int
    until: int = 0
    after: str = ""
    rank: int = 0


class MemberState(enum.StrEnum):
    """Where a suggestion stands."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped early"
    DIVERGED = "diverged"
    FAILED = "failed"


@dataclass(frozen=True)
class Member:
    """A suggestion with its history.

    Attributes:
        block: its search.
        suggestion: what was suggested; under pbt with the settings of today.
        rows: in the order of training; of all cells, where one search has them all.
        values: objectives at the last row that was told; None before, and where it failed.
        steps: optimizer steps trained, counted once.
        state: where it stands.
        rank: from 1 among those to be confirmed; 0 for the others.
    """

    block: int
    suggestion: Suggestion
    rows: tuple[SearchRow, ...]
    values: tuple[float, ...] | None
    steps: int
    state: MemberState
    rank: int = 0
