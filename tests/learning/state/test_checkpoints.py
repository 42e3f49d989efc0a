"""Checkpoints that are damaged, foreign or crafted, and places that fail: they cost time, never numbers."""

from __future__ import annotations

import copy
import dataclasses
import errno
import hashlib
import io
import logging
import pickle
import zipfile
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import model_config, section, stacked, trial, usual_model
from memsweep import registry
from memsweep.config.schema.training import TrainingConfig
from memsweep.learning.loop import train
from memsweep.learning.loss.base import TaskLoss
from memsweep.learning.state import checkpoint_file
from memsweep.learning.state.checkpoint import Checkpoint, most_bytes, rows_of, state_of
from memsweep.learning.training.learner import Learner
from memsweep.sweep.store.filesystem import Location
from memsweep.trial import RunOptions, run_pack

TRAINING = section(
    TrainingConfig,
    **{"steps": 20, "batch_size": 8, "validation_size": 16},
    **{"validate_every": 5, "checkpoint_every": 10, "sharpness_every": 5},
)
KEY = "these configs"


@dataclasses.dataclass
class Held:
    """A slot in memory."""

    data: bytes | None = None

    def read(self, most: int) -> bytes | None:
        return None if self.data is None else self.data[: most + 1]

    def write(self, data: bytes) -> None:
        self.data = data

    def delete(self) -> None:
        self.data = None

    def __str__(self) -> str:
        return "memory"


def started() -> tuple[list[Learner], TaskLoss]:
    (ensemble,), task_loss = stacked([model_config(width=width) for width in (2, 3)])
    return [Learner.start(ensemble, task_loss, TRAINING)], task_loss


@cache
def good() -> bytes:
    """The file of an interrupted training of ``TRAINING``."""
    (ensemble,), task_loss = stacked([model_config(width=width) for width in (2, 3)])
    slot = Held()
    train([ensemble], task_loss, TRAINING, checkpoint=Checkpoint(slot, KEY))
    assert slot.data is not None
    return slot.data


def state() -> dict:
    return checkpoint_file.from_bytes(good(), len(good()))


def refused(data: bytes) -> str:
    """Load ``data``: nothing is restored, one line says why; that line's reason."""
    learners, _ = started()
    before = copy.deepcopy(state_of(KEY, learners, 0, TRAINING))
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("memsweep.learning.state.checkpoint")
    log.addHandler(handler)
    try:
        assert Checkpoint(Held(data), KEY).load(learners, TRAINING) == 0
    finally:
        log.removeHandler(handler)
    assert _same(before, state_of(KEY, learners, 0, TRAINING))
    (line,) = lines
    assert "\n" not in line
    assert len(line) < 700
    assert line.endswith("training starts again")
    return line


def _same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_same, one, other))
    return one == other


def signed(payload: bytes) -> bytes:
    """Content of our own making under a header whose checksum fits."""
    line = good().partition(b"\n")[0] + b"\n"
    return line + hashlib.sha256(payload).digest() + payload


def content() -> bytes:
    return good()[len(good().partition(b"\n")[0]) + 1 + 32 :]


def rezipped(replace: dict[str, bytes] | None = None, compression: int = zipfile.ZIP_STORED, **more: bytes) -> bytes:
    """The zip of a good checkpoint with some of its entries replaced or added."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content())) as source, zipfile.ZipFile(out, "w", compression) as target:
        names = source.namelist()
        for name in names:
            target.writestr(name, (replace or {}).get(name.partition("/")[2], source.read(name)))
        for name, data in more.items():
            target.writestr(f"{names[0].partition('/')[0]}/{name}", data)
    return signed(out.getvalue())


def test_a_good_checkpoint_is_continued_from():
    learners, _ = started()
    assert Checkpoint(Held(good()), KEY).load(learners, TRAINING) == 10
    assert _same(state_of(KEY, learners, 10, TRAINING), state())
    assert len(good()) <= most_bytes(rows_of(learner, TRAINING.end, TRAINING) for learner in learners)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", registry.names(registry.MODEL))
def test_a_checkpoint_of_every_model_fits_its_own_pack(name, dtype, caplog):
    training = {"steps": 4, "validate_every": 1, "checkpoint_every": 2, "dtype": dtype, "batch_size": 4}
    config = trial(task={"horizon": 8}, training=training, perturbation={"balls": (), "test_size": 16})
    small = {"state_size": 2} if name == "stable_ssm" else {}
    model = usual_model(name, width=2, **small)
    config = dataclasses.replace(config, model=model)
    slot = Held()
    (first,) = run_pack([config], RunOptions(checkpoint=slot))
    assert slot.data
    (again,) = run_pack([config], RunOptions(checkpoint=slot))
    assert not caplog.messages
    for table, rows in first.tables.items():
        pd.testing.assert_frame_equal(rows, again.tables[table])


def test_every_truncation_is_noticed():
    data = good()
    header = range(120)
    entries = [i for i in range(len(data)) if data[i : i + 2] == b"PK"]
    offsets = {*header, *range(120, len(data), 331), *entries, *(i + 1 for i in entries), len(data) - 1}
    for offset in sorted(offsets):
        with pytest.raises(checkpoint_file.UnusableError):
            checkpoint_file.from_bytes(data[:offset], 10**9)
    for offset in (0, 1, 20, 40, 60, len(data) // 2, len(data) - 1):
        refused(data[:offset])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_flipped_bit_and_every_piece_put_in_is_noticed(data):
    whole = good()
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        changed = bytearray(whole)
        changed[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        changed = bytearray(whole[:at] + data.draw(st.binary(min_size=1, max_size=64)) + whole[at:])
    with pytest.raises(checkpoint_file.UnusableError):
        checkpoint_file.from_bytes(bytes(changed), 10**9)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=4096))
def test_foreign_bytes_are_refused_even_with_a_good_checksum(data):
    refused(data)
    refused(signed(data))


class _Malice:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple:
        return Path.touch, (self.victim,)


def _pickled(found: object) -> bytes:
    return pickle.dumps(found, protocol=2)


def test_a_pickle_that_would_run_something_runs_nothing(tmp_path):
    victim = tmp_path / "created"
    plain = _pickled(_Malice(victim))
    pickle.loads(plain)
    assert victim.exists()  # it is malicious indeed
    victim.unlink()
    stream = io.BytesIO()
    torch.save({"key": KEY, "step": 10, "learners": [_Malice(victim)]}, stream)
    for data in (plain, signed(plain), stream.getvalue(), signed(stream.getvalue()), rezipped({"data.pkl": plain})):
        refused(data)
        assert not victim.exists()
    assert "calls for" in refused(signed(stream.getvalue()))


@pytest.mark.parametrize(
    "calls", [b"cbuiltins\nbytearray\n", b"ccollections\nCounter\n", b"ctorch._utils\n_rebuild_sparse_tensor\n"]
)
def test_what_torch_would_allow_but_no_state_needs_is_refused_before_it_runs(calls):
    bomb = b"\x80\x02" + calls + b"(\x8a\x06\x00\x00\x00\x00\x00\x01tR."  # called with 2^40
    assert "calls for" in refused(rezipped({"data.pkl": bomb}))


def test_a_zip_bomb_is_refused_before_it_is_inflated():
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("archive/data.pkl", "w") as entry:
        for _ in range(64):
            entry.write(bytes(1 << 20))
    assert "compressed" in refused(signed(bomb.getvalue()))
    assert "compressed" in refused(rezipped(compression=zipfile.ZIP_DEFLATED))


def test_entries_that_declare_more_than_there_is_are_refused():
    out = bytearray(content())
    entry = out.rindex(b"PK\x01\x02")
    for size in (entry + 20, entry + 24):  # the sizes of the last entry, as stored and as inflated: 3 GiB
        out[size : size + 4] = (3 << 30).to_bytes(4, "little")
    assert "declares more content" in refused(signed(bytes(out)))


def test_a_file_that_is_much_larger_than_the_pack_is_refused_unread():
    found = state()
    found["learners"][0]["weights"] = torch.zeros(2, 1 << 20, dtype=torch.float64)
    assert "bytes that one can take" in refused(checkpoint_file.to_bytes(found))


def _put(path: tuple, value: object) -> bytes:
    found = state()
    node = found
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return checkpoint_file.to_bytes(found)


L0 = ("learners", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("step",), "10"),
        (("step",), 10.0),
        (("step",), True),
        (("step",), -1),
        (("step",), 0),
        (("step",), 21),
        (("step",), 10**4000),
        (("step",), None),
        (("key",), "other configs"),
        (("key",), 7),
        (("extra",), 1),
        (("learners",), []),
        (("learners",), {}),
        (("learners",), "ab"),
        (("learners",), [{}]),
        ((*L0, "extra"), 1),
        ((*L0, "weights"), [[1.0]]),
        ((*L0, "weights"), torch.zeros(1, dtype=torch.float64)),
        ((*L0, "weights"), torch.zeros(1, dtype=torch.float64).expand(10**6, 10**6)),
        ((*L0, "best_loss"), torch.zeros(128, dtype=torch.float32)),
        ((*L0, "running"), torch.zeros(128, dtype=torch.long)),
        ((*L0, "largest"), "0"),
        ((*L0, "optimizer.mean"), None),
        ((*L0, "plateau.bad"), torch.zeros(3)),
        ((*L0, "samples"), torch.zeros(3)),
        ((*L0, "train_losses"), [torch.zeros(3)]),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_state_of_another_form_is_refused_whole(path, value):
    refused(_put(path, value))


def test_tensors_that_share_memory_are_parted():
    """``running`` and ``diverged`` are changed in place: in one memory, each would change the other."""
    found = state()
    flags = found["learners"][0]["running"]
    found["learners"][0]["diverged"] = flags
    learners, _ = started()
    assert Checkpoint(Held(checkpoint_file.to_bytes(found)), KEY).load(learners, TRAINING) == 10
    assert learners[0].running.data_ptr() != learners[0].diverged.data_ptr()


def test_a_checkpoint_of_another_version_says_so():
    assert "another version" in refused(good().replace(b"checkpoint 2\n", b"checkpoint 3\n", 1))
    assert "an old one" in refused(content())  # what was written before the header came


@dataclasses.dataclass
class Broken:
    """A slot that cannot be read or written, and counts how often that was tried."""

    error: Exception
    tries: int = 0

    def read(self, most: int) -> bytes | None:
        return None if self.error.errno == errno.ENOSPC else self._fail()

    def write(self, data: bytes) -> None:
        self._fail()

    def _fail(self) -> None:
        self.tries += 1
        raise self.error

    def __str__(self) -> str:
        return "s3://bucket/pack.pt"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), TimeoutError(errno.EIO, "a\nb")])
def test_a_place_that_fails_ends_no_training_and_is_told_once(error, caplog):
    training = dataclasses.replace(TRAINING, checkpoint_every=5)
    (ensemble,), task_loss = stacked([model_config(width=2)])
    (undisturbed,) = train([ensemble], task_loss, training)
    slot = Broken(error)
    (learner,) = train([ensemble], task_loss, training, checkpoint=Checkpoint(slot, KEY))
    assert torch.equal(undisturbed.best_weights, learner.best_weights)
    assert slot.tries >= 1
    written = [line for line in caplog.messages if "cannot be written" in line]
    assert len(written) == 1
    assert "s3://bucket/pack.pt" in written[0]


def test_a_place_that_fails_slowly_is_asked_rarely(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("memsweep.learning.state.checkpoint.time.monotonic", lambda: now[0])

    class Slow(Broken):
        def _fail(self) -> None:
            now[0] += 25.0
            super()._fail()

    learners, _ = started()
    slot = Slow(OSError(errno.ENOSPC, "away"))
    checkpoint = Checkpoint(slot, KEY)
    for _ in range(1000):
        now[0] += 1.0
        checkpoint.save(learners, 1, TRAINING)
    assert 2 <= slot.tries <= 6


def test_a_full_disk_leaves_the_last_checkpoint_and_no_debris(tmp_path):
    """A real file that cannot grow: the limit of the file system call, not a pretended one."""
    import resource
    import signal

    slot = Location.at(tmp_path).slot("pack.pt")
    slot.write(b"the last one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
        with pytest.raises(OSError, match="large"):
            slot.write(bytes(4096))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert slot.read() == b"the last one"
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == ["pack.pt"]
    slot.delete()
    assert slot.read() is None
