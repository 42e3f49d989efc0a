"""The Kubernetes manifests: right by the schemas that judge them, closed, complete, and of one mind with the rest."""

from __future__ import annotations

import configparser
import copy
import re
import subprocess
from base64 import b64decode
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from kube_manifests import JOBS, KUBERAY, OVERLAYS, Document, built, cluster, containers, kubectl, overlay
from kube_schemas import SchemaError, pod_templates, problems, strict

import memsweep
from paths import ROOT

SECRETS = re.compile(r"PASSWORD|SECRET|TOKEN|ACCESS_KEY")


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_cluster_would_take_every_document(name: str) -> None:
    documents = overlay(name)
    kinds = [kind for kind, _ in documents]
    assert kinds.count("RayJob") == (name in JOBS)
    assert kinds.count("RayCluster") == (name not in JOBS)
    assert {"Namespace", "ServiceAccount", "ConfigMap", "Deployment", "Service", "NetworkPolicy"} <= set(kinds)
    found = {where: wrong for where, document in documents.items() if (wrong := problems(document))}
    assert not found
    outside = [where for where, document in documents.items() if document["metadata"].get("namespace") != "memsweep"]
    assert outside == [("Namespace", "memsweep")]


def _cut(path: str, value: Any = ...) -> Callable[[Document], None]:
    """Set what a dotted path leads to, or take it away."""

    def change(document: Document) -> None:
        *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        inner: Any = document
        for step in way:
            inner = inner[step]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value

    return change


HEAD = "spec.headGroupSpec.template.spec"
BROKEN: dict[str, tuple[str, str, Callable[[Document], None], str]] = {
    "unknown field": (
        "RayCluster",
        "memsweep",
        _cut("spec.enableInTreeAutoscalling", True),
        "enableInTreeAutoscalling",
    ),
    "wrong type": (
        "RayCluster",
        "memsweep",
        _cut("spec.workerGroupSpecs.0.maxReplicas", "ten"),
        "'ten' is not of type",
    ),
    "number for text": ("RayCluster", "memsweep", _cut("spec.headGroupSpec.rayStartParams.num-cpus", 0), "not of type"),
    "missing": ("RayCluster", "memsweep", _cut("spec.workerGroupSpecs.0.groupName"), "'groupName' is a required"),
    "no such choice": ("RayCluster", "memsweep", _cut("spec.authOptions.mode", "Token"), "'Token' is not one of"),
    "no quantity": ("RayCluster", "memsweep", _cut(f"{HEAD}.containers.0.resources.limits.memory", "8GB"), "'8GB'"),
    "deep in a pod": ("RayCluster", "memsweep", _cut(f"{HEAD}.securityContext.runAsNonroot", True), "runAsNonroot"),
    "pod metadata": (
        "RayCluster",
        "memsweep",
        _cut("spec.headGroupSpec.template.metadata.labels.x", True),
        "True is not of type",
    ),
    "twice": (
        "RayCluster",
        "memsweep",
        lambda document: document["spec"]["headGroupSpec"]["template"]["spec"]["containers"].append(
            {"name": "ray-head", "image": "x"}
        ),
        "is there twice",
    ),
    "metadata": ("RayCluster", "memsweep", _cut("metadata.lables", {}), "lables"),
    "job": ("RayJob", "memsweep-study", _cut("spec.shutdownAfterJobFinished", True), "shutdownAfterJobFinished"),
    "job's cluster": (
        "RayJob",
        "memsweep-study",
        _cut("spec.rayClusterSpec.headGroupSpec.template"),
        "'template' is a",
    ),
    "core kind": ("Deployment", "mlflow", _cut("spec.template.spec.containers.0.readynessProbe", {}), "readynessProbe"),
    "core type": ("Service", "mlflow", _cut("spec.ports.0.port", "http"), "'http' is not of type"),
    "no such kind": ("Service", "mlflow", _cut("apiVersion", "v2"), "find schema"),
}


@pytest.mark.parametrize(("kind", "name", "breaking", "word"), BROKEN.values(), ids=BROKEN)
def test_the_check_sees_mistakes(kind: str, name: str, breaking: Callable[[Document], None], word: str) -> None:
    documents = {**overlay("cpu-job"), **overlay("cpu")}
    document = copy.deepcopy(documents[kind, name])
    breaking(document)
    found = problems(document)
    assert any(word in problem for problem in found), found


def test_a_schema_that_says_more_than_the_check_understands_is_refused() -> None:
    with pytest.raises(SchemaError, match="oneOf"):
        strict({"type": "object", "oneOf": []})


@pytest.mark.parametrize("name", OVERLAYS)
def test_no_secret_is_written_down(name: str) -> None:
    assert not [kind for kind, _ in overlay(name) if kind == "Secret"], "secrets are made by secrets.sh, in the cluster"
    for where, container in containers(name):
        literal = [
            item["name"] for item in container.get("env", ()) if SECRETS.search(item["name"]) and "value" in item
        ]
        assert not literal, f"{where}: {literal}"
    for document in built(KUBERAY / "overlays" / name):
        if document["kind"] == "ConfigMap":
            assert not [key for key in document["data"] if SECRETS.search(key)]
        assert not re.search(r"://[^/\s:]+:[^/\s]+@|AKIA[A-Z0-9]{16}", yaml.safe_dump(document)), (
            "an address with a password"
        )


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_pod_is_locked_in(name: str) -> None:
    seen = 0
    for document in built(KUBERAY / "overlays" / name):
        for path, template in pod_templates(document):
            pod, seen = template["spec"], seen + 1
            security = pod["securityContext"]
            assert security["runAsNonRoot"], path
            assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == 1000, path
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}, path
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod), path
            assert all(
                set(volume) == {"name", "emptyDir"} and volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"]
            )
            is_head = pod["serviceAccountName"] == "memsweep-head"  # the one that scales the cluster
            assert is_head or pod["automountServiceAccountToken"] is False, path
    assert seen == 3 + ("gpu" in name) + (name in JOBS)
    for where, container in containers(name):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, where
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert requests["memory"] == limits["memory"], f"{where}: memory cannot be taken back, so it is not lent"
        assert set(requests) == set(limits) >= {"cpu", "memory"}, where


@pytest.mark.parametrize("name", OVERLAYS)
def test_images_are_this_version_and_ray_is_the_pinned_one(name: str) -> None:
    variant = "cuda" if "gpu" in name else "cpu"
    for where, container in containers(name):
        if where != "autoscaler":  # it takes the head's
            kind = "cpu" if where.startswith("Deployment") else variant
            assert container["image"] == f"registry.example/memsweep:{memsweep.__version__}-{kind}", where
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE))
    assert cluster(name)["rayVersion"] == pins["ray"]


@cache
def _secrets() -> dict[str, dict[str, str]]:
    """The secrets that secrets.sh makes, by name: what their keys hold. No cluster is asked."""
    environment = {"POSTGRES_PASSWORD": "p%40 'x", "AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "hush"}
    environment |= {"PATH": f"{Path(kubectl()).parent}:/usr/bin:/bin", "KUBECONFIG": "/dev/null"}
    script = [str(KUBERAY / "secrets.sh"), "--print"]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600, check=True)
    made = [document for document in yaml.safe_load_all(done.stdout) if document]
    assert not [wrong for document in made for wrong in problems(document)]
    return {
        document["metadata"]["name"]: {key: b64decode(value).decode() for key, value in document["data"].items()}
        for document in made
    }


def test_secrets_are_made_whole_and_random() -> None:
    once = _secrets()
    _secrets.cache_clear()
    again = _secrets()
    assert once["memsweep-storage"] == {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "hush"}
    assert once["memsweep-mlflow-server"]["PGPASSWORD"] == "p%40 'x"
    assert once["memsweep-mlflow"]["MLFLOW_TRACKING_USERNAME"] == "memsweep"
    for name, key in [
        ("memsweep-mlflow", "MLFLOW_TRACKING_PASSWORD"),
        ("memsweep-mlflow-server", "MLFLOW_FLASK_SERVER_SECRET_KEY"),
    ]:
        assert re.fullmatch("[0-9a-f]{48}", once[name][key])
        assert once[name][key] != again[name][key]


@pytest.mark.parametrize(
    ("given", "why"), [({}, "POSTGRES_PASSWORD"), ({"POSTGRES_PASSWORD": "x", "AWS_ACCESS_KEY_ID": "x"}, "both")]
)
def test_half_a_set_of_secrets_is_refused(given: dict[str, str], why: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", **given}
    script = [str(KUBERAY / "secrets.sh"), "--print"]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode
    assert why in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_reference_leads_somewhere(name: str) -> None:
    documents = overlay(name)
    held = {("Secret", secret): set(keys) for secret, keys in _secrets().items()}
    held |= {(kind, where): set(about["data"]) for (kind, where), about in documents.items() if kind == "ConfigMap"}
    seen = set()
    for where, container in containers(name):
        for source in container.get("envFrom", ()):
            for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
                if key in source:
                    seen.add((kind, source[key]["name"]))
                    assert (kind, source[key]["name"]) in held, where
        for item in container.get("env", ()):
            for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
                if source := item.get("valueFrom", {}).get(key):
                    seen.add((kind, source["name"]))
                    assert source.get("optional") or source["key"] in held[kind, source["name"]], f"{where}: {item}"
    assert seen == set(held), "a secret that nobody reads, or a set of settings"
    accounts = {where for kind, where in documents if kind == "ServiceAccount"}
    templates = [template for document in documents.values() for _, template in pod_templates(document)]
    assert {template["spec"]["serviceAccountName"] for template in templates} == accounts


def _node_environment(name: str, container: Document) -> dict[str, str]:
    """The environment of a Ray node: names, and the values of what is no secret."""
    given = {}
    for source in container["envFrom"]:
        if reference := source.get("configMapRef"):
            given |= overlay(name)["ConfigMap", reference["name"]]["data"]
        else:
            given |= dict.fromkeys(_secrets()[source["secretRef"]["name"]], "")
    return given


def test_nodes_know_what_the_nodes_of_docker_compose_know() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    health = dict(line.split("=") for line in (ROOT / "deploy/health.env").read_text().split() if "=" in line)
    own = {"HEAD_ADDRESS", "NODE_CPUS"}  # of compose's start script
    given_otherwise = {
        "RAY_AUTH_TOKEN",
        "AWS_ENDPOINT_URL",
    }  # by KubeRay; by an overlay where the store is not Amazon's
    pods = [cluster("cpu")["headGroupSpec"], *cluster("gpu")["workerGroupSpecs"]]
    for pod in pods:
        given = _node_environment("cpu", pod["template"]["spec"]["containers"][0])
        for service in ("ray-head", "ray-worker"):
            assert set(services[service]["environment"]) - own - given_otherwise <= set(given)
        same = ("RAY_AUTH_MODE", "RAY_JOB_STOP_SIGNAL", "RAY_JOB_STOP_WAIT_TIME_S", "MLFLOW_TRACKING_URI", "AWS_REGION")
        assert all(given[key] == services["ray-head"]["environment"][key] for key in same)
        assert health
        assert {key: given[key] for key in health} == health


def test_mlflow_and_its_users_are_in_the_data_base_that_the_image_names() -> None:
    container = overlay("cpu")["Deployment", "mlflow"]["spec"]["template"]["spec"]["containers"][0]
    given = {item["name"]: item.get("value") for item in container["env"]}
    users = configparser.ConfigParser()
    users.read(ROOT / "docker" / "mlflow_auth.ini")
    assert given["MLFLOW_BACKEND_STORE_URI"] == users["mlflow"]["database_uri"]
    assert "@postgres:5432/" in users["mlflow"]["database_uri"], "the Service postgres leads to it"
    assert overlay("cpu")["Service", "postgres"]["spec"]["type"] == "ExternalName"
    place = PurePosixPath(given["MLFLOW_AUTH_CONFIG_PATH"])
    assert re.search(
        rf"^COPY .*docker/{place.name}.* {place.parent}/$", (ROOT / "docker/Dockerfile").read_text(), re.MULTILINE
    )
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["mlflow"]
    assert set(container["command"]) - {"--serve-artifacts"} <= set(compose["command"])
    hosts = next(word for word in compose["command"] if word.startswith("--allowed-hosts=")).partition("=")[2]
    assert set(hosts.split(",")) <= set(given["MLFLOW_SERVER_ALLOWED_HOSTS"].split(","))


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_node_has_time_to_leave(name: str) -> None:
    """Ray drains its node on SIGTERM, and gets it: `ray start` is the container's first process."""
    for group in (cluster(name)["headGroupSpec"], *cluster(name)["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        drains = float(_node_environment(name, pod["containers"][0])["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
        assert 0 < drains <= pod["terminationGracePeriodSeconds"] - 20
        assert pod["restartPolicy"] == "Never", "KubeRay makes a new pod, a new node of Ray; the autoscaler wants it so"


def test_compiled_code_has_a_folder_of_its_own() -> None:
    """A folder that Kubernetes mounts is root's and open to a group: code that lies there is not run."""
    container = cluster("cpu")["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]
    place = PurePosixPath(_node_environment("cpu", container)["MEMSWEEP_CACHE"])
    mounted = {PurePosixPath(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert place not in mounted
    assert place.parent in mounted


def test_nobody_from_elsewhere_is_let_in() -> None:
    documents = overlay("cpu")
    policies = {name: document["spec"] for (kind, name), document in documents.items() if kind == "NetworkPolicy"}
    default = policies.pop("nothing-by-default")
    assert default == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    doors: dict[str, list[tuple[Any, list[int]]]] = {}
    for policy in policies.values():
        for rule in policy.get("ingress", ()):
            assert rule["from"], "a rule without `from` lets everybody in"
            for peer in rule["from"]:
                assert "ipBlock" not in peer
                assert any(peer[key].get("matchLabels") for key in peer), "an empty selector lets everybody in"
                to = "/".join(policy["podSelector"]["matchLabels"].values())
                doors.setdefault(to, []).append((peer, [port["port"] for port in rule.get("ports", ())]))
    labels = {"operator": "kuberay-operator", "submitter": "memsweep-submitter"}
    who = [(peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"], ports) for peer, ports in doors["head"]]
    assert who == [(labels["operator"], [8265]), (labels["submitter"], [8265])]
    assert [ports for _, ports in doors["mlflow"]] == [[5000]]
    assert set(doors) == {"head", "mlflow", "yes"}
    services = {name: document["spec"] for (kind, name), document in documents.items() if kind == "Service"}
    assert {spec.get("type", "ClusterIP") for spec in services.values()} == {"ClusterIP", "ExternalName"}
    assert cluster("cpu")["headGroupSpec"]["serviceType"] == "ClusterIP"


@pytest.mark.parametrize("name", OVERLAYS)
def test_labels_that_policies_and_budgets_choose_by_are_there(name: str) -> None:
    documents = overlay(name)
    given = {"kuberay-operator"}  # not ours
    for document in documents.values():
        for _, template in pod_templates(document):
            given.add(template["metadata"]["labels"]["app.kubernetes.io/name"])
    chosen = set(
        re.findall(
            r"app\.kubernetes\.io/name: ([\w-]+)",
            yaml.safe_dump_all(
                [document for (kind, _), document in documents.items() if kind in ("NetworkPolicy", "Service")]
            ),
        )
    )
    assert chosen - given <= ({"memsweep-submitter"} if name not in JOBS else set())
