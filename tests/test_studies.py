"""Every study that comes with the project: its rows are in order, data files provided."""

from __future__ import annotations

from pathlib import Path

import pytest

from image_files import write_mnist
from memsweep.config.compose import load_study
from memsweep.config.schema import TrialConfig
from text_files import write_ptb

ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted(path.stem for path in (ROOT / "search_spaces").glob("*.yaml"))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "mnist")
    write_ptb(tmp_path / "ptb")
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_in_order_and_says_what_it_asks(study: str) -> None:
    sweep = load_study(
        study, ["task.horizon=3", "training.batch_size=2"] if study.startswith("ptb") else [], workspace=ROOT
    )
    assert sweep.rows
    assert sweep.description


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


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("study", PUBLISHED)
def test_a_published_table_is_there_row_by_row(study: str) -> None:
    small = ["task.horizon=3", "training.batch_size=2"] if study.startswith("ptb") else []
    rows = load_study(study, small, workspace=ROOT).rows
    assert [_told(row) for row in rows] == PUBLISHED[study]
    width, batch = SIZES[study]
    assert {row.model.width for row in rows} == {width}
    assert {(row.training.optimizer, row.training.clip) for row in rows} == {("rmsprop", 0.0)}
    assert small or {row.training.batch_size for row in rows} == {batch}


def _told(row: TrialConfig) -> Row:
    groups = row.training.groups
    return (
        *(row.model.name, row.model.initialization, row.model.stair, row.training.learning_rate, row.training.alpha),
        *(groups.orthogonal.learning_rate, getattr(row.model, "delta", 0.0), groups.triangle.weight_decay),
    )
