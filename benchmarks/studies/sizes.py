"""Memory of a worker over 500 sizes: one process runs a trial of each, with another horizon and width every time.

A tensor of a new size does not fit the blocks that other sizes left. Without ``give_back_freed_memory`` before each
pack, the process holds what they all left; with it, what it holds at rest does not grow. Both are measured, each in a
process of its own.
"""

from __future__ import annotations

import random
import resource
from dataclasses import replace
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.steps.product import trial_config
from benchmarks.studies.whole import in_a_process
from memsweep import trial
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig, TrialConfig
from memsweep.recurrence.freed_memory import give_back_freed_memory

EVERY = 50
"""Sizes between two rows."""


def sizes(count: int) -> list[tuple[int, int]]:
    """Different horizons (20 to 416) and widths (2 to 6), large and small mixed."""
    found = [(horizon, width) for horizon in range(20, 420, 4) for width in range(2, 7)]
    random.Random(0).shuffle(found)
    return found[:count]


def config(horizon: int, width: int) -> TrialConfig:
    """A short trial with tensors of megabytes: one step of training, two radii, one ball."""
    whole = trial_config("diagonal_rnn", horizon=horizon, width=width, activation="hardtanh", batch_size=2048)
    return replace(
        whole,
        training=replace(whole.training, steps=1, validate_every=1, validation_size=4096),
        perturbation=PerturbationConfig(
            radii=RadiiConfig(from_=1e-2, to=1.0, count=2),
            balls=("recurrent",),
            starts=0,
            ascent_steps=0,
            test_size=4096,
        ),
    )


def at_rest(give_back: bool, count: int) -> list[float]:
    """MiB that this process holds after the first size and after every ``EVERY`` sizes."""
    harness.one_thread()
    given_back, held = give_back_freed_memory, []
    if not give_back:
        trial.give_back_freed_memory = lambda: False  # type: ignore[attr-defined]  # a name that it imports
    for done, (horizon, width) in enumerate(sizes(count), 1):
        trial.run_trial(config(horizon, width))
        if done % EVERY == 0 or done == 1:
            if give_back:
                given_back()  # as the next pack does first
            held.append(_held())
    return held


def _held() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def run(options: Options) -> None:
    """Measure, print and write ``sizes.json``."""
    count = EVERY if options.quick else 500
    given_back, kept = (in_a_process(at_rest, side, count) for side in (True, False))
    done = [1, *range(EVERY, count + 1, EVERY)]
    rows: list[Row] = [
        {"sizes": n, "given_back_mib": ours, "kept_mib": theirs}
        for n, ours, theirs in zip(done, given_back, kept, strict=True)
    ]
    settings = {"trial": "diagonal_rnn, hardtanh, 4,096 test sequences", "memory": "resident, between two packs"}
    harness.publish("sizes", settings, rows, options)
