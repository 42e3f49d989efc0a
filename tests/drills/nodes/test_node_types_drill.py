"""A study gets the type of node that has its accelerator or its labels; one that asks for what no type has is refused.

Ray's autoscaler of version 1 looks at no labels: what asks for them is refused there, unless a node with them lives.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ray_head import RayHead
from test_asked_nodes_drill import asked, swept

from drill_study import Drill, Outcome, study_text

pytestmark = [pytest.mark.drill, pytest.mark.long]

HORIZONS = [1_000_000, 1_100_000]
LIMITS = {"node_config": {}, "min_workers": 0, "max_workers": 1}
CARD = {"resources": {"CPU": 1, "GPU": 1, "accelerator_type:H100": 1}, **LIMITS}
SPOT = {"resources": {"CPU": 1}, "labels": {"market": "spot"}, **LIMITS}


def came(head: RayHead) -> list[str]:
    """The types of the nodes that have come so far, in order of their names."""
    nodes = json.loads(head.get("/api/v0/nodes?detail=true"))["data"]["result"]["result"]
    return sorted(str(node["labels"]["ray.io/node-group"]) for node in nodes if not node["is_head_node"])


def test_the_type_with_the_accelerator_comes_and_no_other(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS, "model.width: [2]"))
    with asked(drill, most=4, card=CARD, spot=SPOT) as head:
        code, said = swept(head, drill, "resources.gpus=1", "resources.accelerator=A100")
        assert code == 2, said
        assert "resources.accelerator is A100, but the nodes have H100" in said
        code, said = swept(head, drill, 'resources.labels=["market=spot"]')
        assert code == 2, said
        assert "resources.labels has market=spot, but no node has this label" in said
        assert came(head) == []
        code, said = swept(head, drill, "resources.gpus=1", "resources.accelerator=H100", "--max-failures", "1")
        assert "Asked for: 1 times 1 CPU core and 1 H100. Waited 0 s" in said, (code, said)
        assert "nodes came after " in said
        assert came(head) == ["card"]  # what runs there needs a real card


def test_the_type_with_the_label_comes_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_enable_autoscaler_v2", "1")  # it ends a head that its provider calls by another name
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS, "model.width: [2]"))
    with asked(drill, most=4, instance="127.0.0.1", card=CARD, spot=SPOT) as head:
        code, said = swept(head, drill, 'resources.labels=["market=spot"]')
        assert code == 0, said
        assert came(head) == ["spot"]
    here = Drill.make(tmp_path / "here", study_text(HORIZONS, "model.width: [2]"))
    ended = here.command("sweep", "drill", "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert Outcome.of(drill).equals(Outcome.of(here))
