"""An environment without settings and a workspace with one study, for tests of jobs and their addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsweep import registry
from paths import ROOT
from sweeping import BASE

SECRET = "qZ7f-not-to-be-seen-Xp31"

PRIVATE_FILES = (
    *("id_rsa", "server.key", "cert.p12", "cert.pem", ".netrc", ".envrc", ".env", "prod.env", "secrets.yaml"),
    *(".git-credentials", ".git/config", ".kube/config", ".docker/config.json", ".aws/credentials", ".ssh/id_ed25519"),
    *(
        ".config/gcloud/credentials.json",
        "service-account.json",
        ".azure/tokens.json",
        ".npmrc",
        ".pypirc",
        "x.tfstate",
    ),
)
"""Where people keep secrets in the folder of a project."""


def clear_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of Ray or memsweep in the environment."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "MEMSWEEP_RESULTS"):
        monkeypatch.setenv(name, "")  # and not deleted, so that a name that the code sets goes afterwards
        if name != "RAY_API_SERVER_ADDRESS":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # where Ray may have left a token


def small_workspace(tmp_path: Path) -> Path:
    """A workspace with the study ``small``."""
    folder = tmp_path / "workspace"
    (folder / "search_spaces").mkdir(parents=True)
    registry.discover(ROOT)  # for its tasks
    (folder / "search_spaces" / "small.yaml").write_text(f"{BASE}grid: {{model.width: [2, 3]}}\n")
    return folder
