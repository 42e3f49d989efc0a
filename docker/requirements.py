"""Requirements, part by part: a change of the engine leaves the layers of the image's packages alone.

``requirements.py list pip|torch|cluster|dev`` prints a section of ``requirements.lock``, for ``pip install
--require-hashes --no-deps``; ``requirements.py check-files LOCK REPORT`` compares what pip says that it has installed
(``--report``) with it; ``requirements.py check-torch cpu|cuda`` says whether the torch that is installed is of
the kind that was asked for.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path


def requirements(project: Path, *extras: str) -> list[str]:
    """The dependencies in ``pyproject.toml``, and those of some extras, with the extras that these name."""
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    own, found = f"{about['name']}[", list(about["dependencies"])
    for line in (line for extra in extras for line in about["optional-dependencies"][extra]):
        named = line.removeprefix(own).rstrip("]").split(",") if line.startswith(own) else []
        found += requirements(project, *named)[len(about["dependencies"]) :] if named else [line]
    return list(dict.fromkeys(found))


def section(lock: Path, name: str) -> str:
    """The pins and hashes of one section of the lock file."""
    return lock.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def check_files(lock: Path, report: Path) -> None:
    """Exits where pip has installed a file whose hash the lock file lacks.

    torch comes so: with ``--require-hashes``, pip takes PyPI's GPU build before a CPU build of another place.
    """
    known = lock.read_text(encoding="utf-8")
    for package in json.loads(report.read_text(encoding="utf-8"))["install"]:
        info = package["download_info"]
        hash_ = f"sha256:{info['archive_info']['hashes']['sha256']}"
        if f"--hash={hash_}" not in known:
            name = info["url"].rpartition("/")[2]
            sys.exit(f"{name} has {hash_}, which is not in {lock.name}. If you trust the file, add it there.")


def check_torch(variant: str) -> str:
    """A sentence about the torch that is installed; exits where it cannot do what was asked for."""
    import torch

    cuda = torch.version.cuda
    if variant not in ("cpu", "cuda"):
        sys.exit(f"VARIANT={variant} is not known: write cpu or cuda.")
    if variant == "cuda" and not cuda:
        sys.exit(
            f"VARIANT=cuda, but pip found torch {torch.__version__}, a build without CUDA. Name an index that has one "
            "with TORCH_INDEX."
        )
    if variant == "cpu" and cuda:
        return (
            f"torch {torch.__version__} brings CUDA {cuda}: gigabytes that VARIANT=cpu has no use for. Name PyTorch's "
            "index of CPU builds with TORCH_INDEX."
        )
    return f"torch {torch.__version__}"


if __name__ == "__main__":
    if sys.argv[1] == "list":
        print(section(Path("requirements.lock"), sys.argv[2]))
    elif sys.argv[1] == "check-files":
        check_files(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        print(check_torch(sys.argv[2]))
