"""How many packs run at once, and which requests are refused because they would wait for ever."""

from __future__ import annotations

import pytest

from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import ConfigError
from memsweep.sweep.planning.resources import local_cpus, slots, threads

CARD = {"CPU": 8.0, "GPU": 1.0}


@pytest.mark.parametrize(
    ("asked", "nodes", "expected"),
    [
        ({}, [{"CPU": 2.0}], 2),
        ({"cpus": 0.1}, [{"CPU": 1.0}], 10),
        ({"cpus": 2}, [{"CPU": 3.0}, {"CPU": 3.0}], 2),  # a pack does not span nodes
        ({"max_concurrent": 3}, [{"CPU": 64.0}], 3),
        ({"max_concurrent": 100}, [{"CPU": 4.0}], 4),
        ({"gpus": 0.25}, [{"CPU": 16.0, "GPU": 1.0}], 4),
        ({"gpus": 0.3}, [{"CPU": 16.0, "GPU": 2.0}], 6),  # shares do not span cards
        ({"gpus": 1}, [{"CPU": 16.0, "GPU": 5.0}], 5),
        ({"workers": 4}, [{"CPU": 3.0}, {"CPU": 6.0}], 2),  # its workers may span nodes
        ({"workers": 2, "cpus": 2}, [{"CPU": 3.0}, {"CPU": 3.0}], 1),  # each of them may not
        ({"workers": 2, "gpus_per_worker": 0.5}, [{"CPU": 16.0, "GPU": 1.0}, {"CPU": 16.0, "GPU": 1.0}], 2),
        ({"cpus": 8, "gpus": 0.25}, [{"CPU": 16.0, "GPU": 1.0}, {"CPU": 64.0}], 2),
        ({"node_memory": 3}, [{"CPU": 16.0, "memory": 8.0 * 2**30}], 2),  # its memory is full before its cores are
        ({"node_memory": 3}, [{"CPU": 16.0}], 16),  # a node that does not tell
        ({"gpus": 1, "accelerator": "H100"}, [{**CARD, "accelerator_type:H100": 1.0}, CARD], 1),
        ({"labels": ("zone=a",)}, [{"CPU": 2.0, "zone=a": 1.0}, {"CPU": 4.0}], 2),
    ],
)
def test_slots(asked: dict[str, float], nodes: list[dict[str, float]], expected: int) -> None:
    assert slots(ResourcesConfig(**asked), nodes) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "nodes", "words"),
    [
        ({"cpus": 64}, [{"CPU": 2.0}, {"CPU": 8.0}], ["resources.cpus is 64", "largest node has 8", "--address"]),
        ({"gpus": 0.5}, [{"CPU": 2.0}], ["resources.gpus is 0.5", "no node has a GPU", "to 0"]),
        ({"workers": 2, "gpus_per_worker": 1}, [{"CPU": 2.0}], ["resources.gpus_per_worker is 1", "no node has a GPU"]),
        ({"workers": 3}, [{"CPU": 2.0}], ["resources.workers is 3", "hold 2", "at most 2"]),
        ({"cpus": 8, "gpus": 1}, [{"CPU": 16.0}, {"CPU": 2.0, "GPU": 1.0}], ["no single node", "8", "a GPU"]),
        ({}, [], ["largest node has 0"]),
        (
            {"node_memory": 9},
            [{"CPU": 16.0, "memory": 8.0 * 2**30}],
            ["node_memory is 9 GiB", "largest node for it has 8.0"],
        ),
        ({"gpus": 1, "accelerator": "H100"}, [{**CARD, "accelerator_type:A100": 1.0}], ["is H100", "nodes have A100"]),
        (
            {"node_memory": 9, "labels": ("zone=a",)},  # the memory of a node without the label helps nothing
            [{"CPU": 4.0, "memory": 4.0 * 2**30, "zone=a": 1.0}, {"CPU": 4.0, "memory": 64.0 * 2**30}],
            ["node_memory is 9 GiB", "largest node for it has 4.0"],
        ),
        ({"cpus": 4, "labels": ("zone=a",)}, [{"CPU": 2.0, "zone=a": 1.0}, {"CPU": 8.0}], ["4 CPU cores and zone=a,"]),
        ({"labels": ("zone=a",)}, [{"CPU": 2.0, "zone=b": 1.0}], ["has zone=a", "no node has this label"]),
    ],
)
def test_what_no_node_can_hold_is_refused(
    asked: dict[str, float], nodes: list[dict[str, float]], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        slots(ResourcesConfig(**asked), nodes)  # type: ignore[arg-type]
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize("asked", [{"cpus": 64}, {"gpus": 1}, {"workers": 3}])
def test_a_job_is_advised_no_other_cluster(asked: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its own."""
    for job, advised in ((False, True), (True, False)):
        if job:
            monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
        with pytest.raises(ConfigError) as refused:
            slots(ResourcesConfig(**asked), [{"CPU": 2.0}])  # type: ignore[arg-type]
        assert ("--address" in str(refused.value)) == advised


def test_a_gpu_is_spoken_of_where_one_was_asked_for() -> None:
    nodes = [{"CPU": 2.0, "zone=a": 1.0}, {"CPU": 8.0}]
    with pytest.raises(ConfigError) as refused:
        slots(ResourcesConfig(cpus=4, labels=("zone=a",)), nodes)
    assert "GPU" not in str(refused.value)


def test_both_lacks_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        slots(ResourcesConfig(cpus=64, gpus=1), [{"CPU": 2.0}])
    assert len(refused.value.problems) == 2


def test_one_thread_per_whole_core() -> None:
    assert [threads(ResourcesConfig(cpus=cpus)) for cpus in (0.25, 1, 1.9, 4)] == [1, 1, 1, 4]
    assert local_cpus() >= 1
