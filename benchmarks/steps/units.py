"""The units of deep models side by side: one layer forward and backward, per number of state and step.

Every unit has the same width and as many features, float32, one model. What a unit carries from step to step decides
what it can hold, so times are also given for each of these numbers, and beside two scales of the same run: those of the
unit ``lru``, and a copy of the numbers of the state in memory, which no recurrence that keeps all states can outrun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.harness import Options, Row
from memsweep import registry
from memsweep.models.deep.unit import Unit
from memsweep.streams import Stream

FIRST: Final = "lru"
LARGER: Final[dict[str, dict[str, Any]]] = {
    "s6": {"states": 16},
    "ssd": {"states": 16, "head_dim": 4},
    "ssd_selective": {"states": 16, "head_dim": 4},
    "mamba3": {"states": 16, "head_dim": 4},
}
"""States of a channel as published, where the default is smaller."""
WIDTHS: Final = (64, 256)
HORIZON, BATCH = 256, 16
COPY = "copy"


def made(name: str, width: int) -> Unit:
    """A unit with as many features as its width."""
    unit_class = registry.get(registry.UNIT, name)
    unit: Unit = unit_class(unit_class.Config(**LARGER.get(name, {})), width, width)
    return unit


def weights_of(unit: Unit, horizon: int) -> dict[str, Tensor]:
    """Initial weights of one model, float32, that gather gradients."""
    drawn = unit.initial(horizon, Stream(0, "initial weights").generator())
    return {
        name: torch.from_numpy(np.asarray(value, np.float32))[None].requires_grad_() for name, value in drawn.items()
    }


def held(unit: Unit, weights: dict[str, Tensor]) -> int:
    """Real numbers that the unit carries from one step to the next; 0 where they grow."""
    counts, state = [], None
    for _ in range(2):
        with torch.no_grad():
            _, state = unit.step(weights, torch.zeros(1, 1, unit.features), state)
        floats = [each for each in state.values() if each.is_floating_point() or each.is_complex()]
        counts.append(sum(each.numel() * (2 if each.is_complex() else 1) for each in floats))
    return counts[0] if counts[0] == counts[1] else 0


def work_of(unit: Unit, horizon: int, batch: int) -> Callable[[], object]:
    """One pass forward and backward."""
    weights, noise = weights_of(unit, horizon), Stream(0, "inputs").generator()
    x_NBTF = torch.from_numpy(noise.standard_normal((1, batch, horizon, unit.features), np.float32)).requires_grad_()
    outer = torch.from_numpy(noise.standard_normal((1, batch, horizon, unit.features), np.float32))
    return lambda: torch.autograd.grad(unit.run(weights, x_NBTF), [*weights.values(), x_NBTF], outer, allow_unused=True)


def rows_of(width: int, horizon: int, batch: int, pairs: int, options: Options) -> list[Row]:
    """One width: a round goes through all units, so that all of them meet the same machine."""
    # a user's layer has no size of its own
    names = [FIRST, *(name for name in registry.names(registry.UNIT) if name not in (FIRST, "module"))]
    units = {name: made(name, width) for name in names if name == FIRST or options.wants({"unit": name})}
    numbers = {name: held(unit, weights_of(unit, horizon)) for name, unit in units.items()}
    work = {name: work_of(unit, horizon, batch) for name, unit in units.items()}
    source = torch.zeros(batch * horizon * width * 64)
    target = torch.empty_like(source)
    times = harness.alternate(work | {COPY: lambda: target.copy_(source)}, pairs=pairs)
    copied = harness.median(times[COPY]) / len(source)
    found = []
    for name in units:
        each, steps = times[name], batch * horizon
        row: Row = {"unit": name, "width": width, "milliseconds": 1e3 * harness.median(each)}
        row |= {"of_lru": harness.ratio(each, times[FIRST]), "numbers_held": numbers[name]}
        if numbers[name]:
            per_number = harness.median(each) / (steps * numbers[name])
            share = numbers[name] / numbers[FIRST]
            row |= {"nanoseconds_a_number": 1e9 * per_number, "of_lru_a_number": row["of_lru"] / share}
            row |= {"copies": per_number / copied}
        found.append(row)
    return found


def run(options: Options) -> None:
    """Print and write the table."""
    registry.discover()
    harness.one_thread()
    widths, horizon, batch, pairs = ((64,), 16, 2, 1) if options.quick else (WIDTHS, HORIZON, BATCH, harness.PAIRS)
    rows = [row for width in widths for row in rows_of(width, horizon, batch, pairs, options)]
    settings: Row = {"horizon": horizon, "sequences": batch, "dtype": "float32", "models": 1}
    harness.publish("units", settings, rows, options)
