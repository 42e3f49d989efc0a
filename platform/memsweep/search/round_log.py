"""The ledger of a search: what was heard, decided and asked in each round, written before any of it runs.

``search/<block>/<round>.json`` in the study's folder, sealed like a record. A driver that takes over goes through the
rounds whose news are still true, and on from there; what another version of a sampler would have suggested in their
place does not matter. A report needs nothing but these files to tell what the search did.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memsweep.errors import StoreError
from memsweep.search.trials import MemberState, SearchRow, Suggestion, Told
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.record import from_json, sealed, to_json, unsealed

FOLDER = "search"
_SCHEMA = 1
_WARM = "warm.json"
_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Heard:
    """What the rows of a member found.

    Attributes:
        number: of the suggestion.
        steps: optimizer steps trained so far.
        values: objectives; None where nothing was measured.
    """

    number: int
    steps: int
    values: tuple[float, ...] | None


@dataclass(frozen=True)
class Entry:
    """What trains in a round.

    Attributes:
        number: of the suggestion.
        until: optimizer steps after which it ends; 0 for all of them.
        values: dotted path -> value, now.
        turns: settings of earlier stretches, plain data (``config.schema.Turn``).
        donor: number of the member whose state it takes over; its own where it trains on, None where it begins.
    """

    number: int
    until: int
    values: Mapping[str, Any]
    turns: tuple[Mapping[str, Any], ...] = ()
    donor: int | None = None


@dataclass(frozen=True)
class Round:
    """One round of one block; the last one has no entries, and its rows confirm the winners.

    Attributes:
        heard: the news that it begins with, in order of number.
        ended: number -> how it ended, of the members that these news end.
        suggestions: what the sampler was asked for.
        entries: what trains, in order of number.
        rows: of the entries, one in each cell of the block.
        closed: when the news came, nobody was to enter any more, for all suggestions had been made.
        exhausted: the sampler had nothing more to suggest.
        block: number of its block in the study.
    """

    heard: tuple[Heard, ...] = ()
    ended: Mapping[int, MemberState] | None = None
    suggestions: tuple[Suggestion, ...] = ()
    entries: tuple[Entry, ...] = ()
    rows: tuple[SearchRow, ...] = ()
    closed: bool = False
    exhausted: bool = False
    block: int = 0

    def same_news(self, heard: Sequence[Heard]) -> bool:
        """Whether it was decided on these news; NaN equals NaN."""
        return _heard(self.heard) == _heard(heard)

    def to_json(self) -> dict[str, Any]:
        """Plain data, all of it, in the form that is stored."""
        return {
            "heard": _heard(self.heard),
            "ended": {str(number): str(state) for number, state in (self.ended or {}).items()},
            "suggestions": [asdict(suggestion) for suggestion in self.suggestions],
            "entries": [asdict(entry) for entry in self.entries],
            "rows": [asdict(row) for row in self.rows],
            "closed": self.closed,
            "exhausted": self.exhausted,
            "block": self.block,
        }


class Ledger:
    """The rounds of one block, in a study's folder.

    Args:
        place: the study's folder.
        block: the block's key.
    """

    def __init__(self, place: Location, block: str) -> None:
        self.block = block
        self._place, self._folder = place, f"{FOLDER}/{block}"

    def read(self, number: int) -> Round | None:
        """A round; None where it is not there, or damaged: it is decided again, from the same news in the same way.

        Raises:
            StoreError: the storage cannot be read.
        """
        name = self._name(number)
        try:
            with storage_errors("read", f"{self._place}/{name}"):
                return _round(self._place.read(name), f"{self._place}/{name}")
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            return None

    def read_all(self) -> list[Round]:
        """The rounds from the first, up to one that is not there or damaged.

        Raises:
            StoreError: the storage cannot be read.
        """
        rounds: list[Round] = []
        while (found := self.read(len(rounds))) is not None:
            rounds.append(found)
        return rounds

    def write(self, number: int, entry: Round) -> None:
        """Write a round before it runs; later ones, which followed from other news, go.

        Raises:
            StoreError: the storage cannot take it.
        """
        name = self._name(number)
        content = {"schema": _SCHEMA, "round": number, **json.loads(json.dumps(entry.to_json()))}
        with storage_errors("write", f"{self._place}/{name}"):
            for other in self._place.names(self._folder):
                if other != _WARM and other > name.rpartition("/")[2]:
                    self._place.delete(f"{self._folder}/{other}")
            self._place.write(name, to_json(sealed(content), "a round of the search"))

    def warm(self, found: Callable[[], Sequence[tuple[Suggestion, Told]]]) -> list[tuple[Suggestion, Told]]:
        """What the sampler heard of an earlier study when the search began, whatever has become of that study since.

        Args:
            found: what it tells today; asked the first time.

        Raises:
            StoreError: the storage cannot be read or written, or what was written is damaged.
        """
        name = f"{self._folder}/{_WARM}"
        where = f"{self._place}/{name}"
        with storage_errors("read", where):
            known = self._place.read(name) if self._place.exists(name) else None
        if known is not None:
            return [_told(entry) for entry in unsealed(from_json(known, where), where)["told"]]
        told = list(found())
        plain = [
            {"number": s.number, "suggested": s.values, "memo": s.memo, "values": _spelt(t.values)}
            | {"steps": t.steps, "stopped": t.stopped}
            for s, t in told
        ]
        with storage_errors("write", where):
            self._place.write(name, to_json(sealed(json.loads(json.dumps({"told": plain}))), "a warm start"))
        return told

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:06d}.json"


def _round(data: bytes, where: str) -> Round:
    content = unsealed(from_json(data, where), where)
    try:
        return Round(
            heard=tuple(Heard(h["number"], h["steps"], _numbers(h["values"])) for h in content["heard"]),
            ended={int(number): MemberState(state) for number, state in content["ended"].items()},
            suggestions=tuple(Suggestion(**suggestion) for suggestion in content["suggestions"]),
            entries=tuple(Entry(**{**entry, "turns": tuple(entry["turns"])}) for entry in content["entries"]),
            rows=tuple(SearchRow(**row) for row in content["rows"]),
            closed=bool(content["closed"]),
            exhausted=bool(content["exhausted"]),
            block=int(content["block"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{where} is no round of a search ({type(error).__name__}: {error}).") from error


def _told(entry: Mapping[str, Any]) -> tuple[Suggestion, Told]:
    suggestion = Suggestion(entry["number"], entry["suggested"], entry["memo"])
    return suggestion, Told(entry["number"], _numbers(entry["values"]), entry["steps"], entry["stopped"])


def _heard(news: Sequence[Heard]) -> list[dict[str, Any]]:
    return [{"number": one.number, "steps": one.steps, "values": _spelt(one.values)} for one in news]


def _spelt(values: Sequence[float] | None) -> list[float | str] | None:
    """JSON has no infinities."""
    if values is None:
        return None
    return [value if math.isfinite(value) else str(value) for value in map(float, values)]


def _numbers(values: Sequence[float | str] | None) -> tuple[float, ...] | None:
    if values is None:
        return None
    return tuple(_WORDS[value] if isinstance(value, str) else float(value) for value in values)
