"""Runs one small trial and prints what it found, with the class of processor that it ran on; for tests of equality."""

from __future__ import annotations

import json
import sys

import torch

from engine import trial
from memsweep.sweep.worker.provenance import processor
from memsweep.trial import run_trial

TRAINING = {"seeds": 2, "steps": 200, "batch_size": 64, "validation_size": 128, "validate_every": 20}


def main(activation: str, horizon: int, steps: int) -> None:
    torch.set_num_threads(1)
    config = trial(
        task={"horizon": horizon},
        model={"width": 4, "activation": activation},
        training=TRAINING | {"steps": steps},
        perturbation={"test_size": 256, "starts": 2, "ascent_steps": 6},
    )
    result = run_trial(config)
    curves = result.tables["curves"]["error"]
    told = {
        "summary": result.summary,
        "curve": list(curves),
        "processor": processor(),
        "bits": [x.hex() for x in curves],
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
