"""Where the modules that tests share lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SHARED = ("support", "support/servers", "support/faults", "drills/hosts", "config/load", "learning/state")
MODULES = [ROOT / "platform", *(ROOT / "tests" / name for name in _SHARED)]
WORKSPACE = Path(__file__).parent / "workspace"
