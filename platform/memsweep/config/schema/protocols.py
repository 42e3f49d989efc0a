"""Protocols: settings that belong together, laid under a study's own.

``protocol: published`` at the top of a study (or ``protocol=published`` on the command line) gives every setting that
the study leaves out the value of the named preset instead of the schema's default. What the study writes, and what the
command line overrides, wins.

- ``matched`` (the default) is the schema itself, for memory of functionals: every width trained alike, all seeds at
  once, no trial dependent on another.
- ``tokens`` is for networks on symbols, text or images, judged by loss and accuracy: no weights are moved unless the
  study names balls.
- ``published`` is how the public code of arXiv 2305.19190 trained and measured, as far as settings can say it. A width
  stops at the end of the first epoch, the second at the earliest, whose validation loss is below half of the loss that
  the width before it reached. The rates are pushed down by the whole radius, as the code did until November 2023;
  afterwards they were drawn like the rest (``perturbation.method=random``). Horizon, kernels, widths (8, 16, 32, 64)
  and parameterization (``relu``) are the study's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from memsweep.config.core.problems import not_one_of

PROTOCOL: Final = "protocol"
MATCHED: Final = "matched"
_MODEL: Final = "model"

_EPOCH: Final = 250  # steps: 128 000 sequences in batches of 512

PROTOCOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    MATCHED: {},
    "tokens": {
        "training": {
            "clip": 1.0,
            "merge_redundant": False,
            "validate_every": 100,
            "validation_size": 256,
            "select": "loss",
            "dtype": "float32",
        },
        "perturbation": {"balls": [], "test_size": 512},
    },
    "published": {
        _MODEL: {"discretization": "euler", "initialization": "published"},
        "training": {
            "seeds": 1,
            "steps": 1000 * _EPOCH,
            "batch_size": 512,
            "train_size": 512 * _EPOCH,
            "objective": "minibatch",
            "learning_rate": 0.01,
            "schedule": "plateau",
            "plateau_factor": 0.1,
            "plateau_patience": 10,
            "weight_decay": 0.0,
            "clip": 0.5,
            "amplitude_penalty": 0.0,
            "margin_penalty": 0.01,
            "merge_redundant": False,
            "validate_every": _EPOCH,
            "validation_size": 12_800,
            "select": "loss",
            "patience": 0,
            "smallest_steps": 2 * _EPOCH,
            "dtype": "float64",
        },
        "perturbation": {
            "radii": {"from": 1e-3, "to": 1.024, "count": 21},
            "norm": "entrywise",
            "balls": ["all"],
            "balance": False,
            "projected": True,
            "method": "random_push",
            "repeats": 30,
            "error": "sampled",
            "reading": "error",
            "test_size": 12_800,
        },
        "chain": {
            "along": "model.width",
            "carry": "validation_loss",
            "into": "training.stop_below",
            "factor": 0.5,
            "first": 100.0,
        },
    },
}
"""Name of a protocol -> its settings, in the sections and with the keys of a study file.

Settings of ``model`` hold for models that have the field; all other settings hold for every trial.
"""


def protocol_name(value: Any, problems: list[str]) -> str:
    """The protocol that a study names; ``matched`` for an unknown name, with the reason added to ``problems``."""
    if isinstance(value, str) and value in PROTOCOLS:
        return value
    problems.append(str(not_one_of(PROTOCOL, value, PROTOCOLS)))
    return MATCHED


def for_trials(name: Any) -> dict[str, Any]:
    """Settings of a protocol that hold for every trial, by section; none of a protocol that is not known."""
    settings = PROTOCOLS.get(name, {}) if isinstance(name, str) else {}
    return {key: value for key, value in settings.items() if key != _MODEL}


def for_models(name: str) -> Mapping[str, Any]:
    """Settings of a protocol for the models that have fields of these names."""
    return PROTOCOLS[name].get(_MODEL, {})
