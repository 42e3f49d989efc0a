"""The study of the drills is cut as they expect, whatever the constants of the cost model are."""

from __future__ import annotations

import json
from pathlib import Path

from drill_study import STUDY, Drill, study_text


def test_every_horizon_of_the_drills_is_a_pack_of_its_own(tmp_path: Path) -> None:
    """Drills wait for two packs at once, and kill the workers of both: in one pack they would wait in vain."""
    drill = Drill.make(tmp_path / "drill", study_text([1_000_000, 1_100_000], "model.width: [2]"))
    told = drill.command("plan", STUDY, "--no-probe", "--json")
    assert len(json.loads(told.stdout)["packs"]) == 2
