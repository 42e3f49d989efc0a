"""The nodes that ``--nodes`` asks for: as many as packs can use, the cluster can have and the user allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.config.schema.study import ResourcesConfig
from memsweep.sweep.driver.node_request import choose
from memsweep.sweep.estimate.nodes import NodeOffer
from memsweep.sweep.ray.capacity import Capacity, Node

SMALL, CARD, LIMITED = ResourcesConfig(), ResourcesConfig(gpus=0.5), ResourcesConfig(max_concurrent=2)
CORES: Node = {"CPU": 4.0}
CARDS: Node = {"CPU": 4.0, "GPU": 1.0}


def asks(packs: dict[ResourcesConfig, int], found: Capacity, asked: int | None = None, *limits: int) -> str:
    """The sentence before its hours."""
    lengths = [(kind, [60.0] * count, 1.0) for kind, count in packs.items()]
    said = choose(lengths, found, [*limits, *([asked] if asked else [])]).sentence(asked, 0.0)
    return said.partition(". By the cost model")[0]


def growing(most: list[Node] | None, living: int = 0) -> Capacity:
    return Capacity([CORES] * living, most, grows=True)


@pytest.mark.parametrize(
    ("packs", "found", "asked", "limits", "said"),
    [
        ({SMALL: 10}, growing([{}, *[CORES] * 8]), None, [], "3 nodes: as many as 10 packs can use"),
        ({SMALL: 40}, growing([{}, *[CORES] * 8]), None, [], "8 nodes: all that it can have"),
        ({SMALL: 40}, growing([CORES] * 8, living=2), None, [5],
         "5 nodes (2 of them there): all that --max-nodes allows"),
        ({SMALL: 40}, growing([CORES] * 8, living=2), 3, [], "3 nodes (2 of them there)"),
        ({SMALL: 10}, growing([CORES] * 8), 6, [], "3 nodes, not the 6 of --nodes: as many as 10 packs can use"),
        ({SMALL: 90}, growing([CORES] * 8), 9, [], "8 nodes, not the 9 of --nodes: all that it can have"),
        ({SMALL: 4, CARD: 4}, growing([CORES, CARDS, CARDS]), None, [], "3 nodes: as many as 8 packs can use"),
        ({SMALL: 10}, growing(None, living=1), None, [], "3 nodes (1 of them there): as many as 10 packs can use"),
        ({SMALL: 1}, growing(None), None, [],
         "1 node, each taken to hold one pack (--node says what one has): as many as 1 pack can use"),
        ({SMALL: 160}, replace(growing(None), offered={"CPU": 16.0}), None, [],
         "10 nodes: as many as 160 packs can use"),
        ({LIMITED: 10}, growing([CORES] * 8), 4, [], "1 node, not the 4 of --nodes: as many as 10 packs can use"),
        ({SMALL: 4, CARD: 10}, growing([*[CORES] * 8, *[CARDS] * 2]), None, [], "3 nodes: as many as 14 packs can use"),
    ],
)  # fmt: skip
def test_how_many_nodes_are_asked_for_and_why(
    packs: dict[ResourcesConfig, int], found: Capacity, asked: int | None, limits: list[int], said: str
) -> None:
    assert asks(packs, found, asked, *limits) == f"asks the cluster for {said}"


def test_the_hours_and_the_cost_are_those_of_so_many_nodes() -> None:
    chosen = choose([(SMALL, [1800.0] * 10, 1.0)], growing([CORES] * 2), [], price=0.5)
    # 8 packs at once, then two: an hour of two nodes, in which 10 of 16 places are used
    end = "By the cost model: 1 h 0 min, {} 38% of it idle. The request ends with the study"
    assert chosen.sentence(None, 0.5).endswith(end.format("1.00 at 0.5 an hour,"))
    assert chosen.sentence(None, 0.0).endswith(end.format("2 hours of nodes,"))
    alone = choose([(SMALL, [1800.0] * 10, 1.0)], Capacity([CORES], [CORES], grows=False), [])
    words = "nobody starts nodes here: uses 1 node (1 of them there): all that it can have. By the cost model: "
    assert alone.sentence(None, 0.0) == f"{words}1 h 30 min, 1.5 hours of nodes, 17% of it idle"


def test_without_a_cluster_nodes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--results", str(tmp_path / "results"), "--workspace", str(tmp_path)]
    assert main(["sweep", "quickstart", "--inline", "--nodes", "2", *place]) == 2
    assert "--nodes asks a cluster for nodes, and this run joins none" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_an_offer_is_written_as_it_is_read() -> None:
    offer = NodeOffer(16, 0.5, 1e-7)
    assert NodeOffer.of(str(offer)) == offer
