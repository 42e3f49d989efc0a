"""Two readings of the same trained models: no headline ranks a model against itself."""

from __future__ import annotations

from pathlib import Path

import memsweep as ms

STUDY = """
protocol: tokens
task: {name: parity}
model: {name: residual_stack, width: 4, features: 4, layers: 1, unit: {name: lstm}}
training: {seeds: 4, steps: 2, batch_size: 4, learning_rate: 0.01}
perturbation: {balls: [recurrent], test_size: 8, starts: 1, ascent_steps: 1, stronger_every: 0}
grid:
  task: [{name: parity, horizon: 4}, {name: flip_flop, horizon: 4}]
  perturbation.reference: [metric, self]
"""


def test_measurements_of_one_model_are_not_ranked_against_each_other(tmp_path: Path) -> None:
    file = tmp_path / "readings.yaml"
    file.write_text(STUDY)
    results = ms.sweep(str(file), results=tmp_path / "results", inline=True)
    losses, said = results.losses, " ".join(results.answers)
    assert len(results.trials) == 4
    assert losses["task"].tolist() == ["parity", "flip_flop"]
    assert losses["perturbation.reference"].isna().all()
    assert said.startswith("Medians over 4 seeds: accuracy at T ")
    assert "reference" not in said
    assert "best" not in said
