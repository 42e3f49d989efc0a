"""The log of a search: the observations, decisions and suggestions of each round, written before the round runs.

``search/<key>/<round>.json`` in the study's folder, with a hash like a record. A driver that takes over repeats the
rounds whose observations still hold, and continues from there; what another version of a sampler would suggest for
them does not matter. A report needs nothing but these files to show what the search did.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from memsweep.errors import StoreError
from memsweep.search.suggestions import SearchTrial, Suggestion, SuggestionState
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.form import Form, require
from memsweep.sweep.store.record import MEND, from_json, of_form, sealed, to_json
from memsweep.sweep.store.retry import through_outages

FOLDER = "search"
_FORM = Form[dict[str, Any]](4)


@dataclass(frozen=True)
class Observation:
    """The measurements of a suggestion's trials in a round.

    Attributes:
        number: of the suggestion.
        steps: optimizer steps trained so far.
        values: objectives; None where nothing was measured.
    """

    number: int
    steps: int
    values: tuple[float, ...] | None


@dataclass(frozen=True)
class Stage:
    """The training of a suggestion in one round.

    Attributes:
        number: of the suggestion.
        until: optimizer steps after which it ends; 0 for all of them.
        values: dotted path -> value, in this stage.
        turns: settings of earlier stages, plain data (``config.schema.trial.Turn``).
        donor: number of the suggestion whose state it continues; its own where it trains on, None where it begins.
    """

    number: int
    until: int
    values: Mapping[str, Any]
    turns: tuple[Mapping[str, Any], ...] = ()
    donor: int | None = None


@dataclass(frozen=True)
class Round:
    """One round of one search; the last one has no stages, and its trials confirm the winners.

    Attributes:
        observations: those with which it begins, in order of number.
        ended: number -> how it ended, of the suggestions that end by these observations.
        suggestions: new ones of the sampler.
        stages: what trains, in order of number.
        trials: of the stages.
        closed: no suggestion could enter any more when the observations came, because all had been made.
        exhausted: the sampler had nothing more to suggest.
        cell: number of its cell.
    """

    observations: tuple[Observation, ...] = ()
    ended: Mapping[int, SuggestionState] = field(default_factory=dict)
    suggestions: tuple[Suggestion, ...] = ()
    stages: tuple[Stage, ...] = ()
    trials: tuple[SearchTrial, ...] = ()
    closed: bool = False
    exhausted: bool = False
    cell: int = 0

    def follows(self, observations: Sequence[Observation]) -> bool:
        """Whether it was decided on these observations; NaN equals NaN."""
        return _plain(self.observations) == _plain(observations)

    def to_json(self) -> dict[str, Any]:
        """Plain data, all of it, in the form that is stored."""
        return {
            **asdict(self),
            "observations": _plain(self.observations),
            "ended": {str(number): str(state) for number, state in self.ended.items()},
        }


class RoundLog:
    """The rounds of one search, in a study's folder.

    Args:
        place: the study's folder.
        key: of the search; the name of its folder.
    """

    def __init__(self, place: Location, key: str) -> None:
        self.key = key
        self._place, self._folder = place, f"{FOLDER}/{key}"

    def read(self, number: int) -> Round | None:
        """A round; None where it is missing, damaged or another one: then it is decided from the same observations.

        Raises:
            StoreError: the storage cannot be read.
        """
        name = self._name(number)
        try:
            with storage_errors("read", f"{self._place}/{name}"):
                return _round(self._place.read(name), self.key, number, f"{self._place}/{name}")
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            return None

    def read_all(self) -> list[Round]:
        """The rounds from the first, up to one that is missing or damaged.

        Raises:
            StoreError: the storage cannot be read.
        """
        rounds: list[Round] = []
        while (next_round := self.read(len(rounds))) is not None:
            rounds.append(next_round)
        return rounds

    def write(self, number: int, content: Round) -> None:
        """Write a round before it runs, and delete later ones, which followed from other observations.

        Raises:
            StoreError: the storage cannot be written.
        """
        name = self._name(number)
        data = {
            "schema": _FORM.version,
            "search": self.key,
            "round": number,
            **json.loads(json.dumps(content.to_json())),
        }
        through_outages(lambda: self._replace(name, to_json(sealed(data), "a round of the search")))

    def _replace(self, name: str, data: bytes) -> None:
        with storage_errors("write", f"{self._place}/{name}"):
            for other in self._place.names(self._folder):
                if other > name.rpartition("/")[2]:
                    self._place.delete(f"{self._folder}/{other}")
            self._place.write(name, data)

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:06d}.json"


def _round(data: bytes, key: str, number: int, where: str) -> Round:
    content = of_form(_FORM, from_json(data, where), where)
    try:
        # first rounds follow from no observations, so nothing else tells those of two searches apart
        if (content["search"], content["round"]) != (key, number):
            raise ValueError(f"it is round {content['round']} of the search {content['search']}")
        found = Round(
            observations=tuple(
                Observation(one["number"], one["steps"], _numbers(one["values"])) for one in content["observations"]
            ),
            ended={int(number): SuggestionState(state) for number, state in content["ended"].items()},
            suggestions=tuple(Suggestion(**suggestion) for suggestion in content["suggestions"]),
            stages=tuple(Stage(**{**stage, "turns": tuple(stage["turns"])}) for stage in content["stages"]),
            trials=tuple(SearchTrial(**trial) for trial in content["trials"]),
            closed=content["closed"],
            exhausted=content["exhausted"],
            cell=content["cell"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(f"{where} is no round of a search ({type(error).__name__}: {error}).") from error
    require(found, Round, where, MEND)
    return found


def _plain(observations: Sequence[Observation]) -> list[dict[str, Any]]:
    return [{**asdict(one), "values": _words(one.values)} for one in observations]


def _words(values: Sequence[float] | None) -> list[float | str] | None:
    """JSON has no infinities: they become text."""
    return None if values is None else [value if math.isfinite(value) else str(value) for value in map(float, values)]


def _numbers(values: Sequence[float | str] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(map(float, values))
