"""Refusals and acceptances of the sections ``search`` and ``confirm``: everything at once, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from config_study import BASE, load_plain, only
from memsweep import registry
from memsweep.config.schema.search import Domain
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.trials import extreme_trials
from memsweep.errors import ConfigError
from paths import ROOT


def refusals(text: str) -> list[str]:
    """The problems of a study; read without Hydra, which takes most of the time of ``load``."""
    from omegaconf import OmegaConf

    data: Any = OmegaConf.to_container(OmegaConf.create(text))
    try:
        load_plain(data)
    except ConfigError as error:
        return list(error.problems)
    return []


REFUSED = [
    # the form
    ("search: 3", "must be a mapping of searched fields"),
    ("search: {trials: 3}", "searches nothing"),
    ("search: {training.clip: 3}", "must be one of {uniform: [low, high]}"),
    ("search: {training.clip: {choose: [1, 2]}}", "(did you mean 'choice'?)"),
    ("search: {training.clip: {uniform: [1, 2], int: [1, 2]}}", "got uniform and int"),
    ("search: {training.clip: {when: {model.width: 4}}}", "got when alone"),
    ("search: {training.clip: {uniform: [1, 2], wen: {model.width: 4}}}", "Did you mean 'when'"),
    ("search: {training.clip: {uniform: [1, 2]}, training: {clip: {uniform: [1, 2]}}}", "is written twice"),
    ("search: {training.clip: {uniform: [1]}}", "two finite numbers"),
    ("search: {training.clip: {uniform: [1, .inf]}}", "two finite numbers"),
    ("search: {training.clip: {uniform: [true, 2]}}", "two finite numbers"),
    ("search: {training.clip: {uniform: [2, 1]}}", "low end below its high end"),
    ("search: {training.clip: {uniform: [-1.7e308, 1.7e308]}}", "wider than the largest number"),
    ("search: {training.clip: {log_uniform: [0, 1]}}", "must begin above 0"),
    ("search: {model.width: {log_int: [0, 8]}}", "must begin above 0, because logarithms do. Or take int"),
    ("search: {model.width: {int: [1, 2.5]}}", "two whole numbers"),
    ("search: {model.width: {choice: 4}}", "must be a list of the values"),
    ("search: {model.width: {choice: []}}", "is empty"),
    ("search: {model.width: {choice: [4, 8, 4]}}", "names a value twice: 4"),
    # the fields
    ("search: {training.lerning_rate: {uniform: [0.1, 1]}}", "Did you mean 'learning_rate'?"),
    ("search: {model.gamma: {choice: [a, b]}}", "the model diagonal_rnn has no field 'gamma'"),
    (
        "search: {learning_rate: {uniform: [0.1, 1]}, training.clip: {uniform: [1, 2]}}",
        "search has no field 'learning_rate'",
    ),
    (
        "search: {model.width: {uniform: [2, 4]}}",
        "model.width: must be a whole number, got 2.0 (write 2), 4.0 (write 4)",
    ),
    ("search: {model.activation: {int: [2, 4]}}", "model.activation: must be text, got 2 (write it in quotes"),
    ("search: {model.parameterization: {int: [2, 4]}}", "must be the name of a parameterization"),
    ("search: {training.clip: {uniform: [-1, 1]}}", "training.clip: must be at least 0.0, got -1.0"),
    ("search: {training.learning_rate: {uniform: [1, 1e5]}}", "must be at most 10_000"),
    ("search: {model.activation: {choice: [tanh, tan]}}", 'got "tan" (did you mean'),
    ("search: {training.seeds: {int: [1, 4]}}", "counts the seeds"),
    ("search: {training.data_seed: {int: [1, 4]}}", "would find the luckiest"),
    ("search: {training.until: {int: [50, 100]}}", "is set by the scheduler"),
    ("search: {training: {choice: [{first_seed: 3}, {clip: 1}]}}", "training.first_seed chooses the seeds"),
    ("search: {training.checkpoint_every: {int: [50, 100]}}", "cannot change a trial's numbers"),
    ("search: {chain.factor: {uniform: [1, 2]}}", "cannot be searched"),
    ("grid: {model.width: [4, 8]}\nsearch: {model.width: {int: [2, 4]}}", "is set by the axis model.width"),
    ("grid: {model: [{width: 4}, {width: 8}]}\nsearch: {model.width: {int: [2, 4]}}", "is set by the axis model "),
    ("grid: {model: [ssm, dense_rnn]}\nsearch: {model.name: {choice: [ssm, dense_rnn]}}", "is set by the axis model "),
    ("grid: {task.rate: [0.1, 0.2]}\nsearch: {task.kernel: {choice: [polynomial]}}", "Take the axis out of the grid"),
    (
        "training: {amplitude_penalty: 0.01}\nsearch: {model.activation: {choice: [linear, tanh]}}",
        "Search it, too: training.amplitude_penalty: {choice: [0.01]}",
    ),
    ("training: {until: 50}\nsearch: {training.clip: {uniform: [1, 2]}}", "are the scheduler's to set"),
    # conditions
    ("search: {training.clip: {uniform: [1, 2], when: 3}}", "must say where the field is searched"),
    ("search: {training.clip: {uniform: [1, 2], when: {model.width: []}}}", "an empty list"),
    ("search: {training.clip: {uniform: [1, 2], when: {model.widht: 4}}}", "Did you mean 'model.width'?"),
    ("search: {training.clip: {uniform: [1, 2], when: {model.width: 5}}}", "is never 5 in this study: it is 4"),
    (
        "search: {model.activation: {choice: [tanh, relu]}, training.clip: {uniform: [1, 2], when: "
        "{model.activation: linear}}}",
        'is never "linear": it is searched, one of "tanh", "relu"',
    ),
    (
        "search: {training.clip: {uniform: [1, 2], when: {model.width: 4}}, model.width: {int: [2, 8], when: "
        "{training.clip: 1}}}",
        "depend on one another in a circle",
    ),
    (
        "grid: {model.width: [4, 8]}\nsearch: {training.clip: {uniform: [1, 2], when: {model.width: 4}}}",
        "nothing is searched",
    ),
    # settings
    ("search: {training.clip: {uniform: [1, 2]}, algoritm: tpe}", "Did you mean 'algorithm'?"),
    ("search: {training.clip: {uniform: [1, 2]}, scheduler: ahsa}", "search.scheduler.name: must be one of"),
    ("search: {training.clip: {uniform: [1, 2]}, objective: eror}", "Did you mean 'error'?"),
    ("search: {training.clip: {uniform: [1, 2]}, objective: [error, error]}", "names one objective twice"),
    ("search: {training.clip: {uniform: [1, 2]}, objective: [error], mode: [min, max]}", "mode has 2 words"),
    (
        "task: markov_source\nmodel: lru\nsearch: {training.clip: {uniform: [1, 2]}, objective: test_bits_per_symbol}",
        "search.mode: is required",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, objective: test_accuracy, mode: max}",
        "the task linear_functional does not report test_accuracy. It reports none",
    ),
    (
        "task: {name: markov_source}\nmodel: {name: lru}\n"
        "search: {training.clip: {uniform: [1, 2]}, objective: test_bits_per_symbols, mode: min}",
        "Did you mean 'test_bits_per_symbol'?",
    ),
    (
        "perturbation: {balls: [all]}\nsearch: {training.clip: {uniform: [1, 2]}, objective: radius}",
        "measured in the ball recurrent",
    ),
    ("search: {training.clip: {uniform: [1, 2]}, trials: 2000000}", "more than 1,000,000"),
    ("search: {training.clip: {uniform: [1, 2]}, algorithm: cma_es}", "two fields at least"),
    (
        "search: {training.clip: {uniform: [1, 2]}, model.activation: {choice: [tanh, relu]}, algorithm: cma_es}",
        "numbers alone",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, training.weight_decay: {uniform: [0, 1], when: {model.width: 4}}, "
        "algorithm: cma_es}",
        "takes no conditions",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, training.weight_decay: {uniform: [0, 1]}, algorithm: cma_es, "
        "objective: [error, margin]}",
        "takes one objective",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, objective: [error, margin], scheduler: asha}",
        "with several objectives no suggestion is worse for sure",
    ),
    # schedulers
    (
        "search: {training.clip: {uniform: [1, 2]}, scheduler: {name: asha, grace: 70}}",
        "must be a multiple of training.validate_every, 50",
    ),
    (
        "grid: {training.steps: [200, 500]}\nsearch: {training.clip: {uniform: [1, 2]}, scheduler: asha}",
        "must be below training.steps, 200",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, scheduler: {name: median, interval: 7}}",
        "search.scheduler.interval: must be a multiple",
    ),
    (
        "search: {training.steps: {int: [1000, 2000]}, scheduler: asha}",
        "compares trials at equal steps",
    ),
    (
        "resources: {workers: 2}\nsearch: {training.clip: {uniform: [1, 2]}, scheduler: asha}",
        "Set resources.workers to 1",
    ),
    (
        "search: {training.clip: {uniform: [1, 2]}, scheduler: {name: hyperband, grace: 250, reduction: 1.5}}",
        "search.scheduler: reduction must be at least 2 with hyperband, got 1.5",
    ),
    ("search: {model.width: {int: [1, 2]}, scheduler: pbt}", "which this field cannot be"),
    ("search: {training.clip: {choice: [1.0, 2.0]}, scheduler: pbt}", "which takes numbers"),
    ("search: {training.clip: {uniform: [1, 2]}, scheduler: pbt, trials: 3}", "must be at least 4"),
    # chains and confirmation
    (
        "grid: {model.width: [4, 8]}\nchain: {along: model.width, first: 1}\n"
        "search: {training.clip: {uniform: [1, 2]}}",
        "Take the chain out (chain=null)",
    ),
    ("confirm: {seeds: 3}", "the study has no search"),
    ("search: {training.clip: {uniform: [1, 2]}}\nconfirm: {sedes: 3}", "Did you mean 'seeds'?"),
    ("search: {training.clip: {uniform: [1, 2]}, trials: 2}\nconfirm: {top: 3}", "must be at most search.trials, 2"),
    (
        "grid: {training.data_seed: [0, 1]}\nsearch: {training.clip: {uniform: [1, 2]}}\nconfirm: {seeds: 3}",
        "1 is not fresh",
    ),
]


@pytest.mark.parametrize(("text", "fragment"), REFUSED)
def test_what_cannot_be_searched_is_refused_once(text: str, fragment: str) -> None:
    found = refusals(text if text.startswith("task") else f"{BASE}\n{text}\n")
    assert len(found) == 1, found
    assert fragment in found[0], found


def test_all_problems_are_told_at_once() -> None:
    found = refusals(
        f"{BASE}\ntraning: {{}}\nsearch: {{training.clip: {{uniform: [2, 1]}}, trials: 0, objective: eror}}"
        "\nconfirm: {seeds: 1}"
    )
    heads = [line.split(": ")[0] for line in found]
    assert heads == ["a study has no section 'traning'. Did you mean 'training'? Sections", *heads[1:]]
    assert heads[1:] == ["search.training.clip.uniform", "search.trials", "search.objective", "confirm.seeds"]
    found = refusals(
        f"{BASE}\nsearch: {{model.width: {{int: [2, 1]}}, training.clip: {{uniform: [-1, 1]}}, scheduler: {{name: "
        "asha, grace: 7}, training.weight_decay: {uniform: [-1, 0], when: {model.width: 1}}}\nconfirm: {top: 21}"
    )
    heads = [line.split(": ")[0] for line in found]
    assert heads == ["search.model.width.int", "training.clip", "search.scheduler.grace", "confirm.top"]


LEGAL = [
    "search: {training.clip: {log_int: [2, 4]}}",
    "search: {training.clip: {uniform: [1, 2]}, algorithm: cma_es, training.weight_decay: {uniform: [0, 1]}}",
    "search: {training.clip: {uniform: [1, 2]}, objective: [error, radius], algorithm: nsga_ii}",
    "perturbation: {balls: [all]}\nsearch: {training.clip: {uniform: [1, 2]}, objective: radius_all}",
    "search: {training.clip: {log_uniform: [1e-3, 2]}, scheduler: {name: pbt, interval: 100}}",
    "search: {model.parameterization: {choice: [exp, {name: best, a: 2.0}]}, model.parameterization.b: "
    "{uniform: [0.5, 1], when: {model.parameterization: best}}}",
    "grid: {model.width: [4, 8]}\nsearch: {training.weight_decay: {uniform: [0, 1]}, training.clip: "
    "{uniform: [1, 2], when: {model.width: 4}}}",
    "search: {training: {choice: [{clip: 1, weight_decay: 0.1}, {clip: 2}]}}",
    "search: {training.merge_redundant: {choice: [true, false]}, model.width: {log_int: [2, 2000]}}",
    "grid: {task: [{kernel: exponential}, {kernel: polynomial}]}\nsearch: {task.rate: {uniform: [0.1, 1]}}",
    "training: {amplitude_penalty: null}\nsearch: {model.activation: {choice: [linear, tanh]}}",
    "task: markov_source\nmodel: lru\n"
    "search: {training.clip: {uniform: [1, 2]}, objective: test_bits_per_symbol, mode: min}",
]


@pytest.mark.parametrize("text", LEGAL)
def test_what_can_be_searched(text: str) -> None:
    assert refusals(text if text.startswith("task") else f"{BASE}\n{text}\n") == []


def test_two_searched_fields_that_refuse_each_other_are_found() -> None:
    text = f"{BASE}\nsearch: {{training.objective: {{choice: [minibatch, population]}}, model.activation: {{choice: "
    assert refusals(text + "[linear, relu]}}") != []
    assert refusals(text + "[linear]}}") == []
    assert 'training.objective="population", model.activation="relu"' in refusals(text + "[linear, relu]}}")[0]


def test_of_a_large_grid_a_part_is_looked_at_and_every_model_of_it() -> None:
    registry.discover(ROOT)
    task, names, widths = registry.get("task", "linear_functional").Config(), ("ssm", "dense_rnn", "lru"), range(1, 901)
    configs = [registry.get("model", name).Config(width=width) for name in names for width in widths]
    cells = [TrialConfig(task=task, model=config) for config in configs]
    found: list[str] = []
    space = {"model.parameterization": Domain("choice", values=("exp", "direct"))}
    made = extreme_trials(space, cells, {"model.name": names, "model.width": tuple(widths)}, {}, found)
    assert 1_500 < len(made) < 3_100
    assert "search.model.parameterization: names no field: the model lru has no field" in only(found)
