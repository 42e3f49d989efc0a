"""The number of packs that fit on the available machines; a pack that fits on none is refused."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import ConfigError, listed
from memsweep.sweep.job import in_job

_GIB = 2**30
_STEP = 1e-4  # Ray counts resources in ten-thousandths; less than that is rounding, not capacity


def local_cpus() -> int:
    """CPU cores that this process may use: taskset, and a container's quota of time, may allow fewer than there are."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, quota())))


@functools.cache
def quota(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Cores whose time the control groups of this process grant, by either version of them; inf where none limits it.

    Args:
        groups: where they are mounted. In a container its own group may lie at the top, whatever ``own`` says.
        own: the file that names the groups of the process.
    """
    found = [math.inf]
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            top = groups / "cpu" if controllers else groups
            below = top / path.lstrip("/")
            found += [_granted(folder) for folder in (below, *below.parents) if folder.is_relative_to(top)]
    return min(found)


def _granted(group: Path) -> float:
    """Cores by the files of one control group; inf where it sets no limit, or is not there."""
    with contextlib.suppress(OSError, ValueError):
        if (limit := group / "cpu.max").exists():
            time, period = limit.read_text(encoding="ascii").split()
        else:
            time, period = ((group / f"cpu.cfs_{name}_us").read_text(encoding="ascii") for name in ("quota", "period"))
        if time != "max" and int(time) > 0:
            return int(time) / int(period)
    return math.inf


def this_machine(resources: ResourcesConfig) -> dict[str, float]:
    """This machine as a node, for ``slots``; its GPUs are counted only when a pack asks for one (it takes seconds)."""
    if resources.device == "cpu":
        return {"CPU": local_cpus()}
    import torch

    return {"CPU": local_cpus(), "GPU": torch.cuda.device_count()}


def threads(resources: ResourcesConfig) -> int:
    """Threads of one process: one per whole core asked, and at least one."""
    return max(1, math.floor(resources.cpus + _STEP))


def slots(resources: ResourcesConfig, nodes: Sequence[Mapping[str, float]]) -> int:
    """Packs that can run at the same time, each with all of its workers.

    More must not be started: packs that hold a part of their workers and wait for the rest would wait for one another.

    Args:
        resources: what one pack asks for.
        nodes: ``{"CPU": cores, "GPU": cards, "memory": bytes}`` of each node, and 1 for each of its labels. A
            process runs on one node, and a share of a GPU lies on one card; the workers of a pack may run on several
            nodes. A node that does not say what memory it has is taken to have enough.

    Returns:
        At least 1; at most ``resources.max_concurrent`` where that is set.

    Raises:
        ConfigError: the nodes can never hold one pack (Ray itself would wait for ever).
    """
    processes = sum(_on_node(resources, node) for node in nodes)
    fitting = processes // resources.workers
    if fitting < 1:
        raise ConfigError(_problems(resources, nodes, processes), source="the resources of this study")
    return min(fitting, resources.max_concurrent) if resources.max_concurrent else fitting


def suits(resources: ResourcesConfig, node: Mapping[str, float]) -> bool:
    """Whether a process could run on this node alone, if it had enough memory: its cores, cards and marks."""
    return _on_node(replace(resources, node_memory=None), node) > 0


def marks(resources: ResourcesConfig) -> dict[str, float]:
    """Marks that a node needs beside cores, cards and memory: 1 for each label, and for the type of its cards."""
    kind = [f"accelerator_type:{resources.accelerator}"] if resources.accelerator else []
    return dict.fromkeys([*resources.labels, *kind], 1.0)


def _on_node(resources: ResourcesConfig, node: Mapping[str, float]) -> int:
    if any(not node.get(mark) for mark in marks(resources)):
        return 0
    by_cpu = math.floor(node.get("CPU", 0.0) / resources.cpus + _STEP)
    if resources.node_memory:
        memory = node.get("memory", by_cpu * resources.node_memory * _GIB)
        by_cpu = min(by_cpu, math.floor(memory / (resources.node_memory * _GIB) + _STEP))
    if resources.device == "cpu":
        return by_cpu
    return min(by_cpu, math.floor(node.get("GPU", 0.0)) * on_card(resources.card))


def on_card(share: float) -> int:
    """Processes that fit on one card when each gets this share of it."""
    return math.floor(1.0 / share + _STEP)


def _problems(resources: ResourcesConfig, nodes: Sequence[Mapping[str, float]], processes: int) -> list[str]:
    cpus = max((node.get("CPU", 0.0) for node in nodes), default=0.0)
    cards = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
    problems = []
    if resources.cpus > cpus + _STEP:
        problems.append(
            f"resources.cpus is {resources.cpus:g} for each process, but the largest node has {cpus:g} CPU cores: "
            f"set resources.cpus to at most {cpus:g}{_or_join('a larger cluster')}."
        )
    if resources.device == "cuda" and cards < 1:
        name = "gpus_per_worker" if resources.workers > 1 else "gpus"
        problems.append(
            f"resources.{name} is {resources.card:g}, but no node has a GPU: set it to 0 to compute on CPUs"
            f"{_or_join('a cluster with GPUs')}."
        )
    kinds = {mark.partition(":")[2] for node in nodes for mark in node if mark.startswith("accelerator_type:")}
    if resources.accelerator and resources.accelerator not in kinds:
        problems.append(
            f"resources.accelerator is {resources.accelerator}, but the nodes have {listed(sorted(kinds), 5) or 'none'}"
            ": write it as ray status does, or leave it out."
        )
    problems += [
        f"resources.labels has {label}, but no node has this label: take it out, start nodes with it (ray start "
        "--labels), or let Ray's autoscaler of version 2 start them (RAY_enable_autoscaler_v2=1 on the head)."
        for label in resources.labels
        if not any(node.get(label) for node in nodes)
    ]
    suited = [node for node in nodes if suits(resources, node)] or [node for node in nodes if node.get("CPU")]
    memory = max((node.get("memory", math.inf) for node in suited), default=math.inf) / _GIB
    if resources.node_memory and resources.node_memory > memory:
        problems.append(
            f"resources.node_memory is {resources.node_memory:g} GiB for each process, but the largest node "
            f"for it has {memory:.1f} GiB: set it to at most that, or leave it out, and it is measured."
        )
    if not problems and processes:
        problems.append(
            f"resources.workers is {resources.workers}, but all nodes together hold {processes} such processes at a "
            f"time: set it to at most {processes}{_or_join('a larger cluster')}."
        )
    return problems or [_apart(resources)]


def _or_join(cluster: str) -> str:
    """The end of an advice; none in a job, which has its cluster."""
    return "" if in_job() else f", or join {cluster} with --address"


def _apart(resources: ResourcesConfig) -> str:
    """The sentence on nodes that have each thing that a process asks for, but none of which has them all."""
    marks = [*([resources.accelerator] if resources.accelerator else []), *resources.labels]
    card = ["a GPU"] if resources.device == "cuda" else []
    has = f"{resources.cpus:g} CPU cores and {' and '.join([*card, *marks])}"
    other = f", or take {marks[-1]} out" if marks else ""
    return f"no single node has both {has}, which each process asks for: lower resources.cpus{other}."
