"""The manifests of deploy/kuberay as a cluster gets them: put together by kustomize, as in ``kubectl apply -k``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from paths import ROOT

KUBERAY = ROOT / "deploy" / "kuberay"
OVERLAYS = sorted(path.parent.name for path in (KUBERAY / "overlays").glob("*/kustomization.yaml"))
JOBS = [name for name in OVERLAYS if name.endswith("-job")]

Document = dict[str, Any]


def kubectl() -> str:
    """The path of kubectl, which brings kustomize with it; a skip where there is none, a failure in CI."""
    if found := shutil.which("kubectl"):
        return found
    why = "kubectl is not on PATH (1.27 or newer; it puts the manifests together as `kubectl apply -k` does)"
    if os.environ.get("CI"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@cache
def built(folder: Path) -> tuple[Document, ...]:
    """The manifests that ``kubectl kustomize`` makes of a folder; no cluster is asked."""
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"kustomize warns: {done.stderr}"
    return tuple(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def overlay(name: str) -> dict[tuple[str, str], Document]:
    """The documents of an overlay by (kind, name)."""
    return {
        (document["kind"], document["metadata"]["name"]): document for document in built(KUBERAY / "overlays" / name)
    }


def cluster(name: str) -> Document:
    """The specification of the Ray cluster in an overlay, standing or a job's own."""
    documents = overlay(name)
    if ("RayJob", "memsweep-study") in documents:
        return documents["RayJob", "memsweep-study"]["spec"]["rayClusterSpec"]
    return documents["RayCluster", "memsweep"]["spec"]


def containers(name: str) -> Iterator[tuple[str, Document]]:
    """Every container of an overlay, the autoscaler's among them, with its place."""
    from kube_schemas import pod_templates

    for (kind, _), document in overlay(name).items():
        for path, template in pod_templates(document):
            for container in [*template["spec"]["containers"], *template["spec"].get("initContainers", ())]:
                yield f"{kind}{path}/{container['name']}", container
    yield "autoscaler", cluster(name)["autoscalerOptions"]
