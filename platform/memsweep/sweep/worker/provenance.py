"""The provenance of a result: code, package versions, host, processor, date."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.sweep.planning.identity import ON_CPU, Arithmetic, identity_of, pack_identity
from memsweep.sweep.store.record import now
from memsweep.sweep.worker.job_environment import job_metadata
from memsweep.sweep.worker.processor import kernel_build, model_name, processor

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig

_PACKAGES = ("memsweep", "torch", "numpy", "scipy", "ray", "pandas", "pyarrow")


def collect(revision: str, *, seconds: Mapping[str, float], pack: list[str], device: str = "cpu") -> dict[str, Any]:
    """The provenance of results that this process has just computed.

    Args:
        revision: code revision of the driver.
        seconds: wall-clock time of the whole pack by phase, without storing.
        pack: identities of the trials that ran as one program; the records hold one hash of them, because lists in
            all of them would grow with the square of their number.
        device: type of the device that computed.
    """
    import torch

    return {
        "code_revision": revision,
        "versions": dict(versions()),
        "host": socket.gethostname(),
        "device": f"{device} ({model_name() if device == 'cpu' else torch.cuda.get_device_name()})",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "finished": now(),
        "seconds": sum(seconds.values()),
        "phases": dict(seconds),
        "pack": pack_identity(pack),
        "members": len(pack),
    }


def of_trial(config: TrialConfig, arithmetic: Arithmetic = ON_CPU) -> dict[str, Any]:
    """The inputs of a trial's identity besides its config, and the build of the kernels that computed it."""
    made_from = identity_of(config, arithmetic)
    real = {"float64": "double", "float32": "float"}[config.training.dtype]
    build = kernel_build(real) if made_from["kernels"].startswith("compiled") else ""
    return {"code_fingerprint": made_from["code"], "identity_of": made_from, "kernel_build": build}


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can move a number; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def code_revision(folder: Path) -> str:
    """The Git revision of the checkout that holds ``folder``, with ``-dirty`` when it has changes.

    In a Ray job, whose folder is no checkout, it is the submitter's revision; empty if it is unknown.
    """
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return job_metadata("revision")
    return found.stdout.strip() if found.returncode == 0 else job_metadata("revision")
