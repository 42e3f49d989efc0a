"""A sweep on several hosts: hosts die, cables are pulled, the storage goes away, and the table is that of a quiet run.

A cluster of namespaces (``hosts``): a head, two hosts that work, and one with an S3 server. The command line runs on
the head, as a Ray job would. Every drill measures when the cluster knew of the fault, and when the work that it hit
went on; and counts results that were lost, and results that were there and were computed again.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hosts import Host, Process, missing, network, until
from network_study import FIRST, NetworkStudy, quiet_outcome
from ray_hosts import RayHosts, health_settings, ray_hosts

from drill_study import STEPS, Outcome
from s3_server import S3Server
from tally import Tally

pytestmark = [pytest.mark.drill, pytest.mark.long, pytest.mark.s3]

HORIZONS = [FIRST, 1100, 1200, 1300, 1400, 1500]
DEFAULTS = "MEMSWEEP_DRILL_DEFAULTS"
"""Set, a partition is drilled with Ray's own health settings, too: two minutes."""


@pytest.fixture(scope="module", autouse=True)
def _can_be_made() -> None:
    if why := missing():
        if "s3" in os.environ.get("MEMSWEEP_REQUIRE", "") and os.geteuid() == 0:
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="module")
def server(s3_server: S3Server) -> Iterator[S3Server]:
    """The session's S3 server, with its owner's keys in this process's environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment().items():
            patch.setenv(name, value)
        yield s3_server


@pytest.fixture(scope="module")
def cluster(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHosts]:
    """A cluster with our health settings; every drill leaves it whole."""
    folder = tmp_path_factory.mktemp("hosts")
    with network(folder) as made, ray_hosts(made, server, folder, 2, health_settings()) as up:
        yield up


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What the study gives on one machine when nothing happens to it."""
    return quiet_outcome(tmp_path_factory.mktemp("undisturbed") / "study", HORIZONS)


@pytest.fixture
def study(tmp_path: Path, server: S3Server) -> NetworkStudy:
    return NetworkStudy.make(tmp_path / "study", f"s3://studies/{uuid.uuid4().hex}", HORIZONS)


def on_the_way(cluster: RayHosts, study: NetworkStudy) -> Process:
    """A sweep that has stored something, and whose every host trains, beyond its first checkpoints."""
    driver = study.sweep(cluster)
    reach(driver, study.store.identities, "something is stored")
    first = cluster.workers[0]
    reach(driver, lambda: all(far(study, host) for host in cluster.workers) and early(study, first), "all hosts train")
    return driver


def reach(driver: Process, condition: Callable[[], object], what: str) -> None:
    until(lambda: condition() or driver.poll() is not None, 240.0, what)
    assert driver.poll() is None, driver.said()


def far(study: NetworkStudy, host: Host) -> bool:
    batch = study.training(host.name)
    return batch is not None and batch.step >= 11


def early(study: NetworkStudy, host: Host) -> bool:
    """Whether a host's training is not so near its end that it would end before the host is found to be lost."""
    batch = study.training(host.name)
    return batch is not None and batch.step <= STEPS - 25


def ended_well(driver: Process) -> None:
    until(lambda: driver.poll() is not None, 240.0, "the sweep has ended")
    assert driver.poll() == 0, driver.said()


def raylet_killed(host: Host) -> None:
    assert host.kill("raylet/raylet", signal.SIGKILL) == 1


LOSSES: dict[str, Callable[[Host], None]] = {
    "raylet killed": raylet_killed,
    "host's power cut": Host.power_off,
    "host cut off the network": Host.unplug,
}


@pytest.mark.parametrize("fault", LOSSES)
def test_the_work_of_a_lost_host_goes_on_elsewhere(
    fault: str, cluster: RayHosts, study: NetworkStudy, undisturbed: Outcome, tally: Tally
) -> None:
    driver = on_the_way(cluster, study)
    lose(LOSSES[fault], fault, cluster, study, driver, undisturbed, tally)
    come_back(cluster, cluster.workers[0])


@pytest.mark.skipif(DEFAULTS not in os.environ, reason=f"two minutes for Ray's own settings; {DEFAULTS}=1 runs it")
def test_a_partition_with_rays_own_health_settings(
    server: S3Server, tmp_path: Path, study: NetworkStudy, undisturbed: Outcome, tally: Tally
) -> None:
    with network(tmp_path) as made, ray_hosts(made, server, tmp_path, 2, {}) as cluster:
        driver = on_the_way(cluster, study)
        name = "host cut off the network (Ray's own settings)"
        lose(Host.unplug, name, cluster, study, driver, undisturbed, tally)


def passing_faults(cluster: RayHosts) -> dict[str, Callable[[], None]]:
    """What goes by, and must not be taken for a loss."""
    host, relay = cluster.workers[0], cluster.relay

    def frozen() -> None:
        assert host.kill("raylet/raylet", signal.SIGSTOP) == 1
        time.sleep(10.0)
        host.kill("raylet/raylet", signal.SIGCONT)

    def unplugged(whose: Host, seconds: float) -> None:
        whose.unplug()
        time.sleep(seconds)
        whose.plug()

    def late() -> None:
        relay.delay = 1.0
        time.sleep(12.0)
        relay.delay = 0.0

    def stalled() -> None:
        relay.open.clear()
        time.sleep(15.0)
        relay.open.set()

    return {
        "raylet frozen for 10 s": frozen,
        "cable out for 6 s": partial(unplugged, host, 6.0),
        "S3 answers 1 s late": late,
        "S3 stalls for 15 s": stalled,
        "S3 away for 60 s": partial(unplugged, cluster.s3, 60.0),
    }


def test_what_goes_by_costs_time_and_nothing_else(
    cluster: RayHosts, study: NetworkStudy, undisturbed: Outcome, tally: Tally
) -> None:
    driver, began = on_the_way(cluster, study), time.time()
    before, times = study.now(), {}
    for name, fault in passing_faults(cluster).items():
        reach(driver, lambda: all(study.training(host.name) for host in cluster.workers), f"all train before: {name}")
        since = time.time()
        fault()
        over = time.time()
        if "away" in name:
            study.quick()
            reach(driver, lambda over=over: study.stored_since(over), "something is stored again")
        else:
            reach(driver, lambda over=over: study.all_asked_since(over, cluster.workers), "all hosts train again")
        times[name] = time.time() - since
    ended_well(driver)
    assert [cluster.died(host, began) for host in cluster.workers] == [None, None]
    assert {len(places) for places in study.places().values()} == {1}  # nothing was begun again
    equal, (lost, rerun) = Outcome.of(study).equals(undisturbed), study.cost_since(before)
    for name, seconds in times.items():
        tally.record(name, 1, lost, rerun, equal, recovered=seconds)
    assert (lost, rerun, equal) == (0, 0, True)


def test_a_sweep_goes_on_under_a_new_head(
    cluster: RayHosts, study: NetworkStudy, undisturbed: Outcome, tally: Tally
) -> None:
    driver, before = on_the_way(cluster, study), study.now()
    since = time.time()
    cluster.head.power_off()
    assert driver.entered.wait(30) != 0
    study.quick()
    cluster.head.power_on()
    cluster.start_head()
    for worker in cluster.workers:
        come_back(cluster, worker)
    again = study.sweep(cluster, "resume")
    asked = len(study.asked())
    reach(again, lambda: len(study.asked()) > asked, "the new driver's work goes on")
    recovered = time.time() - since
    ended_well(again)
    equal, (lost, rerun) = Outcome.of(study).equals(undisturbed), study.cost_since(before)
    tally.record("head's power cut, and resume", 1, lost, rerun, equal, recovered=recovered)
    assert (lost, rerun, equal) == (0, 0, True)


def lose(
    blow: Callable[[Host], None],
    name: str,
    cluster: RayHosts,
    study: NetworkStudy,
    driver: Process,
    undisturbed: Outcome,
    tally: Tally,
) -> None:
    """Take a host away, and see the sweep end as if nothing had happened."""
    victim, before = cluster.workers[0], study.now()
    hit = study.training(victim.name)
    assert hit is not None
    reached = max(batch.step for batch in study.asked() if batch.horizon == hit.horizon)
    since = time.time()
    blow(victim)
    until(lambda: cluster.died(victim, since) or driver.poll() is not None, 150.0, "the head takes it for dead")
    study.quick()  # not before: a worker outlives its raylet by a moment, in which it would end its work
    ended_well(driver)
    again = [b for b in study.asked() if b.horizon == hit.horizon and b.host != victim.name]
    assert again, driver.said()
    dead = cluster.died(victim, since)
    equal, (lost, rerun) = Outcome.of(study).equals(undisturbed), study.cost_since(before)
    tally.record(name, 1, lost, rerun, equal, detected=(dead or since) - since, recovered=again[0].when - since)
    assert dead is not None
    assert again[0].step >= reached - 10, (reached, again[0])  # from its checkpoint
    # it was no fault of the trials; but workers end with their raylet, before the head knows that their node is lost
    assert study.failures_counted() <= (1 if blow is raylet_killed else 0)
    assert (lost, rerun, equal) == (0, 0, True)


def come_back(cluster: RayHosts, host: Host) -> None:
    """A host starts again, and Ray on it."""
    host.power_off()
    host.power_on()
    cluster.join(host)
