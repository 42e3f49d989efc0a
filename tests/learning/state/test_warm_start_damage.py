"""States that are damaged, foreign or crafted, and places that fail: they cost time, never numbers."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
from test_checkpoints import Held, signed
from test_until import assert_same
from test_warm_start import begun, begun_and_whole, until

from engine import stacked
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import StoreError
from memsweep.learning.state.warm_start import WarmStart
from memsweep.learning.training.learner import Learner
from memsweep.trial import RunOptions, TrialResult, run_pack


@pytest.fixture(scope="module")
def handed() -> tuple[TrialConfig, bytes, TrialResult]:
    """See ``begun_and_whole``."""
    return begun_and_whole()


def loaded(config: TrialConfig, data: bytes) -> tuple[int, bool]:
    """The step at which a training of ``config`` would begin with this state, and whether its learners were touched."""
    (ensemble,), task_loss = stacked([config.model, config.model], config.task, rows=lambda width: 4)
    learner = Learner.start(ensemble, task_loss, config.training)
    before = learner.weights.clone()
    step = WarmStart([config], [Held(data)], [None]).load([learner], config.training, 0)
    return step, not torch.equal(before, learner.weights) or learner.optimizer.step > 0


def test_a_damaged_state_is_refused(handed, caplog):
    config, good, _ = handed
    assert loaded(config, good) == (20, True)
    draw = random.Random(0)
    spoilt = [b"", good[:-1], good[: len(good) // 2], good + b"x", good.replace(b"checkpoint 2", b"checkpoint 1", 1)]
    spoilt.append(signed(b"cos\nsystem\n(S'true'\ntR."))
    for at in (draw.randrange(len(good)) for _ in range(100)):
        spoilt.append(good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1 :])
    for data in spoilt:
        caplog.clear()
        assert loaded(config, data) == (0, False)
        (message,) = caplog.messages
        assert message.endswith("training starts from the beginning")


@dataclasses.dataclass
class Away(Held):
    """A place that fails."""

    def read(self, most: int) -> bytes | None:
        raise StoreError("the disk is gone\nfor good")

    def write(self, data: bytes) -> None:
        raise OSError(28, "No space left on device")


def test_a_place_that_fails_ends_no_training(handed, caplog):
    config, _, whole = handed
    (result,), at_step = begun([config], start_states=[Away()])
    assert at_step == 0
    run_pack([until(config, 20)], RunOptions(end_states=[Away()]))
    assert_same(result, whole)
    read, written = caplog.messages
    assert "cannot be read (StoreError: the disk is gone)" in read
    assert "cannot be written (OSError: [Errno 28] No space left on device)" in written
