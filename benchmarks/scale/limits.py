"""From what was measured to what a cluster needs: which limit is met first, with so many nodes and trials so long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.harness import Row
from memsweep.sweep.planning.plan import PACK_SECONDS
from memsweep.sweep.worker.timing import report_interval

NODES = (1, 10, 100, 1000)
LENGTHS = (10.0, 100.0, 1000.0)
SLOTS_A_NODE: Mapping[str, int] = {"32 cores": 32, "4 GPUs": 4}


@dataclass(frozen=True)
class Costs:
    """Milliseconds of one core for one of each.

    Attributes:
        pack: a pack given out and taken back, in the driver's process.
        report: a report of progress, there.
        client: a trial's run in MLflow, there, with the result read for it.
        server: the same in the server's processes, of which each has a core.
    """

    pack: float
    report: float
    client: float
    server: float


def table(costs: Costs) -> list[Row]:
    """A row for each kind of node, number of nodes and length of a trial: the cores that each part would need."""
    return [
        _row(costs, kind, slots * nodes, nodes, seconds)
        for kind, slots in SLOTS_A_NODE.items()
        for nodes in NODES
        for seconds in LENGTHS
    ]


def _row(costs: Costs, kind: str, slots: int, nodes: int, seconds: float) -> Row:
    trials = slots / seconds
    packs = slots / max(seconds, PACK_SECONDS[1])
    needed = {
        "packs": packs * costs.pack / 1000,
        "progress": slots / report_interval(slots) * costs.report / 1000,
        "mlflow_client": trials * costs.client / 1000,
        "mlflow_server": trials * costs.server / 1000,
    }
    driver = sum(cores for name, cores in needed.items() if name != "mlflow_server")
    worst = max(needed, key=lambda name: needed[name])
    over = max(driver, needed["mlflow_server"]) > 1
    return {
        "node": kind,
        "nodes": nodes,
        "slots": slots,
        "trial_s": seconds,
        "trials_per_s": trials,
        **{f"{name}_cores": cores for name, cores in needed.items()},
        "driver_cores": driver,
        "first_limit": worst if over else "",
    }
