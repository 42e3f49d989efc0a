"""Measurements beside the errors of a trial: one that fails is named in the result, and costs nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from memsweep.config.load.foreign import described

_Measured = TypeVar("_Measured")


def attempt(name: str, compute: Callable[[], _Measured], failures: list[str]) -> _Measured | None:
    """The result of a measurement, or None with the reason added to ``failures``.

    Lack of memory is no property of the model: it goes on, and the pack is tried again.
    """
    try:
        return compute()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # any fault of a model's code
        failures.append(f"{name}: {described(error)}")
        return None
