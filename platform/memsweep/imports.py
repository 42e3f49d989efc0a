"""Imports of many modules at once, without a search for garbage among what they make."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def importing(*, own_process: bool = False) -> Iterator[None]:
    """Looks for no garbage while modules are imported.

    Args:
        own_process: nothing but this command runs here: later searches leave out what is there now. Torch's objects
            stay for as long as the process does, and each full search went through all of them again. In a process of
            a user's, garbage of theirs would never be freed.
    """
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if own_process and len(sys.modules) > before:
            gc.freeze()
        if enabled:
            gc.enable()
