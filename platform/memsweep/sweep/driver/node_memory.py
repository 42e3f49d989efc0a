"""The memory of a node that a pack asks for: as much as its largest programs held when they were tried on the cluster.

Cores alone do not say how many packs a node can hold: packs that fill its cores may need more memory than it has.
"""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import trial_from_dict
from memsweep.errors import BlockedError, StoreError
from memsweep.models.module.in_memory import put_all
from memsweep.sweep.planning.resources import suits, threads
from memsweep.sweep.ray.capacity import Node, capacity
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.unwritable import check_writable
from memsweep.sweep.worker.gpu_memory import PATIENCE, one_process, programs
from memsweep.sweep.worker.job import code_of
from memsweep.sweep.worker.limits import GIB, peak_memory

if TYPE_CHECKING:
    from memsweep.config.schema.study import ResourcesConfig
    from memsweep.sweep.planning.plan import Pack

MARGIN = 1.25
"""Factor on the measured memory: the trial is cut short, and later steps leave fragments between allocations."""
_SECONDS = 20.0  # after which no further program is begun

_log = logging.getLogger("memsweep")


def with_node_memory(
    resources: ResourcesConfig, packs: Sequence[Pack], workspace: Path, results: Location | None = None
) -> ResourcesConfig:
    """Resources that name the memory of a node; as they are where they do, or where nodes do not tell theirs.

    Args:
        resources: what one pack asks for.
        packs: those that ask for it; the largest of their programs are tried in a process on the cluster.
        workspace: the study's.
        results: of all studies; the node tries to write there, where that is a bucket.

    Raises:
        BlockedError: it cannot.
    """
    if resources.node_memory is not None or not packs:
        return resources
    found = capacity()
    nodes = [node for node in found.most or found.living if suits(resources, node)]
    if not nodes or not all("memory" in node for node in nodes):
        return resources  # an autoscaler starts no node for a request that names what its types do not
    held = _measured(resources, packs, workspace, results)
    return replace(resources, node_memory=_asked(held, nodes)) if held else resources


def _asked(held: int, nodes: Sequence[Node]) -> float:
    """GiB to ask for, where a process held so many bytes: at most what the largest node has."""
    wanted, largest = MARGIN * held, max(node["memory"] for node in nodes)
    if wanted > largest:
        _log.warning(
            "a pack needs about %.1f GiB of memory, by a probe of its largest programs, and the largest node has %.1f "
            "GiB: each pack gets a node of its own, and may still run out of memory there",
            wanted / GIB,
            largest / GIB,
        )
        return math.floor(100 * largest / GIB) / 100
    _log.info("a pack asks for %.2f GiB of its node's memory, by a probe of its largest programs", wanted / GIB)
    return math.ceil(100 * wanted / GIB) / 100


def _measured(resources: ResourcesConfig, packs: Sequence[Pack], workspace: Path, results: Location | None) -> int:
    """The most bytes that a process held; 0 where nothing was measured, and then nothing is asked for."""
    import ray
    from ray.exceptions import RayError

    code = code_of(trial.config for pack in packs for trial in pack.trials)
    task = ray.remote(**one_process(resources))(footprint)
    asked: Any = task.remote(programs(packs), workspace, resources.device, threads(resources), code, results)
    try:
        return int(ray.get(asked, timeout=PATIENCE))
    except BlockedError as refused:
        raise BlockedError(str(refused.args[0] if refused.args else refused)) from None
    except RayError as error:  # the trials themselves will tell what is wrong with them
        ray.cancel(asked, force=True)
        reason = str(error).strip().splitlines() or [type(error).__name__]
        _log.warning("the memory of a pack was not measured, and none is asked for: %s", reason[-1])
        return 0


def footprint(
    groups: Sequence[Sequence[dict[str, Any]]],
    workspace: Path,
    device: str,
    cores: int,
    code: Mapping[str, Callable[..., Any]] | None = None,
    results: Location | None = None,
) -> int:
    """Runs programs in this process; the most bytes that it held.

    Args:
        groups: trials as ``to_dict`` writes them, the largest program first.
        workspace: the study's.
        device: where they are computed.
        cores: threads.
        code: as of ``PackJob``.
        results: of all studies; a bucket must take a file of this process.

    Raises:
        BlockedError: it takes none.
    """
    import torch

    from memsweep import registry
    from memsweep.trial import RunOptions, run_pack

    if results is not None and results.local is None:
        try:
            check_writable(results)
        except StoreError as error:
            raise BlockedError(
                f"the node {socket.gethostname()} of the cluster cannot store results: {error}"
            ) from None
    torch.set_num_threads(cores)
    registry.discover(workspace)
    put_all(code or {})
    end = time.monotonic() + _SECONDS
    for group in groups:
        run_pack([trial_from_dict(data) for data in group], RunOptions(device=device))
        if time.monotonic() > end:
            break
    return peak_memory()
