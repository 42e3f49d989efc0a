"""Manifests against the schemas that judge them in a cluster: KubeRay's own, and Kubernetes' of several versions.

``problems(document)`` is strict: a field that the schema does not know is a mistake, not something to drop in silence
as an API server does. Rules in CEL (``x-kubernetes-validations``) are not run: no rule of these schemas concerns
fields that our manifests set, and a schema keyword that is neither run nor listed here is refused.

KubeRay's schemas lie in ``schemas/kuberay.json.xz``. To take those of another release, give its CRD files::

    python tests/deploy/kube_schemas.py ray.io_rayclusters.yaml ray.io_rayjobs.yaml
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import kubernetes_validate.utils
import yaml

SCHEMAS = Path(__file__).parent / "schemas" / "kuberay.json.xz"
KUBERNETES = ("1.30", "1.37")  # the oldest that we mean to run on, and the newest whose schemas are here
API = "v1"  # the version of KubeRay's kinds that our manifests name

KEPT = {"type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
RUN_HERE = {"properties", "items", "additionalProperties", "required", "anyOf", "nullable", "format", "default"}
RUN_HERE |= {"x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-preserve-unknown-fields"}
NOT_RUN = {"x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-map-type", "description"}
INTEGERS = {"int32": 2**31 - 1, "int64": 2**63 - 1}

# It reads a megabyte of definitions anew for each document: four times as slow.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


class SchemaError(Exception):
    """A schema says something that this check does not understand."""


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema that refuses what the Kubernetes schema does not name."""
    if unknown := set(schema) - KEPT - RUN_HERE - NOT_RUN:
        raise SchemaError(f"keywords that this check does not know: {sorted(unknown)}")
    kept = {key: value for key, value in schema.items() if key in KEPT}
    if schema.get("x-kubernetes-int-or-string"):
        return {**kept, "type": ["integer", "string"]}
    if "anyOf" in schema:
        raise SchemaError("anyOf is understood for whole numbers or strings alone")
    if limit := INTEGERS.get(schema.get("format", "")):
        kept |= {"minimum": max(kept.get("minimum", -limit - 1), -limit - 1), "maximum": limit}
    if "items" in schema:
        kept["items"] = strict(schema["items"])
        if keys := schema.get("x-kubernetes-list-map-keys"):
            kept["uniqueBy"] = [(key, schema["items"]["properties"][key].get("default")) for key in keys]
    if isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = strict(schema["additionalProperties"])
    if "properties" in schema:
        kept["properties"] = {name: strict(inner) for name, inner in schema["properties"].items()}
        # The API server fills defaults in before it looks whether anything is missing.
        kept["required"] = [
            name for name in schema.get("required", ()) if "default" not in schema["properties"].get(name, {})
        ]
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept.setdefault("additionalProperties", False)
    if schema.get("nullable"):
        kept["type"] = [kept["type"], "null"]
    return kept


def unique_by(_: Any, keys: list[tuple[str, Any]], items: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """Lists that Kubernetes reads as maps hold each key once."""
    seen: list[list[Any]] = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            key = [item.get(name, default) for name, default in keys]
            if key in seen:
                yield jsonschema.ValidationError(
                    f"{dict(zip((name for name, _ in keys), key, strict=True))} is there twice"
                )
            seen.append(key)


Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"uniqueBy": unique_by})


@cache
def kuberay() -> dict[tuple[str, str], Any]:
    """A validator for each of KubeRay's kinds, by (apiVersion, kind)."""
    found = {}
    for name, schema in json.loads(lzma.decompress(SCHEMAS.read_bytes())).items():
        version, kind = name.rsplit(" ", 1)
        whole = strict(schema)
        whole["required"] = ["apiVersion", "kind", "metadata", "spec"]
        # As in a cluster, what an object's metadata may hold is Kubernetes' own affair; see `_metadata`.
        whole["properties"]["metadata"] = {"type": "object"}
        found[version, kind] = Validator(whole)
    return found


def _place(error: jsonschema.ValidationError) -> str:
    return "/".join(str(step) for step in error.absolute_path) or "the document"


def _core(document: dict[str, Any]) -> Iterator[str]:
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{_place(error)}: {error.message[:200]} (Kubernetes {version})"
        except kubernetes_validate.SchemaNotFoundError as error:
            yield f"{error.message}"


def _metadata(document: dict[str, Any]) -> Iterator[str]:
    """Kubernetes' own opinion of an object's metadata, asked by way of a kind that is little else."""
    yield from _core({"apiVersion": "v1", "kind": "ConfigMap", "metadata": document.get("metadata")})


def pod_templates(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod template within a document, with its place."""
    if isinstance(node, dict):
        if isinstance(node.get("spec"), dict) and "containers" in node["spec"]:
            yield path, node
        for key, inner in node.items():
            yield from pod_templates(inner, f"{path}/{key}")
    elif isinstance(node, list):
        for number, inner in enumerate(node):
            yield from pod_templates(inner, f"{path}/{number}")


def problems(document: dict[str, Any]) -> list[str]:
    """The parts of a manifest that a cluster would refuse, or drop without a word."""
    validator = kuberay().get((document.get("apiVersion", ""), document.get("kind", "")))
    if validator is None:
        return list(_core(document))
    found = [f"{_place(error)}: {error.message[:200]}" for error in validator.iter_errors(document)]
    found += _metadata(document)
    # KubeRay's schema holds a copy of the pod's; Kubernetes itself has the last word on the pods that come of it.
    for path, template in pod_templates(document):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        found += [f"{path}: {problem}" for problem in _core(pod)]
    return found


def _write(files: list[str]) -> None:
    """Keep what validation needs of the operator's CRD files: the schema of one version, without its prose."""
    kept = {}
    for file in files:
        definition = yaml.load(Path(file).read_text(), Loader=yaml.CSafeLoader)
        for version in definition["spec"]["versions"]:
            if version["name"] == API:
                name = f"{definition['spec']['group']}/{API} {definition['spec']['names']['kind']}"
                kept[name] = version["schema"]["openAPIV3Schema"]
    SCHEMAS.write_bytes(lzma.compress(json.dumps(kept, sort_keys=True).encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    _write(sys.argv[1:])
