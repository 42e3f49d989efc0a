"""Nodes that come when they are asked for, on one machine: a provider of Ray's own autoscaler.

Each node is ``ray start --address HEAD --block``, a process of its own with the resources of its type.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from typing import Any, ClassVar

from ray.autoscaler.node_launch_exception import NodeLaunchException
from ray.autoscaler.node_provider import NodeProvider

HEAD = {"ray-node-type": "head", "ray-node-status": "up-to-date", "ray-user-node-type": "head"}


class AskedNodes(NodeProvider):
    """All nodes but the head, which runs already; Ray keeps one provider as long as its monitor lives."""

    nodes: ClassVar[dict[str, tuple[dict[str, str], subprocess.Popen[bytes]]]] = {}
    numbers: ClassVar = itertools.count(2)

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        return [name for name in ["127.0.0.1", *self.nodes] if tag_filters.items() <= self.node_tags(name).items()]

    def is_running(self, node_id: str) -> bool:
        return not self.is_terminated(node_id)

    def is_terminated(self, node_id: str) -> bool:
        return node_id != "127.0.0.1" and node_id not in self.nodes

    def node_tags(self, node_id: str) -> dict[str, str]:
        return HEAD if node_id == "127.0.0.1" else self.nodes[node_id][0]

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        self.node_tags(node_id).update(tags)

    def internal_ip(self, node_id: str) -> str:
        """A node's name is its address: Ray tells nodes apart by it."""
        return node_id

    external_ip = internal_ip

    def create_node_with_resources_and_labels(
        self, node_config: Any, tags: dict[str, str], count: int, resources: dict[str, float], labels: dict[str, str]
    ) -> None:
        if tags["ray-user-node-type"] == "never":
            raise NodeLaunchException("none left", "no machine of this type can be had", None)
        for _ in range(count):
            address = f"127.0.1.{next(self.numbers)}"
            words = ["start", "--block", "--disable-usage-stats", f"--address={self.provider_config['address']}"]
            words += [f"--node-ip-address={address}", f"--num-cpus={resources['CPU']}"]
            words += [f"--num-gpus={resources.get('GPU', 0)}", f"--resources={json.dumps(_marks(resources))}"]
            words += [f"--labels={','.join(f'{key}={value}' for key, value in labels.items())}"] if labels else []
            words += ["--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0"]
            # as on a machine of its own: Ray unpacks a job's files anew on each node, over those of its neighbours
            words += [f"--temp-dir={self.provider_config['folder']}/{address}"]
            named = {"RAY_NODE_TYPE_NAME": tags["ray-user-node-type"], "RAY_CLOUD_INSTANCE_ID": address}
            process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", *words], env=os.environ | named, start_new_session=True
            )
            self.nodes[address] = (dict(tags, **{"ray-node-status": "up-to-date"}), process)

    def terminate_node(self, node_id: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.nodes.pop(node_id)[1].pid, signal.SIGTERM)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        return cluster_config


def _marks(resources: dict[str, float]) -> dict[str, float]:
    """Resources of a node beside cores, cards and memory: ``accelerator_type:H100``, say."""
    return {name: share for name, share in resources.items() if name.startswith("accelerator_type:")}
