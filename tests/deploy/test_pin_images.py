"""`make pin-images`: digests come from a registry that was asked, and from nowhere else."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paths import ROOT

FILES = ("docker/Dockerfile", "docker-compose.yml")


class _Registry(http.server.BaseHTTPRequestHandler):
    """Speaks the Docker Registry HTTP API v2: a token for anybody, then a manifest of all platforms."""

    asked: list[str]
    known = ("library/python", "library/postgres", "versity/versitygw")
    lies = False

    def do_GET(self) -> None:
        self.asked.append(self.path)
        host = f"http://{self.headers['Host']}"
        _, _, rest = self.path.partition("/v2/")
        name, _, tag = rest.partition("/manifests/")
        if self.path.startswith("/token?"):
            return self._send(200, json.dumps({"token": "for-anybody"}).encode())
        if self.headers["Authorization"] != "Bearer for-anybody":
            scope = f'Bearer realm="{host}/token",service="registry",scope="repository:{name}:pull"'
            return self._send(401, b"{}", ("WWW-Authenticate", scope))
        if name not in self.known or "vnd.oci.image.index" not in self.headers["Accept"]:
            return self._send(404, b"{}")
        body = manifest(name, tag)
        told = "sha256:" + ("0" * 64 if self.lies else hashlib.sha256(body).hexdigest())
        return self._send(200, body, ("Docker-Content-Digest", told))

    def _send(self, code: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def manifest(name: str, tag: str) -> bytes:
    return json.dumps({"schemaVersion": 2, "manifests": [], "annotations": {"of": f"{name}:{tag}"}}).encode()


@pytest.fixture
def registry() -> Iterator[type[_Registry]]:
    handler = type("Registry", (_Registry,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        handler.address = f"127.0.0.1:{server.server_address[1]}"
        yield handler
        server.shutdown()
        thread.join()


def texts(folder: Path) -> list[str]:
    return [(folder / name).read_text(encoding="utf-8") for name in FILES]


def project(folder: Path, registry: str) -> Path:
    """The project's own files, with the images of this registry."""
    (folder / "docker").mkdir(parents=True)
    for name, text in zip(FILES, texts(ROOT), strict=True):
        text = re.sub(r"(PYTHON_IMAGE=|POSTGRES_IMAGE:-)", rf"\g<1>{registry}/library/", text)
        (folder / name).write_text(re.sub(r"(S3_IMAGE:-)", rf"\g<1>{registry}/", text), encoding="utf-8")
    return folder


def pin(folder: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-S", ROOT / "docker" / "pin_images.py", folder]  # it runs without the environment
    return subprocess.run(program, capture_output=True, text=True, timeout=120)


def test_images_get_the_digest_that_their_registry_has(tmp_path: Path, registry: type[_Registry]) -> None:
    folder = project(tmp_path / "project", registry.address)
    before = texts(folder)
    done = pin(folder)
    assert done.returncode == 0, done.stderr
    after = texts(folder)
    pinned = re.compile(r"([\w./:-]+?/)((?:library|versity)/\w+):([\w.-]+)@sha256:([0-9a-f]{64})")
    found = [match for text in after for match in pinned.findall(text)]
    assert sorted(name for _, name, _, _ in found) == sorted(registry.known)
    assert all(hashlib.sha256(manifest(name, tag)).hexdigest() == digest for _, name, tag, digest in found)
    assert [re.sub("@sha256:[0-9a-f]{64}", "", text) for text in after] == before  # tags, and all else, stay
    assert "scope=repository%3Alibrary%2Fpython%3Apull" in "".join(registry.asked)
    assert pin(folder).returncode == 0  # again: the digests of that day
    assert texts(folder) == after


def test_nothing_changes_where_one_digest_cannot_be_had(tmp_path: Path, registry: type[_Registry]) -> None:
    folder = project(tmp_path / "project", registry.address)
    before = texts(folder)
    for fault, said in ({"known": _Registry.known[:2]}, "404"), ({"lies": True}, "says sha256:0000"):
        for name, value in fault.items():
            setattr(registry, name, value)
        done = pin(folder)
        assert done.returncode == 3
        assert said in done.stderr
        assert "No file is changed" in done.stderr
        assert "Traceback" not in done.stderr
        assert texts(folder) == before


def test_nothing_changes_where_no_registry_answers(tmp_path: Path) -> None:
    folder = project(tmp_path / "project", "127.0.0.1:9")
    before = texts(folder)
    done = pin(folder)
    assert done.returncode == 3
    assert done.stderr.count("no digest: ") == 3
    assert "refused" in done.stderr
    assert texts(folder) == before


def test_the_files_of_the_project_name_images_of_public_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docker"))
    import pin_images

    found = [
        image
        for name, text in zip(FILES, texts(ROOT), strict=True)
        for image in re.findall(pin_images.PLACES[name], text, re.MULTILINE)
    ]
    assert len(found) == 3
    addresses = {pin_images.Image.of(each).manifest() for each in found}
    hub = f"https://{pin_images._HUB}/v2/"
    assert {each.partition("/manifests/")[0] for each in addresses} == {hub + name for name in _Registry.known}
