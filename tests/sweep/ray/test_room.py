"""Room for packs, look by look: what is there, what is asked for, and what was not there (drills run it on Ray)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest
from ray.exceptions import RaySystemError

from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.ray import backend, capacity, room
from memsweep.sweep.ray.capacity import Capacity, Node, Seen
from processes import wait_for

ONE_CORE: Node = {"CPU": 1.0}


class Cluster:
    """A cluster whose nodes a test sets, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.looks, self.answers = 0.0, 0, True
        self.found = Capacity([ONE_CORE], [ONE_CORE] * 4, grows=True)
        self.asked: list[int] = []
        self.seen = Seen()
        monkeypatch.setattr(room, "capacity", self.capacity)
        monkeypatch.setattr(room, "Requests", lambda: self)

    def capacity(self) -> Capacity:
        self.looks += 1
        if not self.answers:
            raise RaySystemError("no answer")
        return self.found

    def ask(self, packs: Mapping[ResourcesConfig, int]) -> None:
        self.asked.append(sum(packs.values()))

    def look(self) -> Seen:
        return self.seen

    def room(self, *, follows: bool = True, nodes: int | None = None) -> room.Room:
        return room.Room([ResourcesConfig()], follows=follows, nodes=nodes, clock=lambda: self.now)

    def grow(self, nodes: int) -> None:
        self.found = Capacity([ONE_CORE] * nodes, self.found.most, grows=self.found.grows)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_slots_follow_the_nodes_and_what_waits_is_asked_for(cluster: Cluster) -> None:
    found = cluster.room()
    assert (found.now, found.most, found.expected) == (1, 1, 4)
    for seconds, nodes, left, asked in ((2.0, 1, 10, 3), (4.0, 3, 10, 1), (6.0, 4, 10, 0), (8.0, 2, 1, 0)):
        cluster.now = seconds
        cluster.grow(nodes)
        found.look(lambda left=left: {ResourcesConfig(): left})  # type: ignore[misc]
        assert (found.now, cluster.asked[-1]) == (nodes, asked)
    assert found.most == 4
    assert found.node_hours * 3600 == 2 * (1 + 1 + 3 + 4)  # a node is paid for whether a pack runs there or not
    # 4 slots for 8 s, of which there were 1, 1, 3 and 4 for two seconds each
    assert found.absent == 4 * 8 - 2 * (1 + 1 + 3 + 4)
    with found.followed():
        pass
    assert cluster.asked[-1] == 0


def test_kinds_that_come_later_have_room_too(cluster: Cluster) -> None:
    found, wide = cluster.room(), ResourcesConfig(cpus=0.5)
    cluster.now = 4.0
    found.add([wide])
    assert found.of == {ResourcesConfig(): 1, wide: 2}
    assert (found.most, found.expected, found.absent) == (2, 8, 4.0)  # of two slots there was one for 4 s
    cluster.now = 6.0
    found.look(lambda: {wide: 5})
    assert cluster.asked[-1] == 3


def test_nodes_count_from_when_ray_was_joined(cluster: Cluster) -> None:
    hours = room.NodeHours(lambda: cluster.now)
    hours.look(Capacity([], None, grows=True))
    for cluster.now, nodes in ((10.0, 1), (15.0, 2)):  # it waits for its first node, and measures what a pack needs
        cluster.grow(nodes)
        hours.look(cluster.found)
    cluster.now = 20.0
    found = room.Room([ResourcesConfig()], follows=True, hours=hours, clock=lambda: cluster.now)
    cluster.now = 30.0
    assert found.node_hours * 3600 == 1 * 5 + 2 * 15


def test_no_request_takes_the_slot_that_a_pack_waits_for(cluster: Cluster) -> None:
    found = cluster.room()
    for seen, asked in ((Seen(), 3), (Seen(met=1), 0), (Seen(waiting=1), 0), (Seen(), 3)):
        cluster.seen, cluster.now = seen, cluster.now + 2.0
        found.look(lambda: {ResourcesConfig(): 10})
        assert cluster.asked[-1] == asked


def test_a_driver_waits_for_no_node_once_others_have_all_packs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(capacity, "capacity", cluster.capacity)
    monkeypatch.setattr(capacity, "Requests", lambda: cluster)
    monkeypatch.setattr(capacity.time, "sleep", lambda seconds: None)
    cluster.grow(0)
    left = iter([9, 9, 9, 2, 0])
    with caplog.at_level(logging.WARNING, "memsweep"):
        capacity.wait_for_room(lambda: {ResourcesConfig(): next(left)})
    assert cluster.asked == [4, 4, 2, 0, 0]  # no more than the cluster can hold, and than this driver may get
    assert len(caplog.messages) == 1


def test_no_more_nodes_are_filled_or_asked_for_than_a_run_may_have(cluster: Cluster) -> None:
    found = cluster.room(nodes=2)
    assert (found.now, found.expected) == (1, 2)
    for nodes, now, asked in ((1, 1, 1), (3, 2, 0)):
        cluster.grow(nodes)
        cluster.now += 2.0
        found.look(lambda: {ResourcesConfig(): 10})
        assert (found.now, cluster.asked[-1]) == (now, asked)


def test_one_node_goes_from_kind_to_kind(cluster: Cluster) -> None:
    left, right = ResourcesConfig(labels=("side=left",)), ResourcesConfig(labels=("side=right",))
    one, other = (dict.fromkeys(("CPU", label), 1.0) for label in ("side=left", "side=right"))
    cluster.found = Capacity([one], [one, other], grows=True)
    found = room.Room([left, right], follows=True, nodes=1, clock=lambda: cluster.now)
    for packs, living, of, asked in (
        ({left: 2, right: 2}, [one], {left: 1, right: 0}, 0),  # it is the run's only node
        ({right: 2}, [one], {left: 1, right: 0}, 1),
        ({right: 2}, [one, other], {left: 0, right: 1}, 0),
    ):
        cluster.found, cluster.now = replace(cluster.found, living=[*living]), cluster.now + 2.0
        found.look(packs.copy)
        assert (found.of, cluster.asked[-1]) == (of, asked)


def test_a_cluster_is_looked_at_every_two_seconds_whether_it_answers_or_not(cluster: Cluster) -> None:
    found = cluster.room()
    cluster.answers = False
    for cluster.now in (0.5, 1.9, 2.0, 2.5, 3.9, 4.0):
        found.look(lambda: {ResourcesConfig(): 5})
    assert cluster.looks == 1 + 2  # at the start, after 2 and after 4 seconds
    assert found.now == 1


def test_a_ray_of_ones_own_is_not_looked_at(cluster: Cluster) -> None:
    found = cluster.room(follows=False)
    cluster.now = 10.0
    found.look(lambda: {ResourcesConfig(): 5})
    assert (cluster.looks, cluster.asked) == (1, [])


def test_a_study_without_nodes_says_so_at_once_and_every_minute(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    found = cluster.room()
    cluster.grow(0)
    with caplog.at_level(logging.WARNING, "memsweep"):
        for cluster.now in (2.0, 4.0, 63.0):
            found.look(lambda: {ResourcesConfig(): 3})
        cluster.grow(2)
        cluster.now = 66.0
        found.look(lambda: {ResourcesConfig(): 3})
    assert caplog.messages == [
        "no node has room for a pack; 3 have not ended. Asked for: 3 times 1 CPU core. Waited 0 s",
        "no node has room for a pack; 3 have not ended. Asked for: 3 times 1 CPU core. Waited 61 s",
        "the nodes have room for 2 packs at once now (0 before)",
    ]


def test_a_study_behind_another_says_what_holds_the_nodes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = "/env/bin/python3 /env/bin/memsweep sweep lengths --address auto"
    jobs = {"01000000": driver, "02000000": "python -m other --key " + 99 * "x"}
    monkeypatch.setattr(capacity, "commands_of_jobs", lambda: jobs)
    found = cluster.room()
    behind = Seen(waiting=1, others={"02000000": 1, "01000000": 3})
    with caplog.at_level(logging.WARNING, "memsweep"):
        for seconds, seen in ((2, behind), (4, behind), (6, behind), (20, behind), (67, behind)):
            cluster.now, cluster.seen = float(seconds), seen
            found.look(lambda: {ResourcesConfig(): 9})
        for seconds, seen in ((70, Seen(waiting=1, held=1)), (72, Seen()), (74, Seen(waiting=1)), (77, Seen())):
            cluster.now, cluster.seen = float(seconds), seen
            found.look(lambda: {ResourcesConfig(): 9})
    words = "waiting behind others: the nodes have room for 1 pack, which memsweep sweep lengths --address auto (3 at "
    words += f"once), other --key {68 * 'x'}... (1 at once) holds. Asked for: 3 times 1 CPU core. Waited "
    assert caplog.messages == [f"{words}4 s", f"{words}65 s"]


def test_a_measurement_that_lasts_is_said_with_the_work_that_it_waits_behind(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backend, "capacity", cluster.capacity)
    monkeypatch.setattr(backend, "Requests", lambda: cluster)
    monkeypatch.setattr(backend, "_SOON", 0.02)
    monkeypatch.setattr(capacity, "commands_of_jobs", lambda: {"01": "python -m memsweep sweep lengths"})
    cluster.seen = Seen(others={"01": 2})
    small, wide = ResourcesConfig(cpus=0.5), ResourcesConfig()

    def fit(kind: ResourcesConfig) -> tuple[ResourcesConfig, int]:
        if kind == wide:
            wait_for(lambda: caplog.messages)
        return kind, 0

    with caplog.at_level(logging.WARNING, "memsweep"):
        backend._fitted([small, wide], fit)
    assert caplog.messages == [
        "measuring what a pack needs, once a core is free: packs of 1 CPU core, kind 2 of 2, at most 120 s. Others "
        "hold nodes: memsweep sweep lengths (2 at once)."
    ]


def test_a_kind_whose_packs_others_hold_is_not_measured(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement asks for its room, too: an autoscaler would start a node for it."""
    monkeypatch.setattr(backend, "capacity", cluster.capacity)
    monkeypatch.setattr(capacity, "capacity", cluster.capacity)
    monkeypatch.setattr(backend, "ray_session", lambda address: contextlib.nullcontext())
    mine, theirs, measured = ResourcesConfig(), ResourcesConfig(cpus=0.5), list[ResourcesConfig]()

    def fit(kind: ResourcesConfig) -> tuple[ResourcesConfig, int]:
        measured.append(kind)
        return kind, 0

    with backend.ray_backend(print, lambda: {mine: 1, theirs: 0}, fit, "auto"):  # type: ignore[arg-type]
        assert measured == [mine]
