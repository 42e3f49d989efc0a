"""Hosts lose their power, their network, or a part of Ray; the head, and the storage's host, too."""

from __future__ import annotations

import random
import signal

from hosts import Host

from tests.campaign.bench import Bench
from tests.campaign.faults.base import Fault
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site


class _Hosts(Fault):
    """Something happens to a host that works, drawn from those that train just now."""

    @classmethod
    def applies(cls, scenario: Scenario, bench: Bench) -> bool:
        return scenario.hosts

    def victim(self, site: Site, luck: random.Random) -> Host:
        workers = site.bench.hosts.workers
        return luck.choice([host for host in workers if site.training(host)] or workers)


class PowerOff(_Hosts):
    """The sweep goes on without it."""

    name, seconds = "host's power cut", (8.0, 14.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.victim(site, luck).power_off()
        return True


class CutOff(_Hosts):
    """For so long that it is taken for dead."""

    name, seconds = "host cut off the network", (12.0, 16.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.victim(site, luck).unplug()
        return True


class Blip(_Hosts):
    """For so short a time that it may pass."""

    name, seconds = "host's cable out for a moment", (0.5, 2.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.victim(site, luck).unplug()
        return True


class RayletLost(_Hosts):
    name, seconds = "raylet of a host killed", (4.0, 8.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        return self.victim(site, luck).kill("raylet/raylet", signal.SIGKILL) > 0


class HeadOff(_Hosts):
    """The driver goes with it; head and hosts start again."""

    name, ends = "head's power cut", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        site.bench.hosts.head.power_off()
        return True


class StorageOff(_Hosts):
    name, seconds = "storage's host cut off", (4.0, 10.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        site.bench.hosts.s3.unplug()
        return True


class StorageStalls(_Hosts):
    name, seconds = "storage's host stalls", (4.0, 10.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        site.bench.hosts.relay.open.clear()
        return True


class HostDriverKilled(_Hosts):
    name, ends = "driver on the head killed (SIGKILL)", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        alive = bool(site.pid)
        site.kill_all()
        return alive


KINDS = (PowerOff, CutOff, Blip, RayletLost, HeadOff, StorageOff, StorageStalls, HostDriverKilled)
