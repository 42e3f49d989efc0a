"""docs/seeds.md is what its command writes, and nothing of the works or of the studies is left out of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from benchmarks import published_curves
from benchmarks.published import seeds
from memsweep.config.load.study import load_study
from memsweep.config.load.study_files import names
from memsweep.config.schema.canonical import to_dict
from paths import ROOT

TOLD = yaml.safe_load((seeds.EVIDENCE / "seeds.yaml").read_text("utf-8"))
PARTS = [part for work in [*TOLD["works"], *TOLD["others"]] for part in work["parts"]]
STORED = ROOT / "tests" / "sweep" / "store" / "written_by" / "8b96c54" / "grid"


def test_the_page_is_what_the_command_writes() -> None:
    assert seeds.PAGE.read_text("utf-8") == seeds.page()


def test_every_study_of_published_and_cluster_answers_a_part() -> None:
    files = {path.stem for room in seeds.ROOMS for path in (ROOT / "search_spaces" / room).glob("*.yaml")}
    told = {part["study"] for part in PARTS if "study" in part}
    assert files - told == set()
    assert told - set(names(ROOT)) == set()


def test_a_part_that_was_run_says_what_was_found_and_a_part_that_was_not_run_has_no_results() -> None:
    assert {part["run"] for part in PARTS} <= seeds.RUNS.keys()
    assert [part["name"] for part in PARTS if part["run"] != "no" and not part.get("ours")] == []
    found = set(pd.read_csv(seeds.RESULTS)["study"])
    run = {part["study"] for part in PARTS if part["run"] != "no" and "study" in part}
    assert found - run == set()
    assert {part["run"] for part in PARTS if not {"study", "script"} & part.keys()} == {"no"}
    assert all((ROOT / part["script"]).is_file() for part in PARTS if "script" in part)


def test_trials_that_differ_in_their_rate_alone_are_told_apart(tmp_path: Path) -> None:
    study = tmp_path / "rates"
    shutil.copytree(STORED, study)
    for number, path in enumerate(sorted((study / "replicas").glob("*.parquet"))):
        pd.read_parquet(path).assign(metric="accuracy", test_metric=0.5).to_parquet(path)
        record = study / "records" / f"{path.stem}.json"
        told = json.loads(record.read_text("utf-8"))
        told["config"]["training"]["learning_rate"] = 10.0**-number
        record.write_text(json.dumps(told), "utf-8")
    found = {str(row[1]) for row in seeds._metrics(study)}
    assert len(found) == 4
    assert {"diagonal_rnn · exp · width 2 · rate 0.01", "diagonal_rnn · direct · width 2 · rate 0.01"} & found


def test_of_a_search_the_winners_of_each_rule_are_told_and_its_suggestions_are_not(tmp_path: Path) -> None:
    study = tmp_path / "searched"
    shutil.copytree(STORED, study)
    names = sorted(path.stem for path in (study / "replicas").glob("*.parquet"))
    model = json.loads((study / "records" / f"{names[0]}.json").read_text("utf-8"))["config"]["model"]
    for number, name in enumerate(names):
        path = study / "replicas" / f"{name}.parquet"
        pd.read_parquet(path).assign(metric="accuracy", test_metric=0.5).to_parquet(path)
        record = study / "records" / f"{name}.json"
        told = json.loads(record.read_text("utf-8"))
        told["config"]["model"] = model
        told["config"]["training"]["rule"] = ("bptt", "online_full")[number % 2]
        record.write_text(json.dumps(told), "utf-8")
    (study / "report").mkdir(exist_ok=True)
    pd.DataFrame({"confirmed_as": names[:2]}).to_csv(study / "report" / "winners.csv", index=False)
    rows = seeds._metrics(study)
    one, other = sorted(str(row[1]) for row in rows)
    assert one.endswith(" · bptt")
    assert other == one.replace("bptt", "online_full")


def test_a_seed_without_an_accuracy_is_not_left_out_of_a_median(tmp_path: Path) -> None:
    study = tmp_path / "diverged"
    shutil.copytree(STORED, study)
    for path in (study / "replicas").glob("*.parquet"):
        replicas = pd.read_parquet(path).assign(metric="accuracy", test_metric=0.5)
        replicas.loc[replicas.index[0], "test_metric"] = float("nan")
        replicas.to_parquet(path)
    rows = pd.DataFrame(seeds._metrics(study), columns=seeds.COLUMNS)
    assert rows[["value", "low", "high"]].isna().all(axis=None)
    assert (rows["seeds"] > 1).all()


def test_every_published_set_of_curves_has_a_study() -> None:
    published = pd.read_csv(published_curves.PUBLISHED)
    sets = {" ".join(key) for key, _ in published.groupby(published_curves.SET)}
    assert (len(sets), len(published)) == (20, 1785)
    assert TOLD["curves"].keys() == sets
    compared = pd.read_csv(seeds.EVIDENCE / "published_curves.csv")
    assert {" ".join(key) for key, _ in compared.groupby(published_curves.SET)} <= sets


def test_a_trial_of_each_published_set_is_compared_with_it() -> None:
    """As report/trials.csv names the trials of both studies."""
    assert _measured().keys() == {
        key for key, _ in pd.read_csv(published_curves.PUBLISHED).groupby(published_curves.SET)
    }


def test_a_row_is_measured_as_its_figure_was() -> None:
    """Rates pushed or drawn like all weights, as that code did then; and as many draws, or the page says how many."""
    measured = _measured()
    for key, curves in pd.read_csv(published_curves.PUBLISHED).groupby(published_curves.SET):
        pushed, draws = curves["noise_mode"].str.startswith("W:-ones"), {*curves["repeats"].dropna().astype(int)}
        method, repeats = measured[key]
        assert {*pushed} == {method == "random_push"}, key
        why = TOLD["curves"][" ".join(key)][1]
        assert not draws or repeats in draws or f"{repeats} draws" in why, key


def _measured() -> dict[tuple[str, ...], tuple[str, int]]:
    """Each published set, as ``SET`` names it -> the method and the draws of the row that is compared with it."""
    configs = [
        to_dict(config)
        for study in ("published_curves", "published_curves_rest")
        for config in load_study(study, workspace=ROOT).rows
    ]
    named = published_curves.named_as_published({str(place): each for place, each in enumerate(configs)})
    sets = named[published_curves.SET]
    told = [(each["perturbation"]["method"], each["perturbation"]["repeats"]) for each in configs]
    return dict(zip(sets.itertuples(index=False, name=None), told, strict=True))


def test_a_setting_that_does_not_vary_in_a_study_is_read_all_the_same() -> None:
    """A study of tanh alone has no column of activations among what it varies; its curves passed for linear ones."""
    model = {"name": "diagonal_rnn", "parameterization": {"name": "relu"}, "activation": "tanh"}
    named = published_curves.named_as_published({"a": {"task": {"name": "x", "kernel": "exponential"}, "model": model}})
    assert named.iloc[0].tolist() == ["a", "LF", "tanh", "diagonalrnn", "exp"]


def test_results_take_the_place_of_those_of_the_same_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeds, "RESULTS", tmp_path / "results.csv")
    seeds.add(STORED)
    verdicts = pd.read_csv(seeds.RESULTS)
    assert {"polynomial · direct"} <= {*verdicts["condition"]}
    assert {*verdicts["seeds"]} == {2}
    assert {*verdicts["measured"]} == {"recurrent weights move: inconclusive; slope in width"}
    study = tmp_path / "learned"
    shutil.copytree(STORED, study)
    for number, path in enumerate(sorted((study / "replicas").glob("*.parquet"))):
        accuracies = [0.25 + number, 0.75 + number]
        pd.read_parquet(path).assign(metric="accuracy", test_metric=accuracies).to_parquet(path)
    seeds.add(study)
    seeds.add(study)
    rows = pd.read_csv(seeds.RESULTS)
    learned = rows[rows["study"] == "learned"]
    assert {*learned["condition"]} == {
        f"diagonal_rnn · {of} · width {size}" for of in ("direct", "exp") for size in (2, 3)
    }
    assert [number + 0.5, number + 0.25, number + 0.75] in learned[["value", "low", "high"]].to_numpy().tolist()
    assert len(rows) == len(verdicts) + len(learned)
    for record in (study / "records").glob("*.json"):  # of another seed, as ``extend`` adds it
        config = json.loads(record.read_text())
        config["config"]["training"]["first_seed"] += 2
        record.with_stem(f"{record.stem}b").write_text(json.dumps(config))
        shutil.copy(study / "replicas" / f"{record.stem}.parquet", study / "replicas" / f"{record.stem}b.parquet")
    seeds.add(study)
    assert {*pd.read_csv(seeds.RESULTS).query("study == 'learned'")["seeds"]} == {4}
    assert any("none" in section for section in seeds._results())
