"""Runs Swift's four servers on one folder as one S3 server, the one that the compose file knows; ends when one ends.

Also the two filters that Swift lacks for that: access keys without a colon, and a health page with a path of choice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HOME = Path("/opt/swift")
ETC = Path("/tmp/swift")
KINDS = {"account": 6002, "container": 6001, "object": 6000}

RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in (word.split("=") for word in sys.argv[2:]):
    ring = RingBuilder(4, 1, 0)
    ring.add_dev(dict(id=0, region=1, zone=1, ip="127.0.0.1", port=int(port), device="disk", weight=1.0, meta="",
                      replication_ip="127.0.0.1", replication_port=int(port)))
    ring.rebalance()
    ring.get_ring().save(f"{sys.argv[1]}/{kind}.ring.gz")
"""

SHARED = """[swift-hash]
swift_hash_path_suffix = rig
swift_hash_path_prefix = rig
[storage-policy:0]
name = one
default = yes
"""

SERVER = """[DEFAULT]
bind_ip = {address}
bind_port = {port}
workers = 0
user = swift
swift_dir = {etc}
devices = {data}
mount_check = false
disable_fallocate = true
recon_cache_path = {etc}
log_statsd_host =
log_level = WARNING
"""

STORAGE = """[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""

PROXY = """[pipeline:main]
pipeline = health catch_errors listing_formats s3api tempauth copy slo symlink versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:health]
paste.filter_factory = stand_in:health_page
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
auth_pipeline_check = false
min_segment_size = 5242880
[filter:tempauth]
paste.filter_factory = stand_in:authentication
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
"""
PLAIN = "[filter:{name}]\nuse = egg:swift#{name}\n"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def health_page(_settings: dict[str, str], **_more: str) -> Callable[[App], App]:
    """A filter that answers 200 on one path, to anybody."""
    path = os.environ.get("VGW_HEALTH", "/health")

    def wrap(app: App) -> App:
        def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            if request.get("PATH_INFO") != path:
                return app(request, start)
            start("200 OK", [("Content-Length", "0")])
            return [b""]

        return answer

    return wrap


def authentication(settings: dict[str, str], **more: str) -> Callable[[App], App]:
    """Swift's own, with one user, whose access key is any word; Swift's keys have a colon, and are found by it."""
    from swift.common.middleware.tempauth import TempAuth

    key, name = os.environ["ROOT_ACCESS_KEY_ID"], "rig:owner"

    class OneUser(TempAuth):  # type: ignore[misc]
        def get_groups(self, request: dict[str, Any], token: str | None) -> Any:
            details = request.get("s3api.auth_details")
            if details and details["access_key"] == key:
                request["s3api.auth_details"] = {**details, "access_key": name}
                path = request["PATH_INFO"]
                if path == f"/v1/{key}" or path.startswith(f"/v1/{key}/"):
                    request["PATH_INFO"] = f"/v1/{name}" + path[len(f"/v1/{key}") :]
            return super().get_groups(request, token)

    user = {"key": os.environ["ROOT_SECRET_ACCESS_KEY"], "url": "$HOST/v1/AUTH_rig", "groups": [".admin"]}

    def wrap(app: App) -> App:
        checked = OneUser(app, {**settings, **more})
        checked.users = {name: user}
        return checked

    return wrap


def main() -> int:
    """Write the settings, start the servers, wait for the first to end."""
    data = Path(os.environ.get("VGW_BACKEND_ARG", "/data"))
    port = int(os.environ.get("VGW_PORT", ":7070").rpartition(":")[2])
    (data / "disk").mkdir(exist_ok=True)
    ETC.mkdir()
    (ETC / "swift.conf").write_text(SHARED)
    rings = [f"{kind}={number}" for kind, number in KINDS.items()]
    subprocess.run([sys.executable, "-c", RINGS, ETC, *rings], check=True)
    for kind, number in KINDS.items():
        common = SERVER.format(address="127.0.0.1", port=number, etc=ETC, data=data)
        (ETC / f"{kind}.conf").write_text(common + STORAGE.format(kind=kind))
    plain = "".join(PLAIN.format(name=name) for name in ("catch_errors", "listing_formats", "copy", "slo", "symlink"))
    (ETC / "proxy.conf").write_text(SERVER.format(address="0.0.0.0", port=port, etc=ETC, data=data) + PROXY + plain)
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    servers = [
        subprocess.Popen([HOME / "bin" / f"swift-{kind}-server", ETC / f"{kind}.conf"], env=environment)
        for kind in (*KINDS, "proxy")
    ]

    def stop(*_: object) -> None:
        for server in servers:
            server.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    pid, status = os.wait()
    stop()
    sys.stderr.write(f"stand-in: process {pid} ended\n")
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
