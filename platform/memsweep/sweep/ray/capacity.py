"""The room of a cluster: of the nodes that live, and of those that its autoscaler starts when something waits for them.

Ray counts nodes that live. Where nodes come when they are asked for, the first pack waits for the first of them, and
Tune's pending trials ask for the rest. A placement group asks: it goes with this process, whatever ends it, while a
request of ``ray.autoscaler.sdk`` would keep the nodes running for ever.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import BlockedError, ConfigError
from memsweep.sweep.planning.resources import slots
from memsweep.sweep.ray.private import announced_node_types, key_value
from memsweep.sweep.signals import terminate_like_ctrl_c
from memsweep.sweep.store.retry import seconds_in

VARIABLE = "MEMSWEEP_NODE_WAIT"
"""Variable of the environment that says for how many seconds a run waits for its first node."""
NODE_WAIT = 1200.0
"""Its default: clouds start a machine in minutes, and pull an image onto it."""

_ASKED = 100
"""Packs that room is asked for at once where nobody knows how many nodes there may be."""
_SETTLED = 60.0  # seconds without a new node after which no more are waited for
_MANY = 1000  # nodes of a type without a limit
_LOOK_INTERVAL, _SAY_INTERVAL = 1.0, 60.0  # seconds
_MIRRORED = re.compile(r"node_[0-9a-f]{56}")
"""Ray's name for the type of a node that was joined by hand: the cluster then has a monitor that starts none."""

_log = logging.getLogger("memsweep")

Node = Mapping[str, float]
"""``{"CPU": cores, "GPU": cards}``."""


@dataclass(frozen=True)
class Capacity:
    """The nodes of the session's cluster.

    Attributes:
        living: those that live.
        most: those that it can have; None where nobody knows.
    """

    living: list[Node]
    most: list[Node] | None


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

    found = [node for node in ray.nodes() if node["Alive"]]
    living = [node["Resources"] for node in found]
    if not _is_autoscaled(found):
        # a head without cores beside no worker: somebody is about to start them
        return Capacity(living, living if any(node.get("CPU") for node in living) else None)
    types, limit = _node_types()
    if not types:
        return Capacity(living, None)
    groups = [_group(node) for node in found]
    more = [kind.resources for kind in types for _ in range(kind.most - groups.count(kind.name))]
    workers = sum(group in {kind.name for kind in types} for group in groups)
    return Capacity(living, living + more[: max(0, limit - workers)])


def most_nodes() -> int:
    """How many nodes the session's cluster can have; where nobody knows, one more than live."""
    found = capacity()
    return len(found.living) + 1 if found.most is None else len(found.most)


def slots_of_cluster(resources: ResourcesConfig, packs: int) -> int:
    """Packs that the session's cluster can run at once; returns when it has room for one.

    Nodes that come later add slots only where it is known that they can come, and packs have one worker: the workers
    of a group must come together.

    Args:
        resources: what one pack asks for.
        packs: how many there are.

    Raises:
        ConfigError: it can never hold one pack.
        MemsweepError: it got no node for one in time.
    """
    found = capacity()
    may_come = slots(resources, found.most) if found.most is not None else _ASKED
    if not _room(resources, found.living):
        _wait(resources, min(packs, may_come), all_of_them=found.most is None or resources.workers > 1)
        found = capacity()
    follows = found.most is not None and resources.workers == 1
    return slots(resources, found.most if follows and found.most is not None else found.living)


def _room(resources: ResourcesConfig, living: list[Node]) -> int:
    with contextlib.suppress(ConfigError):
        return slots(resources, living)
    return 0


def _wait(resources: ResourcesConfig, asked: int, *, all_of_them: bool) -> None:
    """Asks for room for so many packs, and waits for the first, or for all that come without a long pause."""
    limit, began, came, last = seconds_in(VARIABLE, NODE_WAIT), time.monotonic(), 0, 0.0
    told = -_SAY_INTERVAL
    with terminate_like_ctrl_c(), _asked(resources, asked) as has_come:
        while not came or (all_of_them and came < asked and time.monotonic() - began - last < _SETTLED):
            waited = time.monotonic() - began
            if (now := has_come()) > came:
                came, last = now, waited
                continue
            if not came and waited >= limit:
                raise BlockedError(_none_came(resources, waited))
            if waited - told >= _SAY_INTERVAL:
                told = waited
                _log.warning("%s", _waiting(resources, asked, came, waited, limit))
            time.sleep(_LOOK_INTERVAL)
    _log.warning("nodes came after %.0f s: room for %d of %d packs", time.monotonic() - began, came, asked)


@contextmanager
def _asked(resources: ResourcesConfig, packs: int) -> Iterator[Any]:
    """While it lasts, so many packs' resources are asked for; gives a function that says how many are there."""
    from ray.util import placement_group, placement_group_table, remove_placement_group

    bundle = {"CPU": resources.cpus} | ({"GPU": resources.card} if resources.card else {})
    groups = [placement_group([bundle] * resources.workers) for _ in range(packs)]
    try:
        yield lambda: sum(placement_group_table(group)["state"] == "CREATED" for group in groups)
    finally:
        for group in groups:
            remove_placement_group(group)


def _waiting(resources: ResourcesConfig, asked: int, came: int, waited: float, limit: float) -> str:
    room = f"room for {came} of {asked} packs" if came else "no room for a pack yet"
    return (
        f"waiting for nodes: the cluster has {room}. Asked for: {asked} times {_each(resources)}. Waited "
        f"{waited:.0f} s" + ("." if came else f" of at most {limit:.0f} s ({VARIABLE}).")
    )


def _none_came(resources: ResourcesConfig, waited: float) -> str:
    return (
        f"no node with room for a pack ({_each(resources)}) came within {waited:.0f} s. Nothing has been started. "
        "Look at what ray status and the autoscaler's log say on the head, or start a worker there (ray start "
        f"--address=HEAD:PORT); {VARIABLE} sets the seconds. Then run the same command again."
    )


def _each(resources: ResourcesConfig) -> str:
    """``1 CPU core``, ``2 workers of 4 CPU cores and 1 GPU each``."""
    one = f"{resources.cpus:g} CPU core{'s' if resources.cpus != 1 else ''}"
    one += f" and {resources.card:g} GPU" if resources.card else ""
    return one if resources.workers == 1 else f"{resources.workers} workers of {one} each"


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
            NodeType(group.name, dict(group.resources), _MANY if group.max_count < 0 else group.max_count)
            for group in announced
        ]
        return groups, _MANY
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
        NodeType(name, kind["resources"], int(kind.get("max_workers", limit))) for name, kind in kinds.items()
    ], limit
