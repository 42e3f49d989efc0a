"""The files for EC2: right by Ray's own schema, closed, without keys, and of one mind with the rest.

No account is asked: what is compared here is what the files say.
"""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import memsweep
from paths import ROOT

AWS = ROOT / "deploy" / "aws"
CLUSTERS = ["cluster.yaml", "cluster-gpu.yaml"]


class _Template(yaml.SafeLoader):
    """CloudFormation's short forms: ``!Ref x`` reads as {"Ref": x}."""


_Template.add_multi_constructor(
    "!", lambda loader, name, node: {name: loader.construct_scalar(node)} if isinstance(node, yaml.ScalarNode) else None
)


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((AWS / name).read_text())


def foundation() -> dict[str, Any]:
    return yaml.load((AWS / "foundation.yaml").read_text(), Loader=_Template)


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """The file as Ray's launcher reads it before it asks Amazon anything."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    whole = prepare_config(copy.deepcopy(config))
    validate_config(whole)
    return whole


@pytest.mark.parametrize("name", CLUSTERS)
def test_ray_takes_the_file(name: str) -> None:
    whole = checked(read(name))
    assert whole["provider"]["type"] == "aws"
    assert whole["available_node_types"]["head"]["max_workers"] == 0
    assert whole["available_node_types"]["worker"]["max_workers"] == whole["max_workers"] > 0
    assert whole["idle_timeout_minutes"]


def test_ray_sees_mistakes() -> None:
    config = read("cluster.yaml")
    with pytest.raises(jsonschema.ValidationError, match="idle_timeout"):
        checked(config | {"idle_timeout": 5})
    with pytest.raises(ValueError, match="head_node_type"):
        checked(config | {"head_node_type": "hed"})
    config["available_node_types"]["worker"]["resources"]["CPU"] = "eight"
    with pytest.raises(jsonschema.ValidationError, match="eight"):
        checked(config)


@pytest.mark.parametrize("name", CLUSTERS)
def test_machines_have_roles_and_a_closed_group_and_workers_are_spot(name: str) -> None:
    kinds = read(name)["available_node_types"]
    assert set(kinds) == {"head", "worker"}
    profiles = {
        about["Properties"]["InstanceProfileName"]["Sub"].replace("${ClusterName}", read(name)["cluster_name"])
        for about in foundation()["Resources"].values()
        if about["Type"] == "AWS::IAM::InstanceProfile"
    }
    for kind, about in kinds.items():
        machine = about["node_config"]
        assert machine["IamInstanceProfile"]["Name"] == f"memsweep-{kind}"
        assert machine["IamInstanceProfile"]["Name"] in profiles
        assert machine["SecurityGroupIds"], "without one, Ray opens SSH to the world"
        assert machine["MetadataOptions"]["HttpTokens"] == "required"
        assert all(disk["Ebs"]["Encrypted"] for disk in machine["BlockDeviceMappings"])
    assert "InstanceMarketOptions" not in kinds["head"]["node_config"], "the driver is on the head: never on spot"
    assert kinds["worker"]["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert kinds["head"]["resources"]["CPU"] == 0


def test_no_key_is_in_any_file() -> None:
    for path in [path for path in AWS.rglob("*") if path.is_file()]:
        text = path.read_text()
        found = re.findall(
            r"A[KS]IA[A-Z0-9]{12,}|aws_(?:access_key_id|secret_access_key)\s*[:=]\s*\S+|PRIVATE KEY", text
        )
        assert not found, f"{path.name}: {found}"
        assert not re.search(r"(AUTH_TOKEN|PASSWORD)=(?!\$)", text), path.name


def test_the_gpu_file_is_the_other_with_a_card() -> None:
    plain, gpu = read("cluster.yaml"), read("cluster-gpu.yaml")
    for kind in ("head_image", "worker_image"):
        assert gpu["docker"].pop(kind) == plain["docker"].pop(kind).replace("-cpu", "-cuda")
    assert gpu["available_node_types"]["worker"]["resources"].pop("GPU") == 1
    types = {config["available_node_types"]["worker"]["node_config"].pop("InstanceType") for config in (plain, gpu)}
    assert types == {"m7i.2xlarge", "g6.2xlarge"}
    assert gpu == plain


@pytest.mark.parametrize("name", CLUSTERS)
def test_images_and_settings_are_those_of_the_rest(name: str) -> None:
    docker = read(name)["docker"]
    variant = "cuda" if "gpu" in name else "cpu"
    assert docker["worker_image"].endswith(f"/memsweep:{memsweep.__version__}-{variant}")
    assert docker["head_image"] == f"{docker['worker_image']}-head"

    options = docker["run_options"] + docker["head_run_options"]
    given = dict(option.removeprefix("--env=").split("=", 1) for option in options if option.startswith("--env="))
    health = dict(line.split("=") for line in (ROOT / "deploy" / "health.env").read_text().split() if "=" in line)
    assert health
    assert {key: given.get(key) for key in health} == health
    node = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["ray-head"]["environment"]
    same = [key for key in node if key.startswith("RAY_") and key != "RAY_AUTH_TOKEN"]
    assert {key: given.get(key) for key in same} == {key: str(node[key]) for key in same}
    assert not [key for key in given if re.search("TOKEN|SECRET|PASSWORD|ACCESS_KEY", key)]
    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(options)

    region = read(name)["provider"]["region"]
    assert given["AWS_REGION"] == region
    assert given["MEMSWEEP_RESULTS"] == f"s3://memsweep-000000000000-{region}/results"
    assert foundation()["Resources"]["Bucket"]["Properties"]["BucketName"] == {
        "Sub": "${ClusterName}-${AWS::AccountId}-${AWS::Region}"
    }


@pytest.mark.parametrize("name", CLUSTERS)
def test_commands_are_shell_and_the_job_api_stays_on_loopback(name: str, tmp_path: Path) -> None:
    config = read(name)
    kinds = ("initialization", "setup", "head_start_ray", "worker_start_ray")
    commands = [command for kind in kinds for command in config[f"{kind}_commands"]]
    for command in commands:
        done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    start = config["head_start_ray_commands"][-1]
    assert "--dashboard-host=127.0.0.1" in start
    assert "--num-cpus=0" in start

    path, token = config["setup_commands"]
    for _ in range(2):  # `ray up` runs them again
        subprocess.run(
            ["bash", "-c", path], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True, timeout=600
        )
    assert (tmp_path / ".bashrc").read_text().splitlines() == ["export PATH=/opt/memsweep/bin:$PATH"]
    assert "ENV PATH=/opt/memsweep/bin:$PATH" in (ROOT / "docker" / "Dockerfile").read_text()
    code = re.search(r"-c '(.*)'", token)
    assert code
    compile(code[1], "token", "exec")
    secret = foundation()["Resources"]["RayToken"]["Properties"]["Name"]["Sub"]
    assert f'SecretId="{secret.replace("${ClusterName}", config["cluster_name"])}"' in token
    assert token.startswith("umask 077")


def test_the_group_opens_ssh_to_one_place_and_nothing_else() -> None:
    template = foundation()
    groups = [about for about in template["Resources"].values() if about["Type"].startswith("AWS::EC2::SecurityGroup")]
    assert len(groups) == 2
    (outside,) = template["Resources"]["Nodes"]["Properties"]["SecurityGroupIngress"]
    assert (outside["FromPort"], outside["ToPort"], outside["CidrIp"]) == (22, 22, {"Ref": "SshFrom"})
    inside = template["Resources"]["NodesToNodes"]["Properties"]
    assert inside["SourceSecurityGroupId"] == inside["GroupId"] == {"Ref": "Nodes"}
    source = template["Parameters"]["SshFrom"]
    assert "Default" not in source, "who may come in is yours to say"
    for text, right in {
        "203.0.113.7/32": True,
        "10.1.2.0/24": True,
        "0.0.0.0/0": False,
        "0.0.0.0/32": False,
        "10.0.0.0/8": False,
        "::/0": False,
        "203.0.113.7": False,
    }.items():
        assert bool(re.fullmatch(source["AllowedPattern"], text)) == right, text


def _statements(name: str) -> dict[str, dict[str, Any]]:
    policy = foundation()["Resources"][name]["Properties"]["PolicyDocument"]
    return {statement["Sid"]: statement for statement in policy["Statement"]}


def test_roles_may_do_little() -> None:
    every = {**_statements("NodePolicy"), **_statements("HeadPolicy")}
    for statement in every.values():
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not [action for action in actions if "*" in action]
    assert [sid for sid, statement in every.items() if statement["Resource"] == "*"] == ["AskForImages", "Look"]
    assert every["KeepResults"]["Resource"] == {"Sub": "${Bucket.Arn}/results/*"}
    assert every["GiveThemTheirRole"]["Resource"] == {"GetAtt": "WorkerRole.Arn"}
    for sid in ("StartWorkersOfThisCluster", "NoteTheirStateAndEndThem"):
        (condition,) = every[sid]["Condition"]["StringEquals"].values()
        assert condition == {"Ref": "ClusterName"}
    resources = foundation()["Resources"]
    assert resources["WorkerRole"]["Properties"]["ManagedPolicyArns"] == [{"Ref": "NodePolicy"}]
    assert resources["Bucket"]["DeletionPolicy"] == "Retain"
    assert set(resources["Bucket"]["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}


def test_policies_for_kubernetes_are_the_same_as_for_machines() -> None:
    policies = {path.stem: json.loads(path.read_text()) for path in (AWS / "iam").glob("*.json")}
    assert set(policies) == {"results", "mlflow", "trust-eks"}
    own = _statements("NodePolicy")
    for statement in policies["results"]["Statement"]:
        assert statement["Action"] == own[statement["Sid"]]["Action"]
    assert policies["results"]["Statement"][1]["Resource"] == "arn:aws:s3:::CHANGE-BUCKET/results/*"
    assert policies["mlflow"]["Statement"][1]["Resource"] == "arn:aws:s3:::CHANGE-BUCKET/mlflow/*"
    subjects = policies["trust-eks"]["Statement"][0]["Condition"]["StringEquals"]
    named = next(value for key, value in subjects.items() if key.endswith(":sub"))
    accounts = yaml.safe_load_all((ROOT / "deploy" / "kuberay" / "base" / "accounts.yaml").read_text())
    assert set(named) <= {f"system:serviceaccount:memsweep:{account['metadata']['name']}" for account in accounts}
