"""The study of a module, a kernel and nothing else: sizes by the memory's time scale, the rest by defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from memsweep import registry
from memsweep.config.load.study import study_of
from memsweep.config.schema.study import SweepConfig
from memsweep.stability.verdict.judgement import USABLE_SCALES
from memsweep.stability.verdict.rule import time_scale

_TASK = "linear_functional"
_LONG = 4096
"""Steps of the memory that its time scale is read off; a longer one is taken to be so long."""
_SHORTEST = 3
_DOUBLINGS = 4
_WIDTHS = (4, 6, 8, 12)
_SETTINGS = {
    "training": {
        "seeds": 5,
        "steps": 500,
        "batch_size": 64,
        "validation_size": 256,
        "learning_rate": 0.02,
        "schedule": "cosine",
    },
    "perturbation": {
        "balls": ["recurrent"],
        "radii": {"from": 0.01, "to": 3, "count": 8},
        "starts": 0,
        "ascent_steps": 2,
        "test_size": 256,
    },
}
"""A short training and a short search: rounds repair them where they are too short."""


def smallest(factory: str, kernel: str, words: Sequence[str], workspace: Path) -> SweepConfig:
    """The first plan of a module on a memory: four horizons from two time scales on, four widths, five seeds.

    Args:
        factory: of the module, ``my_nets:MinGRU``.
        kernel: of the task ``linear_functional``.
        words: overrides of what is not to be as by default.
        workspace: folder of the module.

    Raises:
        ConfigError: as of ``study_of``.
    """
    task = {"name": _TASK, "kernel": kernel}
    first = _first_horizon(task, [word for word in words if word.startswith("task.")], workspace)
    horizons = [first * 2**power for power in range(_DOUBLINGS)]
    rows = [{"task": {"horizon": horizon}, "model": {"width": _WIDTHS[-1]}} for horizon in horizons]
    rows += [{"task": {"horizon": horizons[-1]}, "model": {"width": width}} for width in _WIDTHS[:-1]]
    written = {
        "name": f"{factory}, {kernel}",
        "task": task,
        "model": {"name": "module", "factory": factory},
        **_SETTINGS,
        "grid": {"rows": rows},
    }
    return study_of(written, words, workspace, f"Does {factory} hold the memory {kernel} stably?")


def _first_horizon(task: dict[str, str], words: Sequence[str], workspace: Path) -> int:
    """The least horizon of a limit slope, in steps."""
    asked = {"name": "memory", "task": {**task, "horizon": _LONG}, "model": {"name": "diagonal_rnn"}}
    config = study_of(asked, [word for word in words if "horizon" not in word], workspace, "").rows[0].task
    made = registry.get(registry.TASK, _TASK)(config)
    scale = time_scale(made.kernel().numpy())
    return max(_SHORTEST, math.ceil(USABLE_SCALES * (scale or 1.0)))
