"""The study of a module, a kernel and nothing else: sizes by the memory's time scale, the rest by defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memsweep.config.load.study import study_of
from memsweep.config.schema.study import SweepConfig

_SETTINGS: dict[str, Any] = {
    "training": {
        "steps": 500,
        "batch_size": 64,
        "validation_size": 256,
        "learning_rate": 0.02,
        "schedule": "cosine",
    },
    "perturbation": {"balls": ["recurrent"], "test_size": 256},
    "decide": {},
}
"""A short training: rounds repair it where it is too short. What is left out is found as for every such study."""


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
    written = {
        "name": f"{factory}, {kernel}",
        "task": {"name": "linear_functional", "kernel": kernel},
        "model": {"name": "module", "factory": factory},
        **_SETTINGS,
    }
    return study_of(written, words, workspace, f"Does {factory} hold the memory {kernel} stably?")
