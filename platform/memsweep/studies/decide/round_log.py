"""The rounds of a study, each written down before it runs: ``decide/<round>.json`` in the study's folder.

A command that takes over repeats them, and chooses the next one from the same results.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError, StoreError
from memsweep.report.read.rounds import FOLDER, FORM, model_of, round_content, round_name
from memsweep.sweep.planning.plan import PlannedTrial
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.form import OtherSchemaError, require
from memsweep.sweep.store.record import MEND, sealed, to_json
from memsweep.sweep.store.retry import through_outages


@dataclass(frozen=True)
class Step:
    """The part of a round for one question.

    Attributes:
        key, name: of the question.
        does: what is added, in words.
        repairs: of the condition's trials.
        cost: core seconds, as expected when the round was chosen.
    """

    key: str
    name: str
    does: str
    repairs: tuple[str, ...]
    cost: float


@dataclass(frozen=True)
class Round:
    """One round of a study.

    Attributes:
        most: rounds of a question, chosen before the first one: the error of its verdict is spent on so many looks.
        steps: for each question that it goes on with.
        added: the trials.
        removed: identities of trials whose place some of them take.
    """

    most: int
    steps: tuple[Step, ...]
    added: tuple[TrialConfig, ...]
    removed: tuple[str, ...] = ()

    def applied(self, trials: Iterable[PlannedTrial]) -> list[TrialConfig]:
        """The trials of a study with those of the round."""
        rows = [trial.config for trial in trials if trial.identity not in self.removed]
        return list(dict.fromkeys([*rows, *self.added]))


class _OfOthersError(StoreError):
    """A round of another study, which had this one's name."""


class RoundLog:
    """The rounds of one study.

    Args:
        place: the study's folder.
        rows: trials of the study. A round that names another model is not read: nobody has trusted its code.
    """

    def __init__(self, place: Location, rows: Iterable[TrialConfig]) -> None:
        self._place, self._models = place, {model_of(to_dict(row)) for row in rows}

    def read(self) -> list[Round]:
        """The rounds from the first, up to a last one that is damaged: it was not written whole, and so has not run.

        Raises:
            StoreError: the storage cannot be read, a newer version of memsweep wrote a round, or one is damaged that
                others follow.
        """
        rounds: list[Round] = []
        try:
            while (found := self._read(len(rounds))) is not None:
                rounds.append(found)
        except _OfOthersError:
            return rounds
        here = f"{self._place}/{round_name(len(rounds))}"
        with storage_errors("read", here):
            later = [name for name in self._place.names(FOLDER) if name > round_name(len(rounds)).rpartition("/")[2]]
        if later:  # without them the looks would be counted anew, and the error of the verdicts be spent twice
            raise StoreError(
                f"{here} is missing or damaged, and rounds after it are there ({', '.join(sorted(later)[:3])}). Bring "
                f"it back from a copy. Or take {self._place}/{FOLDER} away: then rounds are counted from one again, "
                "and the error rates of docs/evidence/decide.md hold no more."
            )
        return rounds

    def _read(self, number: int) -> Round | None:
        where = f"{self._place}/{round_name(number)}"
        try:
            with storage_errors("read", where):
                return _round(self._place.read(round_name(number)), number, where, self._models)
        except (OtherSchemaError, _OfOthersError):
            raise
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
                raise
            return None

    def write(self, number: int, content: Round) -> None:
        """Writes a round, before it runs.

        Raises:
            StoreError: the storage cannot be written.
        """
        data = {
            "schema": FORM.version,
            "round": number,
            "most": content.most,
            "steps": [asdict(step) for step in content.steps],
            "added": [to_dict(config) for config in content.added],
            "removed": list(content.removed),
        }
        whole = to_json(sealed(json.loads(json.dumps(data))), "a round")
        through_outages(lambda: self._replace(round_name(number), whole))

    def _replace(self, name: str, data: bytes) -> None:
        with storage_errors("write", f"{self._place}/{name}"):
            self._place.write(name, data)


def _round(data: bytes, number: int, where: str, models: Collection[str]) -> Round:
    content = round_content(data, where)
    try:
        if not {model_of(config) for config in content["added"]} <= {*models}:
            raise _OfOthersError(f"{where} names a model that the study has not")
        if content["round"] != number:
            raise ValueError(f"it is round {content['round']}")
        found = Round(
            most=content["most"],
            steps=tuple(Step(**{**step, "repairs": tuple(step["repairs"])}) for step in content["steps"]),
            added=tuple(map(trial_from_dict, content["added"])),
            removed=tuple(content["removed"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise StoreError(f"{where} is no round ({type(error).__name__}: {error}).") from error
    require(found.steps, Sequence[Step], where, MEND)
    return found
