"""The study of a module, a kernel and nothing else: sizes by the memory's time scale, the rest by defaults."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memsweep.config.load import study_files
from memsweep.config.load.study import study_of
from memsweep.config.schema.study import SweepConfig
from memsweep.errors import ConfigError

KERNEL = "exponential"
"""The memory where none is named."""
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


_OF_KERNEL = "task.kernel="


def names_module(word: str) -> bool:
    """Whether the study is a module, ``my_nets:MinGRU``; ``my_nets:MinGRU, shift`` is the stored one of such a name."""
    return study_files.MODULE.fullmatch(word) is not None and "://" not in word and not os.path.exists(word)


def smallest(factory: str, kernel: str | None, words: Sequence[str], workspace: Path) -> SweepConfig:
    """The first plan of a module on a memory: four horizons from two time scales on, four widths, five seeds.

    Args:
        factory: of the module, ``my_nets:MinGRU``.
        kernel: of the task ``linear_functional``; None: the usual one.
        words: overrides of what is not to be as by default.
        workspace: folder of the module.

    Raises:
        ConfigError: as of ``study_of``; the kernel is named twice.
    """
    own = [word.removeprefix(_OF_KERNEL) for word in words if word.startswith(_OF_KERNEL)]
    if own and kernel is not None:
        raise ConfigError(
            [f"kernel {kernel} and {_OF_KERNEL}{own[0]} both name the memory. Write one"], "the command line"
        )
    kernel = kernel or (own[-1] if own and own[-1].isidentifier() else KERNEL)
    written = {
        "name": f"{factory}, {kernel}",
        "task": {"name": "linear_functional", "kernel": kernel},
        "model": {"name": "module", "factory": factory},
        **_SETTINGS,
    }
    return study_of(written, words, workspace, f"Does {factory} hold the memory {kernel} stably?")
