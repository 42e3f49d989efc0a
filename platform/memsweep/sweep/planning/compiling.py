"""Tells that kernels are about to be compiled: once on a machine, and for minutes on a busy one."""

from __future__ import annotations

import functools
import logging
import os

_REALS = {"float64": "double", "float32": "float"}
_log = logging.getLogger("memsweep")


@functools.cache
def tell_of_compiling(dtypes: frozenset[str]) -> None:
    """Say once that identities wait for the compiler, where they do: they hold which kernels compute a trial.

    Args:
        dtypes: of the trials that a CPU computes.
    """
    from memsweep.recurrence.compiled.build import is_ready
    from memsweep.recurrence.compiled.library import KERNELS

    if os.environ.get(KERNELS, "") == "plain":
        return
    if wanted := [real for dtype, real in _REALS.items() if dtype in dtypes and not is_ready(real)]:
        _log.warning(
            "compiling the kernels (%s), once on this machine: half a minute, or minutes on a busy one",
            " and ".join(wanted),
        )
