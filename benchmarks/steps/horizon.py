"""Time and memory of an optimizer step as the horizon grows.

Every figure comes from a process of its own: it sets a pack up, takes one step that is not counted, then times some.
Memory is what the steps added to the process's largest resident size; the data of the pack and the weights are small
beside it. ``slope`` is the growth of the time by that of the horizon, on logarithmic axes, from the row before.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks import harness
from benchmarks.harness import ROOT, Options, Row

HORIZONS: Final = (100, 300, 1000, 3000, 10_000)
WIDTH: Final = 8
MODELS: Final = {"linear": 64, "linear, population": 64, "tanh": 16}
"""Models of a pack: as many as fill the shapes of a sweep's packs."""
BATCH: Final = 512
PATIENCE: Final = 240
"""Seconds of one process; a row that takes longer is left empty."""


def measured(case: str, horizon: int, batch: int, steps: int) -> Row:
    """In this process: seconds of a step, one figure each, and MiB that the steps took."""
    from benchmarks.steps.product import Pack, trial_config

    harness.one_thread()
    activation, _, law = case.partition(", ")
    fields: dict[str, Any] = {"seeds": MODELS[case], "batch_size": batch, "width": WIDTH, "activation": activation}
    fields["objective"] = law or "minibatch"
    # libraries and kernels are loaded, and do not count as the step's memory
    Pack.of(trial_config("diagonal_rnn", horizon=16, **fields)).step()
    # rates of a kernel that is as long, in its own units, at every horizon
    task = {"rate": 10.0 / horizon}
    pack = Pack.of(trial_config("diagonal_rnn", horizon=horizon, task=task, **fields))
    before = _largest()
    start = time.process_time()
    pack.step()
    first = time.process_time() - start
    # a step that takes seconds is long enough for its first time to say it
    seconds = [first]
    if first < 2.0:
        repeats = max(1, math.ceil(harness.SHORTEST / first))
        seconds = [_seconds(pack.step, repeats) for _ in range(steps)]
    pack.check()
    return {"seconds": seconds, "mebibytes": _largest() - before}


def _seconds(work: Any, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - start) / repeats


def _largest() -> float:
    """The largest resident size of this process so far, MiB."""
    try:
        # Linux hands ru_maxrss down to a process from the one that started it; this figure is its own
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 2**10
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _apart(*about: Any) -> Row | None:
    """``measured`` in a process of its own; None where it takes too long."""
    command = [sys.executable, "-m", "benchmarks.steps.horizon", *map(str, about)]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
    except subprocess.TimeoutExpired:
        return None
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def run(options: Options) -> None:
    """Measure, print and write ``horizon.json``."""
    horizons, batch, steps = ((16, 32), 32, 2) if options.quick else (HORIZONS, BATCH, harness.PAIRS)
    rows: list[Row] = []
    for case, models in list(MODELS.items())[:: 2 if options.quick else 1]:
        last: tuple[int, float] | None = None
        for horizon in horizons:
            row: Row = {"model": "diagonal_rnn", "case": case, "width": WIDTH, "models": models}
            row |= {"horizon": horizon, "sequences": batch}
            if not options.wants(row):
                continue
            found = _apart(case, horizon, batch, steps)
            each = harness.median(found["seconds"]) / models if found else None
            row |= {"milliseconds_per_model": 1e3 * each if each else None, "slope": None, "mebibytes": None}
            if found and each:
                row["mebibytes"] = found["mebibytes"]
                if last:
                    row["slope"] = math.log(each / last[1]) / math.log(horizon / last[0])
                last = horizon, each
            rows.append(row)
            harness.tell(row)
    settings = {
        "clock": "CPU time of a process of its own, one thread",
        "mebibytes": "growth of the largest resident size by the steps of the whole pack",
        "empty": f"the process took more than {PATIENCE} s",
        "tanh": "16 models run over all sequences; linear: 64 models by their impulse responses",
    }
    harness.publish("horizon", settings, rows, options)


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], *map(int, sys.argv[2:]))))
