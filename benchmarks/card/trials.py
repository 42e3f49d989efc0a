"""Whole trials and packs of them: the GPU beside the processor, packs beside single trials, steps, shares of memory.

They need scipy and pandas, as a worker does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.card import measuring
from benchmarks.card.catalogue import Setting

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
DEEP = {"name": "residual_stack", "width": 32, "features": 32, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "linear": {"name": "diagonal_rnn", "width": 8, "activation": "linear"},
    "tanh": {"name": "diagonal_rnn", "width": 8, "activation": "tanh"},
    "dense tanh": {"name": "dense_rnn", "width": 16, "activation": "tanh", "basis": "free", "discretization": "euler"},
    "lru": DEEP | {"unit": {"name": "lru"}},
    "gru": DEEP | {"unit": {"name": "gru"}},
    "s6": DEEP | {"unit": {"name": "s6"}},
}
CLOSE = 1e-6
"""Of the error of a trial, relative; a few steps of training do not amplify roundings further."""


def made(name: str, setting: Setting, **training: Any) -> Any:
    """A trial on the linear functional that takes a second or two."""
    from memsweep import registry
    from memsweep.config.schema.canonical import trial_from_dict

    registry.discover(ROOT)
    model = MODELS[name] | (
        {"width": 4} | ({"features": 4} if "features" in MODELS[name] else {}) if setting.quick else {}
    )
    seeds, steps, batch = (2, 5, 8) if setting.quick else (4, 10, 64)
    small = {"seeds": seeds, "steps": steps, "batch_size": batch, "validation_size": batch, "validate_every": 5}
    return trial_from_dict(
        {
            "task": {"name": "linear_functional", "horizon": 8 if setting.quick else 50},
            "model": model,
            "training": small | training,
            "perturbation": {
                "radii": {"from": 1e-3, "to": 1.0, "count": 4},
                "starts": 1,
                "ascent_steps": 3,
                "test_size": 16 if setting.quick else 256,
                "stronger_every": 0,
            },
        }
    )


def numbers(setting: Setting, name: str) -> Iterator[Row]:
    """A trial on both devices, twice, and in a pack with another one that has other learning rates."""
    from memsweep.trial import RunOptions, packs, program, run_pack, run_trial

    for dtype in ("float64", "float32"):
        one, other = (made(name, setting, dtype=dtype, learning_rate=rate) for rate in (0.01, 0.003))
        there = RunOptions(device=setting.device)
        with compiled_code():
            here = run_trial(one)
        first, second = run_trial(one, there), run_trial(one, there)
        row: Row = {"model": name, "dtype": dtype, "difference": apart(first, here), "twice": same(first, second)}
        if packs(one) and program(one) == program(other):
            row["pack"] = same(run_pack([other, one], there)[1], first)
        close = CLOSE if dtype == "float64" else 1e-2
        yield row | {"right": row["difference"] <= close and row["twice"] and row.get("pack", True)}


def apart(found: Any, expected: Any) -> float:
    """The largest relative difference of errors, of replicas and over radii."""
    worst = 0.0
    for table in ("replicas", "curves"):
        pairs = zip(found.tables[table]["error"], expected.tables[table]["error"], strict=True)
        for one, other in pairs:
            off = abs(one - other) / max(abs(other), 1e-30)
            worst = max(worst, off if off == off else float(one == one or other == other) * 1e300)
    return worst


def same(found: Any, other: Any) -> bool:
    """Whether all tables have the same bits."""
    return all(table.equals(other.tables[name]) for name, table in found.tables.items())


@contextlib.contextmanager
def compiled_code() -> Iterator[None]:
    """The processor's compiled kernels, as a sweep has them, where there is a compiler."""
    before = os.environ.pop("MEMSWEEP_KERNELS", None)
    try:
        yield
    finally:
        if before is not None:
            os.environ["MEMSWEEP_KERNELS"] = before


STEPS = [(name, models) for name in MODELS for models in (1, 8, 64)]


def steps(setting: Setting) -> Iterator[Row]:
    """A whole step of training, and the drawing of its batch: milliseconds, launches, waits, memory."""
    for name, models in STEPS[:1] if setting.quick else STEPS:
        for dtype in ("float64", "float32"):
            for horizon, batch in ((8, 4),) if setting.quick else ((100, 64), (1000, 64)):
                if "unit" in MODELS[name] and (dtype == "float64" or models == 64):
                    continue
                config = made(name, setting, dtype=dtype, batch_size=batch, seeds=models)
                config = dataclasses.replace(config, task=dataclasses.replace(config.task, horizon=horizon))
                row: Row = {"model": name, "models": models, "dtype": dtype, "horizon": horizon, "sequences": batch}
                yield row | step_row(config, setting.device, models == 8 and horizon == 100)


def step_row(config: Any, device: str, beside: bool) -> Row:
    """Figures of a step on the device, and milliseconds on the processor where asked."""
    work, draw = stepper(config, device)
    row: Row = {"milliseconds": measuring.milliseconds(work, device, 0.3)}
    row |= {"launches": measuring.launches(work, device), "waits": measuring.waits(work, device)}
    row |= {"peak_mib": measuring.peak_mib(work, device), "draw_ms": measuring.milliseconds(draw, device, 0.2)}
    if beside and device == "cuda":
        with compiled_code():
            row["processor_ms"] = measuring.milliseconds(stepper(config, "cpu")[0], "cpu", 0.3)
    return row


def stepper(config: Any, device: str) -> tuple[Any, Any]:
    """A step over a batch that was drawn before, as the loop takes it, and the drawing of a batch."""
    from memsweep import trial
    from memsweep.config.schema.batch_loss import trains_by_convolution
    from memsweep.learning import loop
    from memsweep.learning.loss.batch_sharding import ONE_SHARD
    from memsweep.learning.loss.carried import task_loss_for
    from memsweep.learning.loss.convolved import ConvolvedLoss
    from memsweep.learning.training.learner import Learner
    from memsweep.streams import TRAIN, Stream

    training = dataclasses.replace(config.training, steps=1_000_000)
    dtype, stream = getattr(torch, training.dtype), Stream(training.data_seed, TRAIN)
    with trial._default_device(device):
        tasks, ensembles = trial._tasks_and_ensembles([config], padded=True)
        loss = task_loss_for(tasks, config.trains_in_closed_form, dtype)
        if trains_by_convolution(config):
            loss = ConvolvedLoss(tasks, dtype, ensembles)
        learners = [Learner.start(ensemble.to(device), loss, training) for ensemble in ensembles]
        batches = loop.TrainingBatches(loss, training, ONE_SHARD)
        data = batches.batch(0)
    count = iter(range(1_000_000))

    def work() -> None:
        with trial._default_device(device):
            index = next(count)
            if any(bool(learner.live.any()) for learner in learners):  # as the loop asks
                for learner in learners:
                    loop._step(learner, loss, data, index, training)

    def draw() -> None:
        with trial._default_device(device):
            loss.draw(stream, next(count), training.batch_size)

    return work, draw


def shares(setting: Setting) -> Iterator[Row]:
    """A probe's measurement, the share that follows, and as many processes as it allows, all at once."""
    if setting.device != "cuda":
        yield {"left out": "there is no GPU"}
        return
    from memsweep.sweep.planning.resources import on_card

    for name in ("linear", "gru"):
        found = dict(pair.split("=") for pair in _alone(name, 0).split())
        asked = 0.25
        from memsweep.sweep.worker.gpu_memory import Need

        need = Need(int(found["tensors"]), int(found["process"]), int(found["card"]))
        share = need.share(asked)
        sizes = {"tensors_mib": need.tensors, "process_mib": need.process, "limit_mib": share.tensors}
        row: Row = {"model": name, "asked": asked, "share": share.card, "at_once": on_card(share.card)}
        yield row | {key: round(value / 2**20, 1) for key, value in sizes.items()}
        start = time.monotonic()
        workers = [_started(name, share.tensors) for _ in range(on_card(share.card))]
        told = [worker.communicate(timeout=50)[0].decode() for worker in workers]
        ends = [worker.returncode for worker in workers]
        yield {"model": name, "workers": len(workers), "seconds": round(time.monotonic() - start, 1), "codes": ends,
               "told": [" ".join(each.split())[-160:] for each in told],
               "right": not any(ends) and all("refused=True" in each for each in told)}  # fmt: skip


_WORK = """
import sys, torch
from benchmarks.card import trials
from benchmarks.card.catalogue import Setting
from memsweep.config.schema.canonical import to_dict
from memsweep.sweep.worker.gpu_memory import hold_to, probe, shortened
from memsweep.trial import RunOptions, run_pack
config, limit = trials.made(sys.argv[1], Setting("cuda", False)), int(sys.argv[2])
if not limit:
    need = probe([[to_dict(shortened(config, 3, 4, 1))]], trials.ROOT)
    print(f"tensors={need.tensors} process={need.process} card={need.card}")
else:
    hold_to(limit)
    run_pack([config], RunOptions(device="cuda"))
    print(f"reserved={torch.cuda.max_memory_reserved()}")
    try:
        torch.empty(limit + 2**30, dtype=torch.uint8, device="cuda")
        print("refused=False")
    except torch.OutOfMemoryError:
        print("refused=True")
"""


def _started(name: str, limit: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "platform"), str(ROOT), *sys.path])}
    command = [sys.executable, "-c", _WORK, name, str(limit)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _alone(name: str, limit: int) -> str:
    worker = _started(name, limit)
    said = worker.communicate(timeout=50)[0].decode()
    if worker.returncode:
        raise RuntimeError(said[-300:])
    return said.strip().splitlines()[-1]
