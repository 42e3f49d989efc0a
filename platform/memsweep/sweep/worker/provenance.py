"""The provenance of a result: code, package versions, host, processor, job, date."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.load.foreign import foreign_code
from memsweep.errors import MemsweepError
from memsweep.sweep.job import job_metadata
from memsweep.sweep.planning.identity import ON_CPU, Arithmetic, identity_of, pack_identity
from memsweep.sweep.store.record import now

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


_DECIDING = frozenset(
    {"avx", "avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd", "avx512_vnni"}
    | {"avx512_bf16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm"}
)
"""Instruction sets by which torch, its matrix libraries, numpy and our kernels choose their code."""


@functools.cache
def processor() -> dict[str, str]:
    """The properties of this processor by which libraries choose their code.

    Returns:
        ``model`` (with family, model and stepping, by which matrix libraries choose), ``instructions`` (those that
        decide), and ``torch`` (the set that torch has chosen, which ``ATEN_CPU_CAPABILITY`` may lower).
    """
    import torch

    info = _cpuinfo()
    numbers = " ".join(info[key] for key in ("cpu family", "model", "stepping") if key in info)
    flags = _DECIDING.intersection(info.get("flags", info.get("Features", "")).split())
    return {
        "model": f"{model_name()} {numbers}".strip(),
        "instructions": " ".join(sorted(flags)),
        "torch": torch.backends.cpu.get_cpu_capability(),
    }


def model_name() -> str:
    """The name that the processor gives itself: ``AMD EPYC ...``."""
    return _cpuinfo().get("model name") or platform.machine()


@functools.cache
def _cpuinfo() -> dict[str, str]:
    """The description of the first processor by Linux; empty on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


@functools.cache
def kernel_build(real: str) -> str:
    """The compiled library for numbers of this C++ type, as a hash of its sources, compiler and target."""
    from memsweep.recurrence.compiled.build import library_path

    return library_path(real).stem.rpartition("-")[2]


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
    """The inputs of a trial's identity besides its config, the build of its kernels, and the guessed roles."""
    made_from = identity_of(config, arithmetic)
    real = {"float64": "double", "float32": "float"}[config.training.dtype]
    build = kernel_build(real) if made_from["kernels"].startswith("compiled") else ""
    origin = {"code_fingerprint": made_from["code"], "identity_of": made_from, "kernel_build": build}
    return origin | guesses_of(config)


def guesses_of(config: TrialConfig) -> dict[str, Any]:
    """The guessed roles of a trial's weights, which every record tells its readers; nothing where all are known."""
    with suppress(MemsweepError), foreign_code(str):  # these are for readers: what fails here costs no result
        if guessed := registry.get(registry.MODEL, config.model.name).guessed_roles(config):
            return {"guessed_roles": {name: str(part) for name, part in guessed.items()}}
    return {}


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
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return job_metadata("revision")
    return found.stdout.strip() if found.returncode == 0 else job_metadata("revision")
