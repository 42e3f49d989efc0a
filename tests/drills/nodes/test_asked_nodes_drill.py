"""Studies on clusters whose nodes come when they are asked for; what can never come is refused."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import requests
import yaml
from ray_head import RayHead, ray_head

from drill_study import STUDY, Drill, Outcome, study_text
from paths import ROOT
from processes import wait_for
from sweeping import end, environment, memsweep, start

pytestmark = pytest.mark.drill

HORIZONS = [*range(1_000_000, 1_800_000, 100_000)]


def config(folder: Path, nodes: str, address: str, most: int, **more: dict[str, object]) -> Path:
    """Writes the configuration of Ray's autoscaler: up to two nodes of one core, and more types of nodes."""
    provider = {"type": "external", "module": "asked_nodes.AskedNodes", "address": address}
    provider |= {"disable_node_updaters": True, "disable_launch_config_check": True, "use_internal_ips": True}
    provider["folder"] = nodes
    empty: dict[str, object] = {
        **{f"{who}setup_commands": [] for who in ("", "head_", "worker_")},
        **{f"{who}_start_ray_commands": [] for who in ("head", "worker")},
        **{name: [] for name in ("initialization_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter")},
        **{"auth": {}, "file_mounts": {}, "file_mounts_sync_continuously": False},
    }
    types = {
        "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2},
    }
    types |= more
    text = {"cluster_name": "drill", "max_workers": most, "idle_timeout_minutes": 1, "upscaling_speed": 10}
    text |= {"provider": provider, "head_node_type": "head", "available_node_types": types, **empty}
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(text))
    return file


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    return Drill.make(tmp_path_factory.mktemp("asked") / "drill", study_text(HORIZONS))


@contextlib.contextmanager
def asked(drill: Drill, most: int = 2, instance: str = "head", **more: dict[str, object]) -> Iterator[RayHead]:
    """A head without cores, and nodes for whoever asks, at most so many of all types."""
    named = {
        "RAY_NODE_TYPE_NAME": "head",
        "RAY_CLOUD_INSTANCE_ID": instance,
        "MEMSWEEP_TEST_DRILL": str(drill.folder),
    }
    path = {"PYTHONPATH": f"{Path(__file__).parent}:{ROOT / 'platform'}"}
    # short, because sockets lie below it
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp", ignore_cleanup_errors=True) as nodes:
        write = partial(config, drill.folder, nodes, most=most, **more)
        with ray_head(cpus=0, env=named | path, autoscaling=write) as running:
            yield running


@pytest.fixture(scope="module")
def head(drill: Drill) -> Iterator[RayHead]:
    with asked(drill) as running:
        yield running


def swept(head: RayHead, drill: Drill, *words: str, **more: str) -> tuple[int, str]:
    """``memsweep sweep`` on the cluster: exit code and all that it said."""
    place = ["--address", head.cluster, "--results", str(drill.results)]
    ended = memsweep("sweep", STUDY, *place, *words, cwd=drill.folder, env=environment(**more))
    return ended.returncode, ended.stdout + ended.stderr


def test_a_study_goes_from_no_node_to_its_verdicts(head: RayHead, drill: Drill, tmp_path: Path) -> None:
    code, said = swept(head, drill, "resources.cpus=2", 'name="too large"')
    assert code == 2, said
    assert "the largest node has 1 CPU cores" in said
    drill.slow()
    place = ["--address", head.cluster, "--results", drill.results]
    words = ["--nodes", "auto", "--node", "cpus=1,price=0.5"]
    process = start("sweep", STUDY, *words, *place, cwd=drill.folder, env=environment())
    try:
        # one worker on each of the two nodes, though the first was enough to begin
        wait_for(lambda: len({asked.pid for asked in drill.asked()}) == 2, process.poll, seconds=300)
        drill.quick()
        out, said = process.communicate(timeout=300)
    finally:
        end(process)
    assert process.returncode == 0, out + said
    assert (
        "waiting for nodes: the cluster has no room for a pack yet. Asked for: 2 times 1 CPU core. Waited 0 s" in said
    )
    assert "nodes came after " in said
    assert re.search(
        r"asks the cluster for 2 nodes.*\. By the cost model: [\d mins]+, \d\.\d+ at 0.5 an hour, \d+% of it", said
    )

    here = Drill.make(tmp_path / "here", study_text(HORIZONS))
    ended = here.command("sweep", STUDY, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert Outcome.of(drill).equals(Outcome.of(here))


def test_results_would_be_lost_in_a_folder_of_each_node(head: RayHead, drill: Drill) -> None:
    ended = memsweep("sweep", STUDY, "--address", head.cluster, cwd=drill.folder, env=environment())
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "another folder on each node that the cluster has or can have" in ended.stderr


def test_a_head_to_which_nobody_starts_a_worker(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS))  # nothing of the studies above is found here
    with ray_head(cpus=0) as alone:
        code, said = swept(alone, drill, MEMSWEEP_NODE_WAIT="3")
    assert code == 4, said
    assert "waiting for nodes: " in said
    assert "no node with room for a pack (1 CPU core) came within 3 s. Nothing has been started." in said
    assert not (drill.results / STUDY / "records").exists()


@pytest.mark.long
def test_a_job_whose_nodes_come_one_by_one(head: RayHead, drill: Drill, tmp_path: Path) -> None:
    """Each node unpacks the job's files in a folder of its own, as on a machine of its own.

    Raylets of one folder unpack them over one another: Ray then takes away the folder in which the driver runs.
    """
    other = Drill.make(tmp_path / "job", study_text(HORIZONS, "model.width: [4]"))
    place = ["--address", head.address, "--results", str(other.results)]
    ended = memsweep("submit", STUDY, *place, cwd=other.folder, env=environment())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(HORIZONS)}/{len(HORIZONS)} done" in ended.stdout


def workers(head: RayHead) -> int:
    """Nodes that live, without the head; -1 where a busy head did not answer."""
    try:
        nodes = json.loads(head.get("/api/v0/nodes"))["data"]["result"]["result"]
    except requests.RequestException:
        return -1
    return sum(node["state"] == "ALIVE" and not node["is_head_node"] for node in nodes)


@pytest.mark.long
def test_an_idle_node_leaves_while_the_last_pack_runs(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text([1_000_000, 1_100_000, 1_200_000], "model.width: [2]"))
    drill.slow()
    words = ["training.steps=900", "training.checkpoint_every=100"]
    with asked(drill) as head:
        place = ["--address", head.cluster, "--results", drill.results]
        process = start("sweep", STUDY, *words, *place, cwd=drill.folder, env=environment())
        try:
            wait_for(lambda: workers(head) == 2, process.poll)
            wait_for(lambda: len(drill.store.identities()) == 2, process.poll, seconds=900)
            wait_for(lambda: workers(head) == 1, process.poll)  # Ray lets a node go after a minute without work
            drill.quick()
            out, said = process.communicate(timeout=300)
        finally:
            end(process)
        assert process.returncode == 0, out + said
        assert "the nodes have room for 1 pack at once now (2 before)" in said
    here = Drill.make(tmp_path / "here", study_text([1_000_000, 1_100_000, 1_200_000], "model.width: [2]"))
    ended = here.command("sweep", STUDY, *words, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert Outcome.of(drill).equals(Outcome.of(here))


@pytest.mark.long
def test_a_type_of_node_that_never_comes_is_told(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS))
    with asked(drill, never={"resources": {"CPU": 4}, "node_config": {}, "min_workers": 0, "max_workers": 1}) as head:
        code, said = swept(head, drill, "resources.cpus=4", MEMSWEEP_NODE_WAIT="30")
    assert code == 4, said
    assert "Asked for: 1 times 4 CPU cores. Waited 0 s of at most 30 s" in said
    assert "no node with room for a pack (4 CPU cores) came within 3" in said
    assert not (drill.results / STUDY / "records").exists()
