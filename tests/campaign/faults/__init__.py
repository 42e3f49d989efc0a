"""Every kind of fault, by its name in the table."""

from __future__ import annotations

from tests.campaign.faults import (
    clocks,
    files,
    folders,
    hosts,
    network,
    processes,
    storage,
    surroundings,
    tasks,
    tracking,
)
from tests.campaign.faults.base import Fault

KINDS: dict[str, type[Fault]] = {
    kind.name: kind
    for room in (processes, tasks, storage, network, tracking, clocks, surroundings, hosts, files, folders)
    for kind in room.KINDS
}
