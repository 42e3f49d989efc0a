"""Checkpoints of a pack in training: written whole or not at all, continued from only by the very same pack."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from memsweep.errors import StoreError
from memsweep.learning.state.checkpoint_file import UnusableError, packed, unpacked
from memsweep.learning.state.checkpoint_state import checked, most_bytes, restore, state_of

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrainingConfig
    from memsweep.learning.training.learner import Learner

_PATIENCE = 10.0
"""After a write that failed, the next is tried when this many times what it took has passed."""
_log = logging.getLogger(__name__)


class Slot(Protocol):
    """Where one checkpoint is kept; its text names the place in messages."""

    def read(self, most: int) -> bytes | None:
        """All bytes, or the first ``most + 1`` of more; None where nothing is kept."""

    def write(self, data: bytes) -> None:
        """Keep these bytes instead of the others: all of them, or the others stay."""

    def delete(self) -> None:
        """Keep nothing."""


@dataclass
class Checkpoint:
    """The state of one pack, and its place.

    No fault of the place ends a training: without a state it starts again, and where none can be written it goes on.

    Attributes:
        slot: the place.
        key: tells this pack's configs from all others; a state with another key is not used.
    """

    slot: Slot
    key: str
    _warned: bool = field(default=False, init=False)
    _next_write: float = field(default=-math.inf, init=False)

    def save(self, learners: list[Learner], step: int) -> None:
        """Write the state after ``step`` steps; batches are a function of the step, so no generator state is needed."""
        began = time.monotonic()
        if began < self._next_write:
            return
        try:
            self.slot.write(packed(state_of(self.key, learners, step)))
        except (OSError, StoreError) as error:
            # a place that is away may answer only after a long time: it shall not slow the training down much
            ended = time.monotonic()
            self._next_write = ended + _PATIENCE * (ended - began)
            if not self._warned:
                self._warned = True
                _log.warning(
                    "checkpoint %s cannot be written (%s): training goes on; if it is interrupted, it continues from "
                    "the last one that was written",
                    self.slot,
                    one_line(error),
                )

    def load(self, learners: list[Learner], training: TrainingConfig) -> int:
        """Restore the learners.

        Args:
            learners: as they start.
            training: the pack's; it bounds what a state can be.

        Returns:
            The number of steps that are done; 0, with the learners untouched, when there is no usable checkpoint:
            an unreadable or foreign file costs time, never numbers.
        """
        try:
            most = most_bytes(learners, training)
            data = self.slot.read(most)
            if data is None:
                return 0
            step, states = checked(unpacked(data, most), self.key, learners, training)
        except UnusableError as error:
            _log.warning("checkpoint %s %s: training starts again", self.slot, error)
            return 0
        except (OSError, StoreError) as error:
            _log.warning("checkpoint %s cannot be read (%s): training starts again", self.slot, one_line(error))
            return 0
        for learner, state in zip(learners, states, strict=True):
            restore(learner, state)
        return step


def one_line(error: Exception) -> str:
    """What an error says, short enough for a line of a log."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
