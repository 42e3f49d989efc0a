"""The memory that this process may still take, on this machine or in this container.

Sources: proc(5) (``MemAvailable``); the kernel's documents of control groups, version 1 (``memory.limit_in_bytes``)
and 2 (``memory.max``). A group's cache of files that were read can be freed at any time, and counts as free.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch


class _Files(NamedTuple):
    """Names of a control group's files."""

    limit: str
    used: str
    cached: str


_VERSIONS = {
    "": _Files("memory.max", "memory.current", "inactive_file"),
    "memory": _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_bytes(device: torch.device, root: Path = Path("/")) -> int | None:
    """Free bytes; None where this system does not report them.

    Args:
        device: whose memory it is.
        root: where ``proc`` and ``sys`` are mounted.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = [_of_machine(root), *(_of_group(folder, files) for folder, files in _groups(root))]
    return min((size for size in known if size is not None), default=None)


def _of_machine(root: Path) -> int | None:
    kibibytes = _entries(root / "proc/meminfo").get("MemAvailable")
    return None if kibibytes is None else 1024 * kibibytes


def _groups(root: Path) -> Iterator[tuple[Path, _Files]]:
    """The folders of the control groups of this process, and of the groups that contain them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller, files in _VERSIONS.items():
            if controller in controllers.split(","):
                base = root / "sys/fs/cgroup" / controller
                own = base / path.strip("/")
                yield from ((folder, files) for folder in (own, *own.parents) if folder.is_relative_to(base))


def _of_group(folder: Path, files: _Files) -> int | None:
    limit, used = _text(folder / files.limit).strip(), _text(folder / files.used).strip()
    if not (limit.isdecimal() and used.isdecimal()):  # "max", or a folder without access
        return None
    return max(0, int(limit) - int(used) + _entries(folder / "memory.stat").get(files.cached, 0))


def _entries(file: Path) -> dict[str, int]:
    """The whole numbers of a file of lines ``name[:] number [unit]``."""
    words = (line.replace(":", " ").split() for line in _text(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) > 1 and pair[1].isdecimal()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
