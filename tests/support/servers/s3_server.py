"""A real S3 server for tests: OpenStack Swift with its S3 API, in one folder, on free ports of this machine.

``make ci-deps`` installs it in an environment of its own, because its packages are no business of memsweep's.
"""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

REGION = "us-east-1"

_KINDS = ("account", "container", "object")

_RINGS = """
import sys
from swift.common.ring import RingBuilder
for kind, port in (argument.split("=") for argument in sys.argv[2:]):
    ring = RingBuilder(4, 1, 0)
    ring.add_dev(dict(id=0, region=1, zone=1, ip="127.0.0.1", port=int(port), device="disk", weight=1.0, meta="",
                      replication_ip="127.0.0.1", replication_port=int(port)))
    ring.rebalance()
    ring.get_ring().save(f"{sys.argv[1]}/{kind}.ring.gz")
"""

_COMMON = """
[swift-hash]
swift_hash_path_suffix = tests
swift_hash_path_prefix = tests
[storage-policy:0]
name = one
default = yes
"""

_SERVER = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}
mount_check = false
disable_fallocate = true
recon_cache_path = {folder}
log_statsd_host =
log_level = WARNING
"""

_STORAGE = """
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""

_PROXY = """
[pipeline:main]
pipeline = catch_errors listing_formats s3api tempauth copy slo symlink versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = {region}
auth_pipeline_check = false
min_segment_size = 5242880
[filter:tempauth]
use = egg:swift#tempauth
{users}
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:symlink]
use = egg:swift#symlink
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
"""


@dataclass(frozen=True)
class Keys:
    """An account of the server."""

    access: str
    secret: str


OWNER = Keys("tests:owner", "the-secret-of-the-owner")
STRANGER = Keys("others:stranger", "the-secret-of-a-stranger")
"""Known to the server, but the owner's buckets are not its own."""


@dataclass(frozen=True)
class S3Server:
    """A running server.

    Attributes:
        endpoint: its address, as ``AWS_ENDPOINT_URL`` takes it.
    """

    endpoint: str

    def environment(self, keys: Keys = OWNER) -> dict[str, str]:
        """The variables with which any S3 client finds it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": keys.access,
            "AWS_SECRET_ACCESS_KEY": keys.secret,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def make_bucket(self, name: str, keys: Keys = OWNER) -> None:
        """Make a bucket that is not there yet."""
        import boto3
        from botocore.config import Config

        boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=keys.access,
            aws_secret_access_key=keys.secret,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, signature_version="s3v4"),
        ).create_bucket(Bucket=name)


@contextmanager
def running(programs: Path, folder: Path) -> Iterator[S3Server]:
    """A server for as long as the body runs.

    Args:
        programs: the folder of Swift's programs.
        folder: an empty folder, on a file system with extended attributes, for its settings, objects and logs.
    """
    ports = dict(zip((*_KINDS, "proxy"), _free_ports(4), strict=True))
    (folder / "disk").mkdir()
    (folder / "swift.conf").write_text(_COMMON)
    rings = [f"{kind}={ports[kind]}" for kind in _KINDS]
    subprocess.run([programs / "python", "-c", _RINGS, folder, *rings], check=True, capture_output=True, timeout=60)
    for kind in _KINDS:
        _settings(folder, kind, ports[kind], _STORAGE.format(kind=kind))
    users = "\n".join(f"user_{keys.access.replace(':', '_')} = {keys.secret} .admin" for keys in (OWNER, STRANGER))
    _settings(folder, "proxy", ports["proxy"], _PROXY.format(region=REGION, users=users))
    with ExitStack() as stack:
        processes = {kind: stack.enter_context(_process(programs, folder, kind)) for kind in ports}
        for kind, port in ports.items():
            _wait(processes[kind], port, folder / f"{kind}.log")
        yield S3Server(f"http://127.0.0.1:{ports['proxy']}")


def _settings(folder: Path, kind: str, port: int, parts: str) -> None:
    common = _SERVER.format(port=port, user=getpass.getuser(), folder=folder)
    (folder / f"{kind}.conf").write_text(common + parts)


@contextmanager
def _process(programs: Path, folder: Path, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    # memsweep's own environment must not reach another Python's packages
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AWS_"))}
    with (folder / f"{kind}.log").open("wb") as log:
        command = [programs / f"swift-{kind}-server", folder / f"{kind}.conf"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path, patience: float = 60.0) -> None:
    limit = time.monotonic() + patience
    while process.poll() is None and time.monotonic() < limit:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{log.stem} of the S3 server did not start: {log.read_text(errors='replace')[-2000:]}")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
