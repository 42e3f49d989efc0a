"""Watches the Ray that this process has started: without its head the driver would be ended in native code, unheard."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INTERVAL = 0.5  # seconds; Ray itself ends the driver some ten seconds after its raylet
_HEAD = ("gcs_server", "raylet")


class Watch:
    """What has been seen.

    Attributes:
        died: the part of Ray that is gone; empty while all is well.
    """

    died = ""


@contextmanager
def watched() -> Iterator[Watch]:
    """Interrupt this process, as Ctrl-C would, when a part of its Ray's head dies. Enter it after Ray has started."""
    from ray._private import worker
    from ray.air.execution.resources import placement_group

    node = worker._global_node
    parts = {name: node.all_processes[name][0].process for name in _HEAD if name in node.all_processes}
    watch, ended = Watch(), threading.Event()

    def look() -> None:
        while not ended.wait(_INTERVAL):
            for name, process in parts.items():
                if process.poll() is not None and not ended.is_set():
                    watch.died = name
                    # Tune's cleanup would wait for the dead head in native code, which then ends this process
                    placement_group.remove_placement_group = lambda group: None
                    os.kill(os.getpid(), signal.SIGTERM)  # heard, too, where a shell's background job ignores SIGINT
                    return

    remove = placement_group.remove_placement_group
    thread = threading.Thread(target=look, name="memsweep-ray-watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
        placement_group.remove_placement_group = remove
