"""Pins the base images of ``docker/Dockerfile`` and ``docker-compose.yml`` by digest: ``pin_images.py [FOLDER]``.

Asks each image's registry which manifest its tag names today (Docker Registry HTTP API v2), and writes
``name:tag@sha256:...`` in its place. An image that has a digest gets that of today. A digest is the SHA-256 of what the
registry sent. Where one image cannot be resolved, no file is changed.

Exit code: 0 all images are pinned, 3 some could not be resolved.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

PLACES = {
    "docker/Dockerfile": r"(?<=^ARG PYTHON_IMAGE=)\S+",
    "docker-compose.yml": r"(?<=_IMAGE:-)(?!memsweep:)[^}\s]+",
}
"""File -> a pattern of the images in it; memsweep's own is built, and has no registry."""
UNKNOWN = 3
_HUB = "registry-1.docker.io"
_MANIFESTS = (
    *("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"),
    *("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"),
)  # of all platforms first
_SECONDS = 30.0
_LONGEST = 4 << 20  # bytes of a manifest, by the registries' own limit


class UnresolvedError(Exception):
    """The digest of an image cannot be had."""


class Image(NamedTuple):
    """An image as a file names it.

    Attributes:
        name: with the registry, where it is named.
        tag: what is wanted today.
    """

    name: str
    tag: str

    @classmethod
    def of(cls, text: str) -> Image:
        """Of ``name:tag`` or ``name:tag@digest``; a colon before a slash is that of a port."""
        name, _, tag = text.partition("@")[0].rpartition(":")
        if not name or "/" in tag:
            raise UnresolvedError(f"{text} names no tag")
        return cls(name, tag)

    def manifest(self) -> str:
        """The address of its manifest; Docker's own registry where no other is named, as for Docker."""
        host, slash, path = self.name.partition("/")
        if not slash or not (set(".:") & set(host) or host == "localhost"):
            host, path = _HUB, self.name if slash else f"library/{self.name}"
        local = host.partition(":")[0] in ("localhost", "127.0.0.1")
        return f"http{'' if local else 's'}://{host}/v2/{path}/manifests/{self.tag}"


def digest(image: Image) -> str:
    """``sha256:...`` of the manifest that the tag names now.

    Raises:
        UnresolvedError: the registry cannot be reached, does not have it, or sends another one than it says.
    """
    headers = {"Accept": ", ".join(_MANIFESTS)}
    try:
        try:
            body, told = _get(image.manifest(), headers)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            token = _token(error.headers.get("WWW-Authenticate", ""))
            body, told = _get(image.manifest(), headers | {"Authorization": f"Bearer {token}"})
    except (OSError, ValueError, LookupError) as error:
        raise UnresolvedError(str(error).strip("<>")) from None
    got = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if told not in (None, got):
        raise UnresolvedError(f"the registry says {told} and sends {got}")
    return got


def _get(address: str, headers: Mapping[str, str]) -> tuple[bytes, str | None]:
    """Gets the content at an address, and the digest that the registry gives for it."""
    with urllib.request.urlopen(urllib.request.Request(address, headers=dict(headers)), timeout=_SECONDS) as answer:
        body: bytes = answer.read(_LONGEST)
        return body, answer.headers.get("Docker-Content-Digest")


def _token(challenge: str) -> str:
    """The token that anybody gets where the registry says that one is given."""
    asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({key: asked[key] for key in ("service", "scope") if key in asked})
    body, _ = _get(f"{asked['realm']}?{query}", {})
    return str(json.loads(body)["token"])


def pin(folder: Path) -> list[str]:
    """Write the digests; a line for each image.

    Raises:
        UnresolvedError: with a line for each image that has none; nothing is written.
    """
    texts = {folder / name: (folder / name).read_text(encoding="utf-8") for name in PLACES}
    patterns = {folder / name: re.compile(pattern, re.MULTILINE) for name, pattern in PLACES.items()}
    wanted = sorted({found for path, text in texts.items() for found in patterns[path].findall(text)})
    pinned, problems = dict[str, str](), list[str]()
    for text in wanted:
        try:
            image = Image.of(text)
            pinned[text] = f"{image.name}:{image.tag}@{digest(image)}"
        except UnresolvedError as error:
            problems.append(f"{text}: no digest: {error}")
    if problems:
        raise UnresolvedError("\n".join(problems))
    for path, text in texts.items():
        path.write_text(patterns[path].sub(lambda found: pinned[found[0]], text), encoding="utf-8")
    return list(pinned.values())


if __name__ == "__main__":
    try:
        print("\n".join(pin(Path(*sys.argv[1:2]))))
    except UnresolvedError as error:
        print(f"{error}\nNo file is changed: the images stay as they are.", file=sys.stderr)
        sys.exit(UNKNOWN)
