"""Secrets as a cluster's nodes have them in their environment, and the search for them in whatever was written."""

from __future__ import annotations

import base64
import contextlib
import shutil
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT
from processes import carriers_of
from sweeping import PERTURBATION

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "Hidden+aws/secret0001",
    "AWS_SESSION_TOKEN": "Hidden-session-0002",
    "MLFLOW_TRACKING_PASSWORD": "Hidden-mlflow-0003",
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "Hidden-flask-0004",
    "RAY_AUTH_TOKEN": "Hidden-ray-token-0005-0123456789abcdef",
    "PGPASSWORD": "Hidden-postgres-0006",
    "SOME_API_KEY": "Hidden\\api'key\"0007",
}
"""Variable -> value; each with signs that URLs, JSON or Python write in another way."""

PASSWORD = "Hidden-address-0008"
"""The password in addresses."""

PUBLIC = {"AWS_ACCESS_KEY_ID": "memsweep-public-id", "AWS_REGION": "us-east-1", "MLFLOW_TRACKING_USERNAME": "ada"}

STUDY = f"""
model: {{name: diagonal_rnn, width: 2, parameterization: exp}}
training: {{seeds: 2, steps: 20, batch_size: 8, validation_size: 16, validate_every: 10}}
{PERTURBATION}
grid: {{task: [{{name: telltale, tells: false}}, {{name: telltale, tells: true}}]}}
"""

TASK = '''
"""A task whose error quotes the environment."""
import os
from dataclasses import dataclass

import torch

from memsweep.config.core.fields import setting
from memsweep.data.api import LinearFunctionalTask
from memsweep.registry import register_task


@register_task("telltale")
class Telltale(LinearFunctionalTask):
    weight_power = 0.0
    variance = 1.0

    @dataclass(frozen=True, kw_only=True)
    class Config:
        tells: bool = setting(False, "whether it fails, and says everything")
        horizon: int = setting(8, "sequence length", at_least=2)

    @property
    def horizon(self):
        return self.config.horizon

    def kernel(self):
        if self.config.tells:
            known = {name: os.environ[name] for name in os.environ["TELLTALE"].split(",")}
            try:
                raise ConnectionError(f"no answer from postgresql://ada:{os.environ['AWS_SECRET_ACCESS_KEY']}@db/mlflow")
            except ConnectionError as error:
                raise RuntimeError(f"telltale: {known}") from error
        return torch.exp(-torch.arange(self.config.horizon, dtype=torch.float64))
'''


def workspace(folder: Path) -> Path:
    """A workspace with the task, and its study ``telltale``."""
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks" / "telltale.py").write_text(TASK)
    (folder / "search_spaces").mkdir()
    (folder / "search_spaces" / "telltale.yaml").write_text(STUDY)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def forms(secret: str) -> set[bytes]:
    """A secret as a file may hold it."""
    plain = {secret, urllib.parse.quote(secret, safe=""), repr(secret)[1:-1], secret.replace("\\", "\\\\")}
    packed = [base64.b64encode(secret.encode()).rstrip(b"=")[:-1]]
    return {text.encode() for text in plain} | set(packed)


def told(data: bytes) -> list[str]:
    """Which secrets are in the data."""
    known = SECRETS | {"the password of an address": PASSWORD}
    return [name for name, secret in known.items() if any(form in data for form in forms(secret))]


def told_below(*folders: Path) -> dict[str, list[str]]:
    """File -> the secrets in its name or content, for those that hold any."""
    found = {}
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        if secrets := told(str(path).encode() + path.read_bytes()):
            found[str(path)] = secrets
    return found


@contextlib.contextmanager
def watched_commands(mark: str) -> Iterator[set[bytes]]:
    """The command lines that anybody on the machine saw of the processes with this mark, until the block ends."""
    seen: set[bytes] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.3):
            for pid in carriers_of(mark):
                with contextlib.suppress(OSError):
                    seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
