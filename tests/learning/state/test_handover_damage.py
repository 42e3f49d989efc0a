"""States that are damaged, foreign or crafted, and places that fail: they cost time, never numbers."""

from __future__ import annotations

import copy
import dataclasses
import random
from typing import Any

import pytest
import torch
from test_checkpoints import Held, signed
from test_handover import begun, begun_and_whole, until
from test_until import assert_same

from engine import stacked
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import StoreError
from memsweep.learning.state import checkpoint_file
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


def _spoilt(good: bytes) -> dict[str, Any]:
    """States with good checksums that are not what this trial left."""
    state = checkpoint_file.from_bytes(good, len(good))
    found = {}

    def put(name: str, path: tuple[str, ...], value: Any) -> None:
        copied = copy.deepcopy(state)
        *way, last = path
        inner = copied
        for key in way:
            inner = inner[key]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
        found[name] = copied

    weights = state["replicas"]["weights"]
    put("another key", ("key",), "0" * 64)
    put("no text as key", ("key",), 3)
    put("step 0", ("step",), 0)
    put("the last step", ("step",), 60)
    put("a step between", ("step",), 25)
    put("a step of another state", ("step",), 30)
    put("a fraction of a step", ("step",), 20.0)
    put("a name too many", ("more",), 1)
    put("no replicas", ("replicas",), None)
    put("a list of replicas", ("replicas",), [1])
    put("a name missing", ("replicas", "optimizer.mean"), None)
    put("a replica too many", ("replicas", "weights"), torch.cat([weights, weights[:1]]))
    put("another type", ("replicas", "weights"), weights.float())
    put("no tensor", ("replicas", "weights"), 1.0)
    put("history cut", ("replicas", "train_losses"), state["replicas"]["train_losses"][:, :-1])
    return found


def test_a_state_of_another_form_is_refused_whole(handed, caplog):
    config, good, whole = handed
    for name, state in _spoilt(good).items():
        caplog.clear()
        assert loaded(config, checkpoint_file.to_bytes(state)) == (0, False), name
        assert len(caplog.messages) == 1, name
    (result,), at_step = begun([config], start_states=[Held(good[:-1])])
    assert at_step == 0
    assert_same(result, whole)


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
