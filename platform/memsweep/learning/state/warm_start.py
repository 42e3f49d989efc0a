"""Warm starts: states of single trials in training, from which a longer training of the same trial continues.

A search stops a trial at step 100, and lets it continue to step 300 later: the trial up to 300 starts from the state of
the trial up to 100. A state that is lost, damaged or foreign costs the time of training from the beginning, and changes
no number.

A state holds the rows of one trial's replicas. A row's numbers do not depend on the other rows, so trials that trained
in several packs continue together in one. Every tensor has the replicas first, and a shape that the step implies.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.training import TURNING
from memsweep.errors import StoreError
from memsweep.learning.state.checkpoint import (
    Rows,
    Slot,
    compact,
    matching,
    most_bytes,
    one_line,
    require_keys,
    restore,
    rows_of,
    whole_number,
)
from memsweep.learning.state.checkpoint_file import UnusableError, from_bytes, to_bytes
from memsweep.learning.training.optimizer import merged_settings

if TYPE_CHECKING:
    from memsweep.config.schema.training import TrainingConfig
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.learning.training.learner import Learner

_EXCLUDED = frozenset({"until", "turns", *TURNING, "checkpoint_every", "merge_redundant", "merge_tolerance"})
"""Training fields that are in the settings of a prefix, or have no effect before the end."""
_log = logging.getLogger(__name__)

TrialRows = Sequence[tuple["Learner", list[int]]]
"""Positions of a trial's replicas, in order: learners, and rows in each."""


def prefix(config: TrialConfig, step: int, shards: int = 1) -> str:
    """A hash of everything that decides the first ``step`` steps of a trial: equal prefixes share their states.

    Args:
        config: the trial; ``until``, settings after ``step`` and how the trial is measured do not count.
        step: from 1.
        shards: of each training batch.
    """
    data = to_dict(config)
    training = {name: value for name, value in data["training"].items() if name not in _EXCLUDED}
    settings = [dataclasses.asdict(turn) for turn in merged_settings(config.training, step)]
    deciding = [data["task"], data["model"], training, settings, shards]
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class WarmStart:
    """Where the trials of a pack may start, and where they leave their states at the end.

    Attributes:
        configs: of the pack's trials.
        start_states: for each trial, where a state of the same prefix may lie, or None.
        end_states: for each trial, where its state at the end goes, or None.
        shards: of each training batch.
    """

    configs: Sequence[TrialConfig]
    start_states: Sequence[Slot | None]
    end_states: Sequence[Slot | None]
    shards: int = 1

    def load(self, learners: Sequence[Learner], training: TrainingConfig, done: int) -> int:
        """Restore the learners, if every trial has a usable state and all states are of one step after ``done``.

        Returns:
            That step; ``done``, with the learners untouched, without such states.
        """
        states: list[tuple[TrialRows, Rows]] = []
        steps: set[int] = set()
        for trial, slot in enumerate(self.start_states):
            own = trial_rows(learners, trial)
            state = self._read(trial, slot, own, training) if slot is not None else None
            if state is None or state[0] <= done or len(steps | {state[0]}) > 1:
                return done
            steps.add(state[0])
            states.append((own, state[1]))
        (step,) = steps
        _restore_all(states, step, training)
        return step

    def save(self, learners: Sequence[Learner], training: TrainingConfig) -> None:
        """Write the state after ``training.end`` steps of every trial that has a slot for it."""
        for trial, slot in enumerate(self.end_states):
            if slot is None:
                continue
            replicas = _rows_of(trial_rows(learners, trial), training.end, training)
            key = prefix(self.configs[trial], training.end, self.shards)
            try:
                slot.write(to_bytes({"key": key, "step": training.end, "replicas": compact(replicas)}))
            except (OSError, StoreError) as error:
                _log.warning(
                    "the state %s cannot be written (%s). A later trial that needs it will train from the beginning",
                    slot,
                    one_line(error),
                )

    def _read(self, trial: int, slot: Slot, own: TrialRows, training: TrainingConfig) -> tuple[int, Rows] | None:
        """The step and the rows of a trial's state; None where it cannot be used."""
        try:
            most = most_bytes([_rows_of(own, training.end, training)])
            data = slot.read(most)
            return None if data is None else self._validate(from_bytes(data, most), trial, own, training)
        except UnusableError as error:
            _log.warning("the state %s %s: training starts from the beginning", slot, error)
        except (OSError, StoreError) as error:
            _log.warning("the state %s cannot be read (%s): training starts from the beginning", slot, one_line(error))
        return None

    def _validate(self, state: Any, trial: int, own: TrialRows, training: TrainingConfig) -> tuple[int, Rows]:
        """The step and the rows of a state that this trial would have left on its way."""
        require_keys(state, ("key", "step", "replicas"), "the file")
        step = whole_number(state["step"], training.end - 1, "step")
        if step == 0 or step % training.validate_every:
            raise UnusableError(f"does not fit: step must be one that is validated, got {step}")
        if state["key"] != prefix(self.configs[trial], step, self.shards):
            raise UnusableError("belongs to another trial")
        return step, matching(state["replicas"], _rows_of(own, step, training))


def trial_rows(learners: Iterable[Learner], trial: int) -> TrialRows:
    """The positions of the replicas of a trial of the pack."""
    rows_of = (
        (learner, [row for row, replica in enumerate(learner.ensemble.replicas) if replica.trial == trial])
        for learner in learners
    )
    return [(learner, rows) for learner, rows in rows_of if rows]


def _rows_of(own: TrialRows, step: int, training: TrainingConfig) -> Rows:
    return _join([{name: value[rows] for name, value in rows_of(one, step, training).items()} for one, rows in own])


def _join(parts: Sequence[Rows]) -> Rows:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _restore_all(states: Iterable[tuple[TrialRows, Rows]], step: int, training: TrainingConfig) -> None:
    """Put all learners of a pack into the states of its trials; dummies repeat the first replica of their learner.

    Args:
        states: of each trial the positions of its replicas, and their rows.
        step: of all of them.
        training: of the pack.
    """
    pieces: dict[int, tuple[Learner, list[int], list[Rows]]] = {}
    for own, rows_of_trial in states:
        start = 0
        for learner, rows in own:
            _, positions, parts = pieces.setdefault(id(learner), (learner, [], []))
            positions += rows
            parts.append({name: value[start : start + len(rows)] for name, value in rows_of_trial.items()})
            start += len(rows)
    for learner, positions, parts in pieces.values():
        order = torch.full((learner.ensemble.rows,), positions.index(0), dtype=torch.long)
        order[positions] = torch.arange(len(positions))
        restore(learner, {name: value[order] for name, value in _join(parts).items()}, step, training)
