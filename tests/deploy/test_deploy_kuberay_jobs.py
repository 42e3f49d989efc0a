"""RayJobs, GPU workers, and the site that the README describes, put together from the same parts."""

from __future__ import annotations

import copy
import os
import re
import shlex
import textwrap
from pathlib import Path

import pytest
import yaml
from kube_manifests import JOBS, KUBERAY, built, cluster, overlay
from kube_schemas import problems

from paths import ROOT


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_the_standing_cluster_to_itself(name: str) -> None:
    assert cluster(name) == cluster(name.removesuffix("-job"))
    spec = overlay(name)["RayJob", "memsweep-study"]["spec"]
    assert spec["shutdownAfterJobFinishes"]
    assert spec["backoffLimit"] > 0
    budget = overlay(name)["PodDisruptionBudget", "ray-head"]["spec"]
    assert budget["maxUnavailable"] == 0


@pytest.mark.parametrize("name", JOBS)
def test_a_job_runs_a_study_that_is_right(name: str) -> None:
    from memsweep.config.load.study import load_study

    entrypoint = shlex.split(overlay(name)["RayJob", "memsweep-study"]["spec"]["entrypoint"])
    assert entrypoint[:2] == ["memsweep", "sweep"]
    *overrides, option, workspace = entrypoint[3:]
    study = load_study(entrypoint[2], overrides, ROOT)
    assert study.resources.gpus == (0.25 if name == "gpu-job" else 0)
    image = (ROOT / "docker" / "Dockerfile").read_text()
    assert option == "--workspace"
    assert f"WORKDIR {workspace}\n" in image


def test_gpu_workers_are_the_cpu_workers_with_a_card() -> None:
    assert [group["groupName"] for group in cluster("cpu")["workerGroupSpecs"]] == ["cpu"]
    plain, gpu = copy.deepcopy(cluster("gpu")["workerGroupSpecs"])
    assert (plain["groupName"], gpu["groupName"]) == ("cpu", "gpu")
    pod = gpu["template"]["spec"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert pod.pop("nodeSelector")
    resources = pod["containers"][0].pop("resources")
    cards = resources["limits"]["nvidia.com/gpu"]
    assert cards == resources["requests"]["nvidia.com/gpu"] == gpu["rayStartParams"].pop("num-gpus")
    share = float(
        re.search(r"resources\.gpus=(\S+)", overlay("gpu-job")["RayJob", "memsweep-study"]["spec"]["entrypoint"])[1]
    )
    assert int(resources["limits"]["cpu"]) >= int(cards) / share, "a trial takes a CPU beside its share of the card"
    pod["tolerations"] = plain["template"]["spec"]["tolerations"]
    del plain["template"]["spec"]["containers"][0]["resources"]
    assert gpu["template"] == plain["template"]
    assert gpu["rayStartParams"] == plain["rayStartParams"]


@pytest.mark.parametrize("which", ["cpu", "cpu-job"])
def test_the_site_of_the_readme_is_right(which: str, tmp_path: Path) -> None:
    text = (KUBERAY / "README.md").read_text()
    site, study = re.findall(r"^ *```yaml\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    checkout = os.path.relpath(ROOT, tmp_path)
    written = yaml.safe_load(textwrap.dedent(site).replace("../memsweep/", f"{checkout}/"))
    if which == "cpu-job":
        written["resources"] = [resource.replace("/cpu", "/cpu-job") for resource in written["resources"]]
        written["patches"] = written["patches"][:-1] + yaml.safe_load(study)["patches"]
    else:
        written["components"] = [f"{checkout}/deploy/kuberay/components/aws-roles"]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(written))
    documents = {(document["kind"], document["metadata"]["name"]): document for document in built(tmp_path)}
    assert not [wrong for document in documents.values() for wrong in problems(document)]
    settings = documents["ConfigMap", "memsweep-settings"]["data"]
    assert settings["MEMSWEEP_RESULTS"] == "s3://my-bucket/results"
    assert settings["RAY_AUTH_MODE"] == "token"
    dumped = yaml.safe_dump_all(documents.values())
    assert "change-me" not in dumped, "a place that the README forgot to mention"
    assert set(re.findall(r"image: (\S+?):", dumped)) == {"registry.my-company.example/memsweep"}
    if which == "cpu":
        assert documents["RayCluster", "memsweep"]["spec"]["workerGroupSpecs"][0]["maxReplicas"] == 50
        assert all(
            document["metadata"]["annotations"] for (kind, _), document in documents.items() if kind == "ServiceAccount"
        )
    else:
        assert "curse_of_memory" in documents["RayJob", "memsweep-study"]["spec"]["entrypoint"]
