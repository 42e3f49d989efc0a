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

    def heal(self, site: Site) -> None:
        site.bench.heal_hosts()

    def victim(self, site: Site, luck: random.Random) -> Host:
        workers = site.bench.hosts.workers
        return luck.choice([host for host in workers if site.training(host)] or workers)


class HostLost(_Hosts):
    """For so long that it is taken for dead; the sweep goes on without it."""

    name, seconds = "host lost (power cut, cut off the network)", (10.0, 14.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        victim = self.victim(site, luck)
        self.how = luck.choice(["power cut", "cut off"])
        victim.power_off() if self.how == "power cut" else victim.unplug()
        return True


class Blip(_Hosts):
    """For so short a time that it may pass."""

    name, seconds = "host's cable out for a moment", (0.5, 2.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.victim(site, luck).unplug()
        return True


class RayletLost(_Hosts):
    name, seconds = "raylet of a host killed", (3.0, 6.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        return self.victim(site, luck).kill("raylet/raylet", signal.SIGKILL) > 0


class HeadLost(_Hosts):
    """The driver goes with it, and all hosts start again; or the driver alone is killed."""

    name, ends = "head lost (power cut, driver killed)", True

    def inject(self, site: Site, luck: random.Random) -> bool:
        alive = bool(site.pid)
        self.how = luck.choice(["power cut", "driver killed"])
        site.bench.hosts.head.power_off() if self.how == "power cut" else site.kill_all()
        return alive


class StorageAway(_Hosts):
    name, seconds = "storage's host away (cut off, stalls)", (3.0, 8.0)

    def inject(self, site: Site, luck: random.Random) -> bool:
        self.how = luck.choice(["cut off", "stalls"])
        site.bench.hosts.s3.unplug() if self.how == "cut off" else site.bench.hosts.relay.open.clear()
        return True


KINDS = (HostLost, Blip, RayletLost, HeadLost, StorageAway)
