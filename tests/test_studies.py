"""Every study that comes with the project: its rows are in order, data files provided."""

from __future__ import annotations

from pathlib import Path

import pytest

from image_files import write_mnist
from memsweep.config.compose import load_study
from text_files import write_ptb

ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted(path.stem for path in (ROOT / "search_spaces").glob("*.yaml"))
FAMILY = ("rnn", "orthogonal_rnn", "published_rnn_orth", "exp_rnn", "nn_rnn")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "mnist")
    write_ptb(tmp_path / "ptb")
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_in_order_and_says_what_it_asks(study: str) -> None:
    sweep = load_study(study, ["task.horizon=3"] if study.startswith("ptb") else [], workspace=ROOT)
    assert sweep.rows
    assert sweep.description


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("study", ["copying", "permuted_mnist", "ptb_150", "ptb_300", "copying_small"])
def test_a_published_table_has_all_its_rows(study: str) -> None:
    """Seven models, and what the published code computes in the place of one of them."""
    rows = load_study(study, ["task.horizon=3"] if study.startswith("ptb") else [], workspace=ROOT).rows
    assert [row.model.name for row in rows] == [*FAMILY, "rnn", "exp_rnn", "nn_rnn"]
    assert [row.model.stair == "none" for row in rows] == [True] * 5 + [False] * 3
    assert len({row.training.seeds for row in rows}) == 1
    for row in rows:
        slow = row.training.groups.orthogonal.learning_rate
        assert (slow is not None and slow < row.training.learning_rate) == (row.model.name in ("exp_rnn", "nn_rnn"))
        assert bool(row.training.groups.triangle.weight_decay) == (row.model.name == "nn_rnn")
