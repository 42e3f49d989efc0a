"""Imports of many modules at once, without a search for garbage among what they make."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Looks for no garbage while modules are imported, nor in what they made later on.

    Torch's objects stay for as long as the process does, and each full search went through all of them again.
    """
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if enabled:
            gc.enable()
