"""Every study that comes with the project: its rows are in order, data files provided."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest
import yaml
from test_tasks_listops import write_listops

from arena_files import write_aan, write_imdb, write_pathfinder
from image_files import write_cifar, write_mnist
from memsweep.config.load.study import load_study
from memsweep.config.load.study_files import find, names
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.config.schema.protocols import MATCHED, PROTOCOLS
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from paths import ROOT
from text_files import write_ptb

OF_TEXT = ["task.horizon=3", "training.batch_size=2"]
OF_IMAGES = ["task.validation_share=0.1", "training.batch_size=2", "training.validation_size=2"]
SMALL = {
    "ptb_150": OF_TEXT,
    "ptb_300": OF_TEXT,
    "table2_scifar": OF_IMAGES,
    "table3": OF_IMAGES,
}
"""Settings that make a study fit the small files of the tests."""
SHARED = ("training", "perturbation")
"""Sections of a study that protocols fill."""
OF_TOKENS = {"training.merge_redundant": False, "training.select": "loss", "training.dtype": "float32"}
"""Settings that no study of another kind of task asks for together."""
STUDIES = names(ROOT)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SweepConfig]]:
    """A loader of the repository's studies, each read once, on small files of data."""
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "mnist")
    write_ptb(folder / "ptb")
    write_cifar(folder / "cifar10", each=30)
    write_imdb(folder / "aclImdb")
    write_listops(folder / "listops")
    write_aan(folder / "aan")
    write_pathfinder(folder / "pathfinder32" / "curv_contour_length_14", 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEMSWEEP_DATA", str(folder))
        yield functools.cache(lambda study: load_study(study, SMALL.get(study, []), workspace=ROOT))


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_in_order_and_says_what_it_asks(loaded: Callable[[str], SweepConfig], study: str) -> None:
    sweep = loaded(study)
    assert sweep.rows
    assert sweep.description


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_names_the_protocol_of_its_kind_and_repeats_none_of_it(study: str) -> None:
    data = yaml.safe_load(find(study, ROOT).read_text("utf-8"))
    written = {path: value for section in SHARED for path, value in flatten({section: data.get(section, {})}).items()}
    own = flatten(PROTOCOLS[data.get("protocol", MATCHED)])
    assert not [path for path, value in own.items() if written.get(path) == value]
    assert any(written.get(path) != value for path, value in OF_TOKENS.items()), "it is under protocol: tokens"


Row = tuple[str, str, str, float, float, float | None, float, float | None]
"""Model, initialization, stair, learning rate, alpha, orthogonal learning rate, delta, decay of the triangle."""


def table(
    rates: tuple[float, float, float, float],
    slow: tuple[float, float],
    rotations: str,
    stairs: tuple[str, str, str],
    delta: float,
    alphas: tuple[float, float],
) -> list[Row]:
    """A published table: RNN, RNN-Orth (twice), expRNN, nnRNN, and three Stair RNNs with the settings of their bases.

    Args:
        rates: of RNN, RNN-Orth, expRNN and nnRNN.
        slow: orthogonal learning rates of expRNN and nnRNN.
        rotations: how these begin.
        stairs: of the plain, the exponential and the non-normal Stair RNN.
        delta: of nnRNN.
        alphas: of RNN, and of all others.
    """
    rnn, orth, exp, nn = rates
    first, alpha = alphas
    free = "random_orthogonal"

    def exponential(stair: str) -> Row:
        return "exp_rnn", rotations, stair, exp, alpha, slow[0], 0.0, None

    def non_normal(stair: str) -> Row:
        return "nn_rnn", rotations, stair, nn, alpha, slow[1], delta, 1e-4

    return [
        ("rnn", "xavier", "none", rnn, first, None, 0.0, None),
        ("orthogonal_rnn", free, "none", orth, alpha, None, 0.0, None),
        ("published_rnn_orth", free, "none", orth, alpha, None, 0.0, None),
        exponential("none"),
        non_normal("none"),
        ("rnn", free, stairs[0], orth, alpha, None, 0.0, None),
        exponential(stairs[1]),
        non_normal(stairs[2]),
    ]


COPYING = table((1e-3, 2e-4, 1e-3, 5e-4), (1e-4, 1e-6), "henaff", ("expn", "expn", "alpha"), 1e-4, (0.9, 0.99))
MNIST = table((1e-4, 5e-5, 5e-4, 2e-4), (5e-5, 2e-5), "cayley", ("alpha", "exp_alpha", "n"), 0.1, (0.9, 0.99))
PTB_150 = table((1e-5, 1e-4, 5e-3, 8e-4), (1e-4, 8e-5), "cayley", ("n2", "expn", "alpha"), 1.0, (0.9, 0.9))
PTB_300 = table((1e-5, 1e-4, 5e-3, 8e-4), (1e-4, 6e-5), "cayley", ("alpha", "alpha", "expn"), 1e-4, (0.9, 0.9))
SIZES = {"copying": (128, 10), "permuted_mnist": (512, 100), "ptb_150": (1024, 128), "ptb_300": (1024, 128)}
PUBLISHED = {"copying": COPYING, "permuted_mnist": MNIST, "ptb_150": PTB_150, "ptb_300": PTB_300}


@pytest.mark.parametrize("study", PUBLISHED)
def test_a_published_table_is_there_row_by_row(loaded: Callable[[str], SweepConfig], study: str) -> None:
    rows = loaded(study).rows
    assert [_told(row) for row in rows] == PUBLISHED[study]
    width, batch = SIZES[study]
    assert {row.model.width for row in rows} == {width}
    assert {(row.training.optimizer, row.training.clip) for row in rows} == {("rmsprop", 0.0)}
    assert study in SMALL or {row.training.batch_size for row in rows} == {batch}


def _told(row: TrialConfig) -> Row:
    groups = row.training.groups
    return (
        *(row.model.name, row.model.initialization, row.model.stair, row.training.learning_rate, row.training.alpha),
        *(groups.orthogonal.learning_rate, getattr(row.model, "delta", 0.0), groups.triangle.weight_decay),
    )


# Learning rules (arXiv 2305.15947). Numbers as in the sweep files of the published code, experiments/*.yaml, and where
# these are silent, as in the defaults of its run_train.py.

BPTT, FULL, SNAP, TRUNCATED, SPATIAL = "bptt", "online_full", "online_snap1", "online_truncated", "online_spatial"
LRU_RULES, OTHER_RULES = {BPTT, FULL, TRUNCATED, SPATIAL}, {BPTT, SNAP, TRUNCATED, SPATIAL}
STANDARD = {"recurrent": (0.5, 0.0), "input": (0.5, 0.0)}
FAST_B = {"recurrent": (0.5, 0.0)}
STEEP = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032]


@dataclass(frozen=True)
class Published:
    """One sweep file.

    Attributes:
        unit: the recurrence, with the fields that the file sets.
        sizes: d_hidden, d_model, n_layers.
        seeds: the first, and how many.
        batch, steps: bsz, and epochs x whole batches of the training set.
        groups: group -> (factor of the learning rate, weight decay).
        rules: training_mode, of which those that are commented out are rows here.
        searched: path -> values that the file goes through to find the best.
        swept: path -> values that the file goes through for a figure.
        fixed: path -> value, of whatever else the file sets.
        confirmed: seeds of the best.
    """

    unit: dict[str, object]
    sizes: tuple[int, int, int]
    seeds: tuple[int, int]
    batch: int
    steps: int
    rules: set[str]
    groups: dict[str, tuple[float, float]] = field(default_factory=dict)
    searched: dict[str, list[float]] = field(default_factory=dict)
    swept: dict[str, list[float]] = field(default_factory=dict)
    fixed: dict[str, object] = field(default_factory=dict)
    confirmed: int = 0


LRU = {"name": "lru", "r_min": 0.0, "r_max": 1.0}
LINEAR_RNN = {"name": "rnn", "activation": "linear"}
COPY = {
    "task.name": "copying_bits",
    "task.pattern_length": 20,
    "task.padding": 7,
    "training.train_size": 20_000,
    "training.validation_size": 1000,
    "training.validate_every": 400,
    "training.warmup": 0,
    "training.weight_decay": 0.0,
    "model.mixing": "full_glu",
    "model.dropout": 0.1,
    "model.pooling": "none",
    "model.readout_width": 0,
    "perturbation.test_size": 1000,
}
SEEN = {"task.answer": "every", "model.mixing": "full_glu", "model.pooling": "running_mean", "training.patience": 0}
IMAGES = SEEN | {
    "task.name": "sequential_cifar",
    "task.colour": True,
    "task.validation_share": 0.01,
    "model.dropout": 0.1,
    "training.warmup": 18 * 495,
    "training.patience": 31,
}
RULE_STUDIES = {
    "figure2_ab": Published(
        *(LRU, (64, 128, 1), (201, 10), 50, 25 * 400, {FULL}, STANDARD),
        swept={"model.layers": [1, 2, 3, 4, 5]},
        fixed=COPY | {"training.learning_rate": 0.001},
    ),
    "figure2_cd": Published(
        *({"name": "lru", "r_max": 1.0}, (64, 128, 4), (201, 10), 50, 25 * 400, {FULL}, STANDARD),
        swept={"model.unit.r_min": [0.0, 0.5, 0.75, 0.9]},
        fixed=COPY | {"training.learning_rate": 0.001, "training.weight_decay": 0.05},
    ),
    "figure2_ef": Published(
        *(LRU, (64, 128, 4), (1, 5), 50, 25 * 400, LRU_RULES, STANDARD),
        searched={"training.learning_rate": [0.000125, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008]},
        fixed=COPY,
        confirmed=10,
    ),
    "table1_lru": Published(
        *(LRU, (64, 128, 4), (201, 3), 50, 25 * 400, LRU_RULES, STANDARD),
        searched={"training.learning_rate": STEEP},
        fixed=COPY,
        confirmed=3,
    ),
    "table1_linear_rnn": Published(
        *(LINEAR_RNN, (64, 146, 4), (201, 3), 50, 25 * 400, OTHER_RULES),
        searched={"training.learning_rate": STEEP},
        fixed=COPY,
        confirmed=3,
    ),
    "table1_gru_1": Published(
        *({"name": "gru"}, (134, 134, 1), (201, 3), 50, 25 * 400, OTHER_RULES),
        searched={"training.learning_rate": STEEP},
        fixed=COPY | {"model.mixing": "none", "model.dropout": 0.0, "model.readout_width": 1072},
        confirmed=3,
    ),
    "table1_gru_4": Published(
        *({"name": "gru"}, (91, 91, 4), (201, 3), 50, 25 * 400, OTHER_RULES),
        searched={"training.learning_rate": STEEP},
        fixed=COPY,
        confirmed=3,
    ),
    "table2_scifar": Published(
        *({"name": "lru", "r_min": 0.9, "r_max": 0.999}, (128, 256, 4), (1032, 2), 100, 180 * 495, LRU_RULES, FAST_B),
        searched={"training.learning_rate": [0.001, 0.004], "training.weight_decay": [0.1, 0.5]},
        fixed=IMAGES,
        confirmed=3,
    ),
    "table2_imdb": Published(
        *({"name": "lru", "r_max": 1.0}, (64, 64, 4), (0, 2), 32, 35 * 781, LRU_RULES, FAST_B),
        searched={"training.learning_rate": [0.001, 0.003], "model.unit.r_min": [0.0, 0.9]},
        fixed=SEEN
        | {
            "task.name": "imdb",
            "task.horizon": 4096,
            "task.min_count": 15,
            "model.dropout": 0.1,
            "training.warmup": 0,
            "training.weight_decay": 0.05,
        },
        confirmed=3,
    ),
    "table2_listops": Published(
        *({"name": "lru", "r_max": 1.0}, (128, 256, 4), (0, 2), 32, 40 * 3000, LRU_RULES, FAST_B),
        searched={"training.learning_rate": [0.001, 0.003], "model.unit.r_min": [0.0, 0.9]},
        fixed=SEEN
        | {
            "task.name": "listops",
            "task.source": "files",
            "task.horizon": 2048,
            "model.dropout": 0.0,
            "training.warmup": 4 * 3000,
            "training.weight_decay": 0.05,
        },
        confirmed=3,
    ),
    "table3": Published(
        *(LINEAR_RNN, (128, 294, 4), (0, 2), 100, 180 * 495, OTHER_RULES, STANDARD),
        searched={"training.learning_rate": [0.001, 0.004], "training.weight_decay": [0.1, 0.2]},
        fixed=IMAGES,
        confirmed=3,
    ),
}
ALWAYS = {
    "model.name": "residual_stack",
    "model.norm": "layer",
    "model.prenorm": True,
    "model.residual": True,
    "training.optimizer": "adamw",
    "training.schedule": "cosine",
    "training.clip": 0.0,
    "training.amplitude_penalty": 0.0,
    "training.merge_redundant": False,
    "training.select": "loss",
    "training.dtype": "float32",
}
"""Settings that no sweep file has: how the published code trains, without penalties or clipping."""


@pytest.mark.parametrize("study", RULE_STUDIES)
def test_a_published_sweep_of_learning_rules_is_there_number_by_number(
    loaded: Callable[[str], SweepConfig], study: str
) -> None:
    wanted, sweep = RULE_STUDIES[study], loaded(study)
    small = {word.partition("=")[0] for word in SMALL.get(study, [])}
    free = {*wanted.searched, *wanted.swept, *small}
    always = ALWAYS | wanted.fixed | {"training.batch_size": wanted.batch}
    expected = {path: value for path, value in always.items() if path not in free}
    written = flatten(yaml.safe_load(find(study, ROOT).read_text("utf-8")))
    stated = small & always.keys()  # what the small files of the tests have no room for
    assert {path: written[path] for path in stated} == {path: always[path] for path in stated}
    for row in sweep.rows:
        flat = flatten(to_dict(row))
        unit = {"name": row.model.unit.name} | to_dict(row.model.unit)
        assert {path: flat[path] for path in expected} == expected
        assert {key: unit[key] for key in wanted.unit} == wanted.unit
        training = row.training
        assert (training.first_seed, training.seeds, training.steps) == (*wanted.seeds, wanted.steps)
        width, features, layers = wanted.sizes
        assert (row.model.width, row.model.features) == (width, features)
        assert "model.layers" in free or row.model.layers == layers
        assert _groups(row) == wanted.groups
    assert {row.training.rule for row in sweep.rows} == wanted.rules
    for path, values in wanted.swept.items():
        assert [flatten(to_dict(row))[path] for row in sweep.rows] == values
    assert _searched(sweep) == (wanted.searched, wanted.confirmed)


def _groups(row: TrialConfig) -> dict[str, tuple[float | None, float | None]]:
    found = {one.name: getattr(row.training.groups, one.name) for one in fields(row.training.groups)}
    assert all(group.learning_rate is None for group in found.values())
    told = {name: (group.factor, group.weight_decay) for name, group in found.items()}
    return {name: settings for name, settings in told.items() if settings != (None, None)}


def _searched(sweep: SweepConfig) -> tuple[dict[str, list[float]], int]:
    """Every value of the searched fields, if all are tried, and the seeds of the best."""
    if sweep.search is None:
        return {}, 0
    settings, space = sweep.search.settings, sweep.search.space
    assert (settings.algorithm, settings.objective) == ("grid", ("validation_loss",))
    assert settings.trials == math.prod(len(domain.values) for domain in space.values())
    assert sweep.confirm is not None
    return {path: list(domain.values) for path, domain in space.items()}, sweep.confirm.seeds


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ("table2_scifar", ("cifar10 lacks data_batch_1.bin", "MEMSWEEP_DATA")),
        ("table3", ("cifar10 lacks data_batch_1.bin", "MEMSWEEP_DATA")),
        ("table2_listops", ("listops lacks basic_train.tsv", "MEMSWEEP_DATA")),
        ("table2_imdb", ("aclImdb", "MEMSWEEP_DATA")),
    ],
)
def test_without_its_data_a_study_says_once_what_is_missing_and_where_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: str, said: tuple[str, ...]
) -> None:
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))
    with pytest.raises(ConfigError) as error:
        load_study(study, [], workspace=ROOT)
    (told,) = error.value.problems
    assert all(word in told for word in (*said, str(tmp_path)))
