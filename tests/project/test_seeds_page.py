"""docs/seeds.md is what its command writes, and nothing of the works or of the studies is left out of it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from benchmarks import published_curves
from benchmarks.published import image_twin, seeds, text_twin
from memsweep import registry
from memsweep.config.load.study import load_study
from memsweep.config.load.study_files import names
from memsweep.config.schema.canonical import to_dict
from memsweep.streams import TEST, TRAIN, VALIDATION, Stream
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
    assert "diagonal_rnn · exp · rate 0.01" in found or "diagonal_rnn · direct · rate 0.01" in found


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
    assert {*learned["condition"]} == {"diagonal_rnn · direct", "diagonal_rnn · exp"}
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


def test_a_free_text_has_the_form_of_the_treebank_which_its_task_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in text_twin.FILES:
        lines = [f'{n:08d} 03 n 01 word | the {n} old words; "a word, and one more"  ' for n in range(40)]
        (tmp_path / name).write_text("  1 This is a licence\n" + "\n".join(lines) + "\n", "utf-8")
    told = text_twin.sentences(tmp_path)
    assert told[:2] == ["the_N_old_words", "a_word,_and_one_more"]
    monkeypatch.setattr(text_twin, "SIZES", {"train": 300, "valid": 100, "test": 50})
    monkeypatch.setattr(text_twin, "SYMBOLS", 8)
    monkeypatch.setattr(sys, "argv", ["text_twin", str(tmp_path), str(tmp_path / "data")])
    text_twin.main()
    files = {name: (tmp_path / "data" / "ptb" / f"{name}.txt").read_text("utf-8") for name in text_twin.SIZES}
    symbols = {name: text.replace("\n", " <eos> ").split() for name, text in files.items()}
    assert {name: len(each) >= text_twin.SIZES[name] for name, each in symbols.items()} == dict.fromkeys(files, True)
    assert len({symbol for each in symbols.values() for symbol in each}) == 8
    registry.discover(ROOT)
    task = registry.get(registry.TASK, "ptb")
    made = task(task.Config(folder=str(tmp_path / "data"), horizon=10))
    assert made.inputs == 8
    with pytest.raises(SystemExit, match="too short: train"):
        [*text_twin.parts(told[:3])]


def test_images_have_the_form_of_cifar_10_which_its_tasks_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(folder: str, *more: str) -> dict[str, bytes]:
        words = ["image_twin", str(tmp_path / folder), "--train", "203", "--test", "40", *more]
        monkeypatch.setattr(sys, "argv", words)
        image_twin.main()
        return {path.name: path.read_bytes() for path in sorted((tmp_path / folder / "cifar10").iterdir())}

    files = written("data")
    counts = {name: len(held) // 3073 for name, held in files.items()}
    assert counts == {f"data_batch_{number + 1}.bin": 40 + (number < 3) for number in range(5)} | {"test_batch.bin": 40}
    assert written("again") == files
    assert not set(written("other", "--seed", "1").values()) & set(files.values())
    with pytest.raises(SystemExit, match=r"data_batch_1\.bin is there and stays as it is"):
        written("data", "--seed", "2")
    with pytest.raises(SystemExit, match="--train must be 5 or more"):
        written("none", "--train", "4")
    assert (tmp_path / "data" / "cifar10" / "data_batch_1.bin").read_bytes() == files["data_batch_1.bin"]
    registry.discover(ROOT)
    for name, settings in (("images", {"data": "cifar10", "order": "pixels"}), ("sequential_cifar", {"colour": True})):
        task = registry.get(registry.TASK, name)
        made = task(task.Config(folder=str(tmp_path / "data"), **settings))
        assert {key: len(split.labels) for key, split in made.splits.items()} == {TRAIN: 183, VALIDATION: 20, TEST: 40}
        batch = made.draw(Stream(0, TEST), 0, 40)
        assert batch.inputs.shape == (40, 1024, 3)
        assert np.bincount(batch.targets).tolist() == [4] * 10


def test_the_class_of_an_image_is_its_wave_and_one_pixel_does_not_tell_it() -> None:
    records = np.concatenate([*image_twin.records(2000, 0, 0)])
    labels, pixels = records[:, 0], records[:, 1:].reshape(-1, 3, 32, 32).astype(float)
    for place in ((0, 0, 0), (1, 16, 15), (2, 31, 31)):
        alike = pixels[:, *place].astype(int) // 16
        seen = np.zeros((16, 10))
        np.add.at(seen, (alike[:1000], labels[:1000]), 1)
        assert np.mean(seen.argmax(1)[alike[1000:]] == labels[1000:]) < 0.2
    rows, columns = np.mgrid[:32, :32]
    turns = image_twin.WAVES[:, :1, None] * columns + image_twin.WAVES[:, 1:, None] * rows
    waves = np.exp(2j * np.pi * turns / image_twin.TURN)
    power = np.abs(np.einsum("bkhw,chw->bkc", pixels - pixels.mean((2, 3), keepdims=True), waves)).sum(1)
    assert np.mean(power.argmax(1) == labels) > 0.98
