"""The room of a cluster: of the nodes that live, and of those that its autoscaler starts when something waits for them.

Ray counts nodes that live. Where nodes come when they are asked for, the first pack waits for the first of them. A
placement group asks: it goes with this process, whatever ends it, while a request of ``ray.autoscaler.sdk`` would keep
the nodes running for ever.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import BlockedError, ConfigError, listed
from memsweep.gate import gated
from memsweep.sweep.planning.resources import marks, slots
from memsweep.sweep.ray.private import (
    announced_node_types,
    commands_of_jobs,
    draining_nodes,
    key_value,
    placement_groups,
)
from memsweep.sweep.signals import terminate_like_ctrl_c
from memsweep.sweep.store.retry import seconds_in

VARIABLE = "MEMSWEEP_NODE_WAIT"
"""Variable of the environment that says for how many seconds a run waits for its first node."""
NODE_WAIT = 1200.0
"""Its default: clouds start a machine in minutes, and pull an image onto it."""

NOT_KNOWN = 1000
"""Packs that may have room where nobody knows how many nodes there may be, and nodes of a type without a limit."""
REQUESTS = 100
"""Packs that room is asked for at once; where that many have come, the next are asked for."""
_LOOK_INTERVAL = 1.0  # seconds
SAY_INTERVAL = 60.0
"""Seconds between two sentences of one that waits."""
_COMMAND = 80  # letters of another job's command line
_MIRRORED = re.compile(r"node_[0-9a-f]{56}")
"""Ray's name for the type of a node that was joined by hand: the cluster then has a monitor that starts none."""

_log = logging.getLogger("memsweep")

Node = Mapping[str, float]
"""``{"CPU": cores, "GPU": cards, "memory": bytes}``, and 1 for each of its labels, ``key=value``."""

Kinds = Mapping[ResourcesConfig, int]
"""How many packs ask for the same."""


@dataclass(frozen=True)
class Capacity:
    """The nodes of the session's cluster.

    Attributes:
        living: those that live and are not about to end.
        most: those that it can have; None where nobody knows.
        grows: whether nodes may come when they are asked for.
        leaving: addresses of those that are about to end.
        offered: one of those that may come, where a person has said what it is; None: nobody has.
    """

    living: list[Node]
    most: list[Node] | None
    grows: bool
    leaving: frozenset[str] = frozenset()
    offered: Node | None = None


@dataclass(frozen=True)
class NodeType:
    """A kind of node that an autoscaler starts.

    Attributes:
        name: as nodes of it are labelled.
        most: nodes of it.
    """

    name: str
    resources: Node
    most: int


def capacity() -> Capacity:
    """The nodes of the session's cluster, as they are now and as they may become."""
    import ray

    alive, ending = [node for node in ray.nodes() if node["Alive"]], draining_nodes()
    found = [node for node in alive if node["NodeID"] not in ending]
    leaving = frozenset(str(node["NodeManagerAddress"]) for node in alive if node["NodeID"] in ending)
    living = [_as_node(node) for node in found]
    if not _is_autoscaled(found):
        # a head without cores beside no worker: somebody is about to start them
        most = living if any(node.get("CPU") for node in living) else None
        return Capacity(living, most, grows=False, leaving=leaving)
    types, limit = _node_types()
    if not types:
        return Capacity(living, None, grows=True, leaving=leaving)
    groups = [_group(node) for node in found]
    more = [kind.resources for kind in types for _ in range(kind.most - groups.count(kind.name))]
    workers = sum(group in {kind.name for kind in types} for group in groups)
    return Capacity(living, living + more[: max(0, limit - workers)], grows=True, leaving=leaving)


def most_nodes() -> int:
    """How many nodes the session's cluster can have; where nobody knows, one more than live."""
    found = capacity()
    return len(found.living) + 1 if found.most is None else len(found.most)


Look = Callable[[Capacity], object]
"""Called with the cluster at every look at it."""


def refuse_impossible(kinds: Iterable[ResourcesConfig], found: Capacity) -> None:
    """Returns where the cluster can hold a pack of each kind, or nobody knows.

    Raises:
        ConfigError: it can never hold a pack of one of them.
    """
    for kind in kinds if found.most is not None else ():
        slots(kind, found.most or [])


def wait_for_room(packs: Callable[[], Kinds], nodes: int | None = None, look: Look = lambda found: None) -> None:
    """Returns when the session's cluster has room for a pack, or no pack is left.

    Args:
        packs: how many are left, which other drivers may change.
        nodes: the most that packs may fill at once.
        look: follows the cluster meanwhile.

    Raises:
        ConfigError: it can never hold a pack of one of the kinds.
        MemsweepError: it got no node for one in time.
    """
    found = capacity()
    look(found)
    left = packs()
    refuse_impossible(left, found)

    def wanted() -> Kinds:
        may_come = most_packs(left := packs(), found, nodes)
        return {kind: min(count, may_come[kind], REQUESTS) for kind, count in left.items()}

    if not any(room(kind, found.living) for kind in left):
        _wait(wanted, look)


def room(resources: ResourcesConfig, nodes: list[Node]) -> int:
    """Packs that these nodes hold at once."""
    with contextlib.suppress(ConfigError):
        return slots(resources, nodes)
    return 0


def rooms(packs: Kinds, nodes: list[Node], most: int | None = None) -> dict[ResourcesConfig, int]:
    """Packs of each kind that these nodes hold at once, as if there were no others.

    Args:
        packs: how many of each kind are left.
        nodes: of which the packs may fill some.
        most: the most that packs of all kinds together may fill; None: all.
    """
    if packs and most is not None and most < len(nodes):
        nodes = _divided(packs, nodes, most)
    return {kind: room(kind, nodes) for kind in packs}


def _divided(packs: Kinds, nodes: list[Node], most: int) -> list[Node]:
    """So many of the nodes: one after the other for the kind with the least room for what it has left, the best one."""
    left = {kind: count * kind.workers for kind, count in packs.items() if count} or dict.fromkeys(packs, 1)
    alone = {kind: [_alone(kind, node) for node in nodes] for kind in left}
    kinds = [sum(map(bool, held)) for held in zip(*alone.values(), strict=True)]
    best = {kind: sorted(range(len(nodes)), key=lambda at: (held[at], kinds[at], -at)) for kind, held in alone.items()}
    chosen, has = dict[int, None](), Counter[ResourcesConfig]()
    while len(chosen) < most:
        for ascending in best.values():
            while ascending[-1] in chosen:
                ascending.pop()
        able = [kind for kind in left if alone[kind][best[kind][-1]]] or [*left]
        place = best[min(able, key=lambda kind: has[kind] / left[kind])][-1]
        chosen[place] = None
        has.update({kind: alone[kind][place] for kind in left})
    return [nodes[place] for place in chosen]


def _alone(resources: ResourcesConfig, node: Node) -> int:
    return room(replace(resources, workers=1, gpus=resources.card, gpus_per_worker=0.0, max_concurrent=0), [node])


def largest(resources: ResourcesConfig, found: Capacity) -> int:
    """Processes on the largest node that lives, or that is offered; 0 where nobody knows one with room."""
    here = max((_alone(resources, node) for node in found.living), default=0)
    return here or (_alone(replace(resources, labels=(), accelerator=""), found.offered) if found.offered else 0)


def most_packs(packs: Kinds, found: Capacity, nodes: int | None) -> dict[ResourcesConfig, int]:
    """Packs of each kind that the cluster can hold at once in the end.

    Where nobody knows its nodes to come, they are taken to be as large as its largest one, or to hold one pack.

    Args:
        packs: how many of each kind are left.
        found: the cluster.
        nodes: the most that packs of all kinds together may fill; None: all.
    """
    if found.most is not None:
        return rooms(packs, found.most, nodes)
    if nodes is None:
        return dict.fromkeys(packs, NOT_KNOWN)
    return rooms(packs, [_likely(kind, found, nodes) for kind in packs for _ in range(nodes)], nodes)


def _likely(resources: ResourcesConfig, found: Capacity, nodes: int) -> Node:
    """A node of those that nobody knows: the largest known one, or one of so many that hold one pack together."""
    best = max(found.living, key=partial(_alone, resources), default={})
    if _alone(resources, best):
        return best
    # where none lives that says more, one pack is asked for: without a request no node would ever come
    held = largest(resources, found) or math.ceil(resources.workers / nodes)
    return {"CPU": held * resources.cpus, "GPU": math.ceil(held * resources.card)} | marks(resources)


def nodes_for(resources: ResourcesConfig, packs: int, found: Capacity) -> int:
    """The fewest nodes that hold so many packs at once; of a cluster that cannot, all on which one has room."""
    if (nodes := found.most) is None:
        processes = min(packs, resources.max_concurrent or packs) * resources.workers
        return math.ceil(processes / (largest(resources, found) or 1))
    wanted = min(packs, room(resources, nodes))
    return bisect.bisect_left(range(len(nodes)), wanted, key=lambda most: rooms({resources: 1}, nodes, most)[resources])


class Requests:
    """Requests for the resources of packs, which an autoscaler sees."""

    def __init__(self) -> None:
        self._groups: dict[ResourcesConfig, list[Any]] = {}

    def ask(self, packs: Kinds) -> None:
        """Asks for room for so many packs, at most a hundred of a kind, beside what packs hold, and for no others."""
        from ray.util import placement_group, remove_placement_group

        for kind in {**self._groups, **packs}:
            wanted, groups = min(packs.get(kind, 0), REQUESTS), self._groups.pop(kind, [])
            for group in groups[wanted:]:
                remove_placement_group(group)
            bundles, labels = [kind.bundle] * kind.workers, [kind.selector] * kind.workers
            groups = groups[:wanted]
            while len(groups) < wanted:
                groups.append(placement_group(bundles, bundle_label_selector=labels if kind.labels else None))
            self._groups[kind] = groups

    def look(self) -> Seen:
        """The groups that came of them, and the jobs that hold the cluster's room."""
        import ray

        own = {group.id.hex() for groups in self._groups.values() for group in groups}
        job, met, waiting, held, others = ray.get_runtime_context().get_job_id(), 0, 0, 0, Counter[str]()
        for name, group in placement_groups().items():
            created = group.state == "CREATED"
            if group.job != job:
                others[group.job] += created and group.cores
            elif name in own:
                met += created
            else:
                waiting += group.state not in ("CREATED", "REMOVED")
                held += created and group.cores
        return Seen(met, waiting, held, +others)


@dataclass(frozen=True)
class Seen:
    """The groups of resources that jobs of the cluster hold or wait for.

    Attributes:
        met: requests for which there is room now.
        waiting: groups of this job's packs that wait for theirs.
        held: those that have theirs.
        others: job -> groups that it holds.
    """

    met: int = 0
    waiting: int = 0
    held: int = 0
    others: Mapping[str, int] = field(default_factory=dict)


def work_of(jobs: Mapping[str, int]) -> str:
    """The work of other jobs that hold room, the largest first: ``memsweep sweep lengths (2 at once)``."""
    if not jobs:
        return "work without placement groups"
    commands, most = commands_of_jobs(), sorted(jobs, key=lambda job: -jobs[job])
    return listed([f"{_short(commands.get(job, ''))} ({jobs[job]} at once)" for job in most], 3)


def _short(command: str) -> str:
    """The command line of somebody else's driver, without its interpreter and without secrets, for a sentence."""
    words = command.split()
    if words and Path(words[0]).name.startswith("python"):
        words = words[2:] if words[1:2] == ["-m"] else words[1:]
    text = gated(" ".join([Path(word).name for word in words[:1]] + words[1:]))
    return text if len(text) <= _COMMAND else f"{text[:_COMMAND]}..."


def _wait(wanted: Callable[[], Kinds], look: Look) -> None:
    """Asks for room for so many packs, and waits for the first, as long as there are any."""
    limit, began, told = seconds_in(VARIABLE, NODE_WAIT), time.monotonic(), -SAY_INTERVAL
    requests = Requests()
    with terminate_like_ctrl_c():
        try:
            while True:
                asked = wanted()
                requests.ask(asked)
                came = requests.look().met
                if came or not any(asked.values()):
                    break
                waited = time.monotonic() - began
                if waited >= limit:
                    raise BlockedError(_none_came(asked, waited))
                if waited - told >= SAY_INTERVAL:
                    told = waited
                    _log.warning("%s", _waiting(asked, waited, limit))
                time.sleep(_LOOK_INTERVAL)
                look(capacity())
        finally:
            requests.ask({})
    if came:
        took = time.monotonic() - began
        _log.warning("nodes came after %.0f s: room for %d of %d packs", took, came, sum(asked.values()))


def _waiting(asked: Kinds, waited: float, limit: float) -> str:
    return (
        f"waiting for nodes: the cluster has no room for a pack yet. Asked for: {asked_for(asked)}. "
        f"Waited {waited:.0f} s of at most {limit:.0f} s ({VARIABLE})."
    )


def _none_came(asked: Kinds, waited: float) -> str:
    return (
        f"no node with room for a pack ({', or '.join(map(each, asked))}) came within {waited:.0f} s. Nothing has been "
        "started. Look at what ray status and the autoscaler's log say on the head, or start a worker there (ray start "
        f"--address=HEAD:PORT); {VARIABLE} sets the seconds. Then run the same command again."
    )


def asked_for(packs: Kinds) -> str:
    """``3 times 1 CPU core``, and so for each kind."""
    return ", ".join(f"{count} times {each(kind)}" for kind, count in packs.items() if count)


def each(resources: ResourcesConfig) -> str:
    """``1 CPU core``, ``2 workers of 4 CPU cores and 1 GPU each``."""
    one = f"{resources.cpus:g} CPU core{'s' if resources.cpus != 1 else ''}"
    more = [f"{resources.card:g} {resources.accelerator or 'GPU'}"] if resources.card else []
    more += [f"{resources.node_memory:g} GiB of memory"] if resources.node_memory else []
    more += resources.labels
    parts = [one, *more]
    one = " and ".join([", ".join(parts[:-1]), parts[-1]]) if more else one
    return one if resources.workers == 1 else f"{resources.workers} workers of {one} each"


def _as_node(node: Mapping[str, Any]) -> Node:
    return {**node["Resources"], **_marks(node.get("Labels"))}


def _marks(labels: Mapping[str, Any] | None) -> dict[str, float]:
    return {f"{key}={value}": 1.0 for key, value in (labels or {}).items()}


def _group(node: Mapping[str, Any]) -> str:
    """The type that the autoscaler gave a node; empty for one that was joined by hand."""
    return str(node.get("Labels", {}).get("ray.io/node-group", ""))


def _status() -> dict[str, Any]:
    """The last word of Ray's monitor; empty where it says nothing, as that of its autoscaler's version 2."""
    with contextlib.suppress(ValueError):
        return dict(json.loads(key_value("__autoscaling_status") or b"{}"))
    return {}


def _is_autoscaled(found: list[dict[str, Any]]) -> bool:
    """Whether something starts nodes when they are asked for."""
    if announced_node_types() is not None:
        return True
    types = (_status().get("autoscaler_report") or {}).get("node_type_mapping")
    if types:
        return not all(_MIRRORED.fullmatch(kind) for kind in types.values())
    return any(map(_group, found))


def _node_types() -> tuple[list[NodeType], int]:
    """The types of nodes that may be started, and how many nodes in all; no type where that is not known.

    The cluster's control store has them where they were announced; else the monitor's file, if it runs on this machine.
    """
    if (announced := announced_node_types()) is not None:
        groups = [
            NodeType(group.name, dict(group.resources), NOT_KNOWN if group.max_count < 0 else group.max_count)
            for group in announced
        ]
        return groups, NOT_KNOWN
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return _configured(yaml.safe_load(_monitors_file().read_text(encoding="utf-8")))
    return [], 0


def _monitors_file() -> Path:
    """The configuration of the cluster's autoscaler, if it runs on this machine.

    Raises:
        OSError, ValueError, KeyError: it does not.
    """
    words = Path(f"/proc/{int(_status()['monitor_pid'])}/cmdline").read_text(encoding="utf-8").split("\0")
    given = dict(word.lstrip("-").partition("=")[::2] for word in words if word.startswith("--"))
    import ray

    if given["gcs-address"] != ray.get_runtime_context().gcs_address:
        raise ValueError("the monitor of another cluster")
    return Path(given["autoscaling-config"]).expanduser()


def _configured(config: Mapping[str, Any]) -> tuple[list[NodeType], int]:
    limit = int(config["max_workers"])
    kinds = {name: kind for name, kind in config["available_node_types"].items() if name != config["head_node_type"]}
    if not all(kind.get("resources") for kind in kinds.values()):
        return [], 0  # the cloud's own, which no file tells
    return [
        # without its labels: the autoscaler that has a file looks at none, and starts no node for them
        NodeType(name, dict(kind["resources"]), int(kind.get("max_workers", limit)))
        for name, kind in kinds.items()
    ], limit
