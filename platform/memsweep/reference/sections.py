"""The sections of a study file, and the words in them that messages name: what each means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memsweep.config.claims.comparisons import EXAMPLE
from memsweep.config.core.reflect import keys, nested_config
from memsweep.config.schema.axes import ROWS
from memsweep.config.schema.protocols import PROTOCOL
from memsweep.config.schema.search import ConfirmConfig, SearchConfig
from memsweep.config.schema.study import DecideConfig, ResourcesConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.domains import FORM, WHEN
from memsweep.config.search.sections import CONFIRM, SEARCH

_PART = "Its name, or {{name: ..., and its fields}}: memsweep list {kind}s names them all, memsweep describe NAME one."

MEANINGS: Final[Mapping[str, str]] = {
    "name": "The name of the study, in quotes where it looks like a number; results go to a folder of that name. Left "
    "out: the name of the file.",
    PROTOCOL: "The preset under the study's own settings: matched (the defaults that memsweep describe prints), "
    "tokens (for networks on symbols, text or images) or published (how the public code of "
    "arXiv 2305.19190 trained and measured).",
    "task": f"The task that is learned. {_PART.format(kind='task')}",
    "model": f"The model that learns it. {_PART.format(kind='model')}",
    "grid": "What is varied: dotted paths of a trial's fields, each with the list of its values, as in model.width: "
    "[2, 4, 8]. Every combination is a trial. A value may be a group of fields: task: [{kernel: shift}, ...]. "
    f"The axis {ROWS} is a list of whole rows.",
    ROWS: "The axis of the grid whose values are whole rows, where settings of several sections belong together: "
    f"{ROWS}: [{{model: exp_rnn, training: {{learning_rate: 1e-3}}}}, ...]. All other axes apply to every row.",
    "keep": "What of a trained trial is kept beside its tables: weights, or none.",
    "claims": "Claims that the report sets beside the results: a list of comparisons of cells, such as "
    f"{EXAMPLE}; or a published table, {{source: where it was published, rows: [{{name: label, where: {{model: "
    "diagonal_rnn, parameterization: direct}, exponential: stable}]}; or both, with the comparisons under compare.",
    SEARCH: "How settings are searched. Keys that begin with a section of a trial are searched fields, each with a "
    f"domain: {FORM}; a domain may have a condition, {WHEN}: {{path: value or [values]}}. All other keys:",
    WHEN: "A condition of a searched field: it is searched only where each of these paths has one of these values, as "
    f"in training.beta1: {{uniform: [0.8, 0.99], {WHEN}: {{training.optimizer: adamw}}}}. A path may be another "
    "searched field, an axis of the grid or a setting of the study.",
}
"""Section or word -> what it is; sections that are one dataclass say it themselves."""


def classes() -> dict[str, type]:
    """The sections that are one dataclass."""
    of_trial = {key: nested_config(TrialConfig, field) for key, field in keys(TrialConfig).items()}
    of_study = {"resources": ResourcesConfig, SEARCH: SearchConfig, CONFIRM: ConfirmConfig, "decide": DecideConfig}
    return {key: config for key, config in of_trial.items() if config is not None} | of_study
