"""How many packs fit on the machines that are there, and the refusal of a pack that never would."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from memsweep.config.schema import ResourcesConfig
from memsweep.errors import ConfigError

_STEP = 1e-4  # Ray counts resources in ten-thousandths; less than that is rounding, not capacity


def local_cpus() -> int:
    """CPU cores that this process may use (a container or taskset may allow fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def this_machine(resources: ResourcesConfig) -> dict[str, float]:
    """This machine as a node, for ``slots``; its GPUs are counted only when a pack asks for one (it takes seconds)."""
    if resources.gpus == 0:
        return {"CPU": local_cpus()}
    import torch

    return {"CPU": local_cpus(), "GPU": torch.cuda.device_count()}


def threads(resources: ResourcesConfig) -> int:
    """Threads of one pack's process: one per whole core asked, and at least one."""
    return max(1, math.floor(resources.cpus + _STEP))


def slots(resources: ResourcesConfig, nodes: Sequence[Mapping[str, float]]) -> int:
    """Packs that can run at the same time.

    Args:
        resources: what one pack asks for.
        nodes: ``{"CPU": cores, "GPU": cards}`` of each living node. A pack runs on one node, and a share of a
            GPU on one card.

    Returns:
        At least 1; at most ``resources.max_concurrent`` where that is set.

    Raises:
        ConfigError: no node can ever hold one pack (Ray itself would wait for ever).
    """
    fitting = sum(_on_node(resources, node) for node in nodes)
    if fitting < 1:
        raise ConfigError(_problems(resources, nodes), source="the resources of this study")
    return min(fitting, resources.max_concurrent) if resources.max_concurrent else fitting


def _on_node(resources: ResourcesConfig, node: Mapping[str, float]) -> int:
    by_cpu = math.floor(node.get("CPU", 0.0) / resources.cpus + _STEP)
    if resources.gpus == 0:
        return by_cpu
    cards = node.get("GPU", 0.0)
    if resources.gpus < 1:
        by_gpu = math.floor(cards) * math.floor(1.0 / resources.gpus + _STEP)
    elif resources.gpus != math.floor(resources.gpus):
        by_gpu = 0  # Ray gives whole cards above one
    else:
        by_gpu = math.floor(cards / resources.gpus + _STEP)
    return min(by_cpu, by_gpu)


def _problems(resources: ResourcesConfig, nodes: Sequence[Mapping[str, float]]) -> list[str]:
    cpus = max((node.get("CPU", 0.0) for node in nodes), default=0.0)
    gpus = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
    problems = []
    if resources.cpus > cpus + _STEP:
        problems.append(
            f"resources.cpus is {resources.cpus:g} for each pack, but the largest node has {cpus:g} CPU cores: "
            f"set resources.cpus to at most {cpus:g}, or join a larger cluster with --address."
        )
    if resources.gpus > 1 and resources.gpus != math.floor(resources.gpus):
        problems.append(
            f"resources.gpus is {resources.gpus:g}: a pack takes a fraction of one card (at most 1) or whole cards. "
            f"Set it to {math.floor(resources.gpus)} or {math.ceil(resources.gpus)}."
        )
    elif resources.gpus > gpus + _STEP:
        allowed = f"at most {gpus:g}" if gpus else "0"
        problems.append(
            f"resources.gpus is {resources.gpus:g} for each pack, but the largest node has {gpus:g} GPUs: "
            f"set resources.gpus to {allowed}, or join a cluster with GPUs with --address."
        )
    return problems or [
        f"no single node has both {resources.cpus:g} CPU cores and {resources.gpus:g} GPUs, which each pack asks for: "
        "lower resources.cpus or resources.gpus."
    ]
