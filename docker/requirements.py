"""What the image installs, read from pyproject.toml: so that a change of the engine leaves the packages' layer alone.

``requirements.py list EXTRA`` prints the dependencies and those of an extra, one a line; ``requirements.py check-torch
cpu|cuda`` says whether the torch that is installed is of the kind that was asked for.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(project: Path, extra: str) -> list[str]:
    """The dependencies in ``pyproject.toml``, and those of one extra."""
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    return [*about["dependencies"], *about["optional-dependencies"][extra]]


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
        print(*requirements(Path("pyproject.toml"), sys.argv[2]), sep="\n")
    else:
        print(check_torch(sys.argv[2]))
