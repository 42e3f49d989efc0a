"""The capacity read from a cluster's node types: how many nodes there may be, or that nobody knows."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest

from memsweep.config.schema.study import ResourcesConfig
from memsweep.errors import ConfigError
from memsweep.sweep.ray import capacity
from memsweep.sweep.store.retry import seconds_in

HEAD = {"resources": {"CPU": 0}, "max_workers": 0}


@pytest.mark.parametrize(
    ("kinds", "known"),
    [
        ({"cpu": {"resources": {"CPU": 8}, "labels": {"market": "spot"}}}, [("cpu", 8, 20)]),
        ({"cpu": {"resources": {"CPU": 8}, "max_workers": 3}, "big": {"resources": {"CPU": 64}, "max_workers": 1}},
         [("cpu", 8, 3), ("big", 64, 1)]),
        ({"cpu": {"resources": {"CPU": 8}}, "gpu": {"node_config": {"InstanceType": "x"}}}, []),
    ],
)  # fmt: skip
def test_the_types_of_an_autoscalers_file(kinds: dict[str, Any], known: list[tuple[str, int, int]]) -> None:
    config = {"max_workers": 20, "head_node_type": "head", "available_node_types": {"head": HEAD, **kinds}}
    types, limit = capacity._configured(config)
    assert [(kind.name, kind.resources["CPU"], kind.most) for kind in types] == known
    assert all({*kind.resources} == {"CPU"} for kind in types)  # no label, for which it would start no node
    assert limit == (20 if known else 0)


def test_the_private_names_that_tell_them() -> None:
    assert callable(importlib.import_module("ray.experimental.internal_kv")._internal_kv_get)
    assert callable(importlib.import_module("ray._private.state").state.get_cluster_config)
    named = importlib.import_module("ray.autoscaler._private.util").format_readonly_node_type("0a" * 28)
    assert capacity._MIRRORED.fullmatch(named)  # else a cluster that was joined by hand would be waited for


def test_what_is_asked_for_is_said() -> None:
    asked = {"1 CPU core": {}, "0.5 CPU cores and 0.25 GPU": {"cpus": 0.5, "gpus": 0.25}}
    asked["2 workers of 4 CPU cores and 1 GPU each"] = {"cpus": 4.0, "workers": 2, "gpus_per_worker": 1.0}
    for words, settings in asked.items():
        assert capacity.each(ResourcesConfig(**settings)) == words  # type: ignore[arg-type]


def test_several_workers_ask_for_nodes_that_nobody_knows() -> None:
    group, unknown = ResourcesConfig(workers=4), capacity.Capacity([], None, grows=True)
    assert capacity.most_packs({group: 9}, unknown, 2) == {group: 1}  # else nothing is asked for, no node ever comes
    assert capacity.most_packs({group: 9}, replace(unknown, living=[{"CPU": 16.0}]), 2) == {group: 8}


CORES, CARDS = {"CPU": 4.0}, {"CPU": 4.0, "GPU": 1.0}
SMALL, CARD = ResourcesConfig(), ResourcesConfig(gpus=0.5)


@pytest.mark.parametrize(
    ("left", "nodes", "most", "small", "card"),
    [
        ((9, 9), [CORES, CORES, CARDS, CARDS], 2, 8, 4),  # nodes with cards hold both kinds
        ((9, 0), [CORES, CORES, CARDS, CARDS], 2, 8, 0),
        ((9, 9), [CORES, CORES, {"GPU": 1.0, "CPU": 0.5}, CARDS], 1, 4, 2),
        ((9, 9), [CORES, CORES], 1, 4, 0),
        ((9, 9), [CORES] * 9, None, 36, 0),
        ((0, 9), [CORES, CORES, CARDS], 1, 4, 2),
        ((0, 0), [CORES, CORES], 1, 4, 0),  # a kind may come back: a worker dies
    ],
)
def test_kinds_of_packs_share_the_nodes_of_a_run(
    left: tuple[int, int], nodes: list[capacity.Node], most: int | None, small: int, card: int
) -> None:
    assert capacity.rooms({SMALL: left[0], CARD: left[1]}, nodes, most) == {SMALL: small, CARD: card}


def test_a_driver_that_has_no_packs_has_no_rooms() -> None:
    assert capacity.rooms({}, [CORES, CORES], 1) == {}  # drivers that share the study have taken all
    assert capacity.most_packs({}, capacity.Capacity([CORES], None, grows=True), 1) == {}


def test_each_kind_gets_nodes_by_what_it_has_left() -> None:
    left, right = ResourcesConfig(labels=("side=left",)), ResourcesConfig(labels=("side=right",))
    nodes: list[capacity.Node] = [{"CPU": 2.0, label: 1.0} for label in ("side=left", "side=right") for _ in range(9)]
    for packs, most, found in (((30, 10), 4, (6, 2)), ((10, 30), 4, (2, 6)), ((5, 5), 1, (2, 0)), ((0, 5), 1, (0, 2))):
        kinds = dict(zip((left, right), packs, strict=True))
        assert (*capacity.rooms(kinds, nodes, most).values(),) == found
        unknown = capacity.Capacity([nodes[0], nodes[-1]], None, grows=True)
        assert (*capacity.most_packs(kinds, unknown, most).values(),) == found


def test_seconds_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds_in(capacity.VARIABLE, capacity.NODE_WAIT) == 1200
    monkeypatch.setenv(capacity.VARIABLE, "soon")
    with pytest.raises(ConfigError, match=r"MEMSWEEP_NODE_WAIT must be .* \(1200 where it is not set\), got 'soon'"):
        seconds_in(capacity.VARIABLE, capacity.NODE_WAIT)
