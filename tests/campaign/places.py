"""Where the modules that tests share lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    ROOT / "platform",
    *(ROOT / "tests" / name for name in ("support", "support/servers", "support/faults", "drills/hosts")),
]
WORKSPACE = Path(__file__).parent / "workspace"
