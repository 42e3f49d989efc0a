"""The local cluster as it is written down: what it publishes, what it may use, and that no secret is in any file."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from memsweep.redaction import without_secrets
from paths import ROOT, docker_program

COMPOSE = (ROOT / "docker-compose.yml").read_text()
EXAMPLE = ROOT / ".env.example"
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
ONE_SHOT = "s3-bucket"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
DIGEST = r"(?:@sha256:[0-9a-f]{64})?"  # from make pin-images
SECRET = re.compile(r"^(\w*(?:TOKEN|PASSWORD|SECRET\w*|KEY))$")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_bounded_watched_and_unprivileged(name: str) -> None:
    service = SERVICES[name]
    limits = service["deploy"]["resources"]["limits"]
    assert {"cpus", "memory", "pids"} <= limits.keys()
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert not {"privileged", "network_mode", "pid", "ipc"} & service.keys()
    assert service["networks"]
    if name == ONE_SHOT:
        assert service["restart"] == "on-failure:3"
        return
    assert service["restart"] == "unless-stopped"
    health = service["healthcheck"]
    seconds = {key: float(health[key].removesuffix("s")) for key in ("interval", "timeout", "start_period")}
    assert 2 <= seconds["interval"] <= 10
    assert seconds["interval"] * health["retries"] >= 10  # one slow answer is no death


def test_what_is_published_is_published_on_loopback() -> None:
    published = {name: service.get("ports", []) for name, service in SERVICES.items()}
    assert {name for name, ports in published.items() if ports} == {"mlflow", "ray-head"}
    for ports in published.values():
        assert all(re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port) for port in ports)


def test_only_what_publishes_has_a_way_out() -> None:
    networks = yaml.safe_load(COMPOSE)["networks"]
    outer = {name for name, network in networks.items() if not network.get("internal")}
    assert outer == {"front"}
    assert {name for name, service in SERVICES.items() if outer & set(service["networks"])} == {"mlflow", "ray-head"}
    assert SERVICES["postgres"]["networks"] == ["database"]
    assert {name for name, service in SERVICES.items() if "database" in service["networks"]} == {"postgres", "mlflow"}


def test_no_secret_has_a_default() -> None:
    seen = 0
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.match(variable) or variable in ("AWS_ACCESS_KEY_ID", "ROOT_ACCESS_KEY_ID"):
                assert re.fullmatch(r"\$\{\w+:\?run make cluster\}", str(value)), f"{name}: {variable}"
                seen += 1
        assert "://" not in str(service.get("command", "")) or "@" not in str(service["command"])
    assert seen >= 20
    assert not re.search(r"//[^/\s@]+:[^/\s@]+@", COMPOSE)  # no user:password@


def test_images_are_pinned_to_a_version() -> None:
    images = {service["image"] for service in SERVICES.values()}
    assert len(images) == 3
    for image in images - {"${MEMSWEEP_IMAGE:-memsweep:cpu}"}:
        assert re.fullmatch(rf"\$\{{\w+_IMAGE:-[\w/]+:v?\d+\.\d+[\w.-]*{DIGEST}\}}", image), image
    assert re.search(rf"^ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+{DIGEST}$", DOCKERFILE, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    assert not re.search(r"^#\s*syntax\s*=", DOCKERFILE, re.MULTILINE)


def test_the_image_runs_as_nobody_in_particular() -> None:
    lines = DOCKERFILE.splitlines()
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER 1000:1000"]  # a number: Kubernetes can tell that it is not root
    after = lines[lines.index("USER 1000:1000") + 1 :]
    assert not [line for line in after if line.startswith(("RUN", "COPY", "ADD"))]
    assert not re.search(r"^(ARG|ENV) \w*(PASSWORD|TOKEN|SECRET|KEY)", DOCKERFILE, re.MULTILINE)


def test_every_variable_is_in_the_example_and_the_other_way_round() -> None:
    example = set(re.findall(r"^([A-Z_0-9]+)=", EXAMPLE.read_text(), re.MULTILINE))
    used = set(re.findall(r"\$\{(\w+)[:}]", COMPOSE)) - {"POSTGRES_IMAGE", "S3_IMAGE", "MEMSWEEP_IMAGE"}
    assert used == example


def test_secrets_are_made_once_and_are_all_different(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "docker" / "environment.py", EXAMPLE]
    made: list[str] = []
    for name in ("one", "two"):
        file = tmp_path / name
        told = subprocess.run([*command, file], capture_output=True, text=True, check=True).stdout
        text = file.read_text()
        found = re.findall(r"^(?:CLUSTER_\w+)=([0-9a-f]{48})$", text, re.MULTILINE)
        assert len(found) == EXAMPLE.read_text().count("=<secret>\n") >= 5
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert not [secret for secret in found if secret in told]
        made += found
        subprocess.run([*command, file], capture_output=True, check=True)
        assert file.read_text() == text
    assert len(set(made)) == len(made)


def test_a_file_of_secrets_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text("CLUSTER_RAY_TOKEN=x\n")
    file.chmod(0o644)
    command = [sys.executable, ROOT / "docker" / "environment.py", EXAMPLE, file]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert asked.returncode == 1
    assert f"chmod 600 {file}" in asked.stderr


def test_the_settings_are_no_file_of_the_repository() -> None:
    ignored = subprocess.run(["git", "check-ignore", ".env"], cwd=ROOT, capture_output=True, check=False)
    if ignored.returncode == 128:
        pytest.skip("not a checkout")
    assert ignored.returncode == 0


def test_only_what_the_image_needs_is_sent_to_the_engine() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    back = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    }
    assert {word.split("/")[0] for word in copied} == back
    assert "**/.env" in lines


def test_the_image_installs_what_the_project_asks_for() -> None:
    wanted = docker_program("requirements").requirements(ROOT / "pyproject.toml", "cluster")
    assert {"torch>=2.11", "ray[default]>=2.60,<2.61", "psycopg2-binary"} <= set(wanted)


def test_no_word_of_a_sentence_is_taken_for_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the S3 server counts as a secret in every container that has it, and reports name commands."""
    example = dict(line.split("=", 1) for line in EXAMPLE.read_text().splitlines() if "=" in line and line[0] != "#")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", example["CLUSTER_S3_KEY"])
    assert without_secrets("memsweep extend STUDY") == "memsweep extend STUDY"
