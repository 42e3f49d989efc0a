"""States of single trials in training, handed on from row to row of a search.

A search stops rows and lets them go on: the row that ends at step 100 keeps its state, and the row that ends at step
300 begins with it. Whatever is lost, damaged or foreign costs the time of training from the beginning, and no number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TURNING
from memsweep.errors import StoreError
from memsweep.learning.state.checkpoint_file import UnusableError, packed, unpacked
from memsweep.learning.state.checkpoints import Slot, one_line
from memsweep.learning.state.warm_start_state import Rows, Seats, checked, most_bytes, put_in, seats, state_of, step_of
from memsweep.learning.training.settings_schedule import stretches

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrainingConfig, TrialConfig
    from memsweep.learning.training.learner import Learner

_NO_PART = frozenset({"until", "turns", *TURNING, "checkpoint_every", "merge_redundant", "merge_tolerance"})
"""Fields of training that are in the stretches of a prefix, or do nothing before the end."""
_log = logging.getLogger(__name__)


def prefix(config: TrialConfig, step: int, shards: int = 1) -> str:
    """What the first ``step`` steps of a trial follow from, as a hash: trials of equal prefix share them.

    Args:
        config: the trial; its ``until`` and its turns after ``step`` do not count, nor how it is measured.
        step: from 1.
        shards: parts in which the data of a step are computed.
    """
    data = to_dict(config)
    training = {name: value for name, value in data["training"].items() if name not in _NO_PART}
    settings = [dataclasses.asdict(turn) for turn in stretches(config.training, step)]
    parts = [data["task"], data["model"], training, settings, shards]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class WarmStart:
    """Where the trials of a pack may begin, and where they leave their ends.

    Attributes:
        configs: of the pack's trials.
        handed: for each trial, where a state of the same prefix may lie, or None.
        kept: for each trial, where its state at the end goes, or None.
        shards: parts in which the data of a step are computed.
    """

    configs: Sequence[TrialConfig]
    handed: Sequence[Slot | None]
    kept: Sequence[Slot | None]
    shards: int = 1

    def load(self, learners: Sequence[Learner], training: TrainingConfig, done: int) -> int:
        """Put the learners where the states are, if every trial has one, all at one step, and that is after ``done``.

        Returns:
            The number of steps that are done then; ``done``, with the learners untouched, without such states.
        """
        found: list[tuple[Seats, Rows]] = []
        steps: set[int] = set()
        for trial, slot in enumerate(self.handed):
            own = seats(learners, trial)
            state = self._read(trial, slot, own, training, done) if slot is not None else None
            if state is None or len(steps | {state[0]}) > 1:
                return done
            steps.add(state[0])
            found.append((own, state[1]))
        (step,) = steps
        put_in(found, step, training)
        return step

    def save(self, learners: Sequence[Learner], training: TrainingConfig) -> None:
        """Keep the state of every trial that has a place for it, after ``training.end`` steps."""
        for trial, slot in enumerate(self.kept):
            if slot is None:
                continue
            key = prefix(self.configs[trial], training.end, self.shards)
            try:
                slot.write(packed(state_of(key, seats(learners, trial), training)))
            except (OSError, StoreError) as error:
                _log.warning(
                    "the state %s cannot be written (%s): whoever goes on from it trains from the beginning",
                    slot,
                    one_line(error),
                )

    def _read(self, trial: int, slot: Slot, own: Seats, training: TrainingConfig, done: int) -> tuple[int, Rows] | None:
        """The step and the rows of a trial's state; None where it is of no use."""
        try:
            most = most_bytes(own, training)
            data = slot.read(most)
            if data is None:
                return None
            state = unpacked(data, most)
            step = step_of(state, partial(prefix, self.configs[trial], shards=self.shards), training)
            return (step, checked(state, own, step, training)) if step > done else None
        except UnusableError as error:
            _log.warning("the state %s %s: training starts from the beginning", slot, error)
        except (OSError, StoreError) as error:
            _log.warning("the state %s cannot be read (%s): training starts from the beginning", slot, one_line(error))
        return None
