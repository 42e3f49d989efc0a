"""Chained trials: each takes a number from the result of the one before it, and is a function of its config alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from chain_work import FATAL_RATE, STUDY, deadly

from config_study import load, problems
from memsweep.config.schema.canonical import flatten, to_dict, trial_from_dict
from memsweep.config.schema.chain import chain_value, predecessor, resolve_chain
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import InlineBackend, RunSummary, hand_out, run
from memsweep.sweep.driver.scheduler import PackScheduler
from memsweep.sweep.planning.identity import identity, pack_identity
from memsweep.sweep.planning.plan import Plan, identified, make_plan
from memsweep.sweep.store.journal import Journal, TrialStatus
from memsweep.sweep.store.record import sealed
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress, execute_pack
from memsweep.trial import RunOptions, run_pack, run_trial
from paths import ROOT, python_path

INLINE = Launch(inline=True)


def plan_of(sweep: SweepConfig, done: frozenset[str] = frozenset()) -> Plan:
    return make_plan(sweep, identified(sweep), done)


def job_of(plan: Plan, folder: Path, pack: int = 0) -> PackJob:
    chosen = plan.packs[pack]
    members = tuple((trial.identity, to_dict(trial.config)) for trial in chosen.trials)
    return PackJob(chosen.identity, plan.sweep.name, str(folder), str(ROOT), members)


def quiet(fraction: float, doing: str = "") -> None:
    pass


# --- config


def test_trials_that_differ_in_the_axis_alone_form_a_chain_in_its_order(tmp_path: Path) -> None:
    text = STUDY.replace("grid: {", "grid: {task.horizon: [8, 16], model.parameterization: [exp, direct], ")
    rows = load(tmp_path, text.replace("[2, 3, 4]", "[4, 2, 3]")).rows
    assert len(rows) == 12
    places = {(row.task.horizon, row.model.parameterization.name, row.model.width): row for row in rows}
    for (horizon, part, width), row in places.items():
        assert row.chain is not None
        before = {4: None, 2: 4, 3: 2}[width]
        assert row.chain.earlier == {4: (), 2: (4,), 3: (4, 2)}[width]
        assert predecessor(row) == (None if before is None else places[horizon, part, before])


def test_a_chained_config_survives_the_way_through_json_and_others_look_as_before(tmp_path: Path) -> None:
    rows = load(tmp_path, STUDY).rows
    for row in rows:
        plain = json.loads(json.dumps(to_dict(row)))
        assert trial_from_dict(plain) == row
        assert identity(trial_from_dict(plain)) == identity(row)
    assert flatten(to_dict(rows[2]))["chain.earlier"] == [2, 3]
    plain = to_dict(replace(rows[0], chain=None))
    assert "chain" not in plain
    assert trial_from_dict(plain).chain is None
    assert trial_from_dict({**plain, "chain": None}).chain is None


def test_whatever_decides_the_numbers_is_in_the_identity(tmp_path: Path) -> None:
    row = load(tmp_path, STUDY).rows[2]
    assert row.chain is not None
    others = [
        load(tmp_path, STUDY.replace("[2, 3, 4]", "[3, 4]")).rows[-1],  # the same width after fewer
        load(tmp_path, STUDY.replace("[2, 3, 4]", "[3, 2, 4]")).rows[-1],  # or after others
        load(tmp_path, STUDY, "model.width=4").rows[-1],
        load(tmp_path, STUDY, "chain=null").rows[-1],
        *(replace(row, chain=replace(row.chain, factor=factor)) for factor in (0.25, 1.0)),
        replace(row, chain=replace(row.chain, carry="error")),
        replace(row, chain=replace(row.chain, first=10.0)),
        replace(row, chain=replace(row.chain, into="training.amplitude_penalty")),
    ]
    assert len({identity(config) for config in (row, *others)}) == 10
    assert all(other.model == row.model for other in others)


def test_the_carried_value_goes_where_the_chain_says(tmp_path: Path) -> None:
    first, second, _ = load(tmp_path, STUDY).rows
    assert resolve_chain(first, None) == replace(first, chain=None, training=replace(first.training, stop_below=100.0))
    assert resolve_chain(second, 0.5) == replace(second, chain=None, training=replace(second.training, stop_below=0.25))
    assert second.chain is not None
    assert chain_value(second.chain, 3.0) == 1.5
    for config, value in ((first, 1.0), (second, None), (second, float("nan")), (second, float("inf"))):
        with pytest.raises(ValueError, match=r"cannot take|only a finite number"):
            resolve_chain(config, value)
    with pytest.raises(ConfigError, match=r"stop_below: must be at least 0"):
        resolve_chain(second, -1.0)
    with pytest.raises(ValueError, match="not chained"):
        resolve_chain(replace(second, chain=None), 1.0)
    for config in (first, second):
        with pytest.raises(ValueError, match="chained"):
            run_pack([config])


def test_everything_wrong_with_a_chain_is_told_at_once(tmp_path: Path) -> None:
    (carry,) = problems(tmp_path, STUDY, "chain.carry=los")
    assert carry.startswith("chain.carry: must be one of error, margin, validation_loss")
    wrong = ("chain.along=model.widht", "chain.into=training.stop_bellow", "task.horizon=0")
    horizon, along, into = problems(tmp_path, STUDY, *wrong)
    assert horizon.startswith("task.horizon:")
    assert "no axis of the grid. Did you mean 'model.width'?" in along
    assert "training has no field 'stop_bellow'. Did you mean 'stop_below'?" in into


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["~grid.model.width", "model.width=2"], '"model.width" is no axis of the grid'),
        (["chain.into=trainig.stop_below"], "Did you mean 'training'? A path begins with task, model, training"),
        (["chain.into=training"], '"training" names no field'),
        (["chain.into=model.parameterization.rate"], "model.parameterization has no field 'rate'"),
        (["chain.into=training.steps"], "must name a field that takes any number"),
        (["chain.into=training.clip", "grid.training.clip=[0.5,1.0]"], "training.clip is an axis of the grid"),
        (["training.stop_below=0.1"], "the study sets training.stop_below to 0.1"),
        (["chain.first=-1"], "chain.first: must be at least 0"),
        (
            ["chain.into=perturbation.radii.from", "~perturbation.radii.from"],
            "from (100.0) must be smaller than to (1.0)",
        ),
        (["chain.earlier=[2]"], "chain.earlier: follows from the grid"),
        (["~chain.first"], "chain.first: is required"),
        (
            ["chain.along=model.parameterization", "grid.model.parameterization=[exp,direct]"],
            "the values of model.parameterization are no numbers",
        ),
        (
            ["chain.along=task.kernel", "grid.task.kernel=[exponential,polynomial]"],
            "the axis task.kernel changes task.exponent, task.rate, too",
        ),
        (["chain.along=chain.factor", "grid.chain.factor=[0.5,1.0]"], "cannot run along a field of its own"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(tmp_path: Path, overrides: list[str], words: str) -> None:
    (problem,) = problems(tmp_path, STUDY, *overrides)
    assert words in problem


# --- plan


def test_a_chain_is_one_pack_in_order_never_cut_and_never_mixed(tmp_path: Path) -> None:
    text = STUDY.replace("grid: {", "grid: {chain: [null, {factor: 0.5}], task.rate: [1.0, 0.5], ")
    sweep = load(tmp_path, text, "training.seeds=200")
    plan = plan_of(sweep)
    chains = [pack for pack in plan.packs if pack.trials[0].config.chain is not None]
    assert [[trial.config.model.width for trial in pack.trials] for pack in chains] == [[2, 3, 4], [2, 3, 4]]
    assert all(len({trial.config.task.rate for trial in pack.trials}) == 1 for pack in chains)
    loose = [trial.config for pack in plan.packs for trial in pack.trials if pack not in chains]
    assert len(loose) == 6
    assert all(config.chain is None for config in loose)
    (first, *_), *_ = [pack.trials for pack in chains]
    assert all(pack.cost > 0 for pack in plan.packs)
    left = plan_of(sweep, frozenset({first.identity}))
    assert sorted(len(pack.trials) for pack in left.packs if pack.trials[0].config.chain is not None) == [2, 3]


# --- running


def by_hand(rows: tuple[TrialConfig, ...]) -> list[pd.DataFrame]:
    """The curves of a chain whose values a person carries from trial to trial."""
    threshold, curves = 100.0, []
    for row in rows:
        config = replace(row, chain=None, training=replace(row.training, stop_below=threshold))
        result = run_trial(config, RunOptions(padded=False))
        threshold = 0.5 * float(result.summary["validation_loss"])
        curves.append(result.tables["curves"])
    return curves


def assert_same_results(one: Store, other: Store, names: Iterable[str]) -> None:
    for name in names:
        assert one.record(name)["summary"] == other.record(name)["summary"]
        mine, theirs = one.tables(name), other.tables(name)
        for table in mine:
            pd.testing.assert_frame_equal(mine[table], theirs[table], check_exact=True)


@pytest.mark.more
def test_a_chain_gives_what_a_person_would_get_by_carrying_the_values(tmp_path: Path) -> None:
    sweep = load(tmp_path, STUDY)
    plan = plan_of(sweep)
    told: list[tuple[float, str]] = []
    report = execute_pack(job_of(plan, tmp_path / "s"), lambda *words: told.append(words))
    assert not report.failed
    fractions, places = [one for one, _ in told], [words.partition(" (")[2] for _, words in told]
    assert (fractions[-1], fractions) == (1.0, sorted(fractions))
    assert [*dict.fromkeys(places)] == [f"trial {place} of 3)" for place in (1, 2, 3)]
    store = Store(tmp_path / "s")
    carried = 200.0
    for trial, expected in zip(plan.trials, by_hand(sweep.rows), strict=True):
        record = store.record(trial.identity)
        assert record["config"] == json.loads(json.dumps(to_dict(trial.config)))
        assert record["summary"]["stop_below"] == 0.5 * carried
        assert record["provenance"]["pack"] == pack_identity([trial.identity])
        carried = record["summary"]["validation_loss"]
        found = store.tables(trial.identity)["curves"]
        assert set(found["identity"]) == {trial.identity}
        for column in ("width", "seed", "radius", "error"):
            assert found[column].tolist() == expected[column].tolist()
    # The threshold did something: the first stops at once, and later ones only below half of what came before.
    steps = [store.tables(trial.identity)["replicas"]["steps"].max() for trial in plan.trials]
    assert steps[0] == 5
    assert steps[1] > 5
    assert not list((tmp_path / "s" / "checkpoints").glob("*"))


@pytest.mark.more
def test_a_stop_in_the_middle_loses_only_the_trial_in_progress(tmp_path: Path) -> None:
    sweep = load(tmp_path, STUDY)
    plan = plan_of(sweep)
    run(plan, workspace=ROOT, results=tmp_path / "whole", launch=INLINE)

    def stop(fraction: float, doing: str = "") -> None:
        if fraction > 0.5:
            raise KeyboardInterrupt

    store = Store(tmp_path / "part" / "study")
    with pytest.raises(KeyboardInterrupt):
        execute_pack(job_of(plan, store.folder), stop)
    first, *rest = plan.trials
    assert store.identities() == {first.identity}
    left = plan_of(sweep, store.identities())
    assert left.packs[0].trials == tuple(rest)
    summary = run(left, workspace=ROOT, results=tmp_path / "part", launch=INLINE)
    assert set(summary.finished) == {trial.identity for trial in rest}
    assert_same_results(store, Store(tmp_path / "whole" / "study"), [trial.identity for trial in plan.trials])


def test_alone_a_trial_asks_the_store_and_never_runs_the_one_before(tmp_path: Path) -> None:
    plan = plan_of(load(tmp_path, STUDY))
    whole = job_of(plan, tmp_path / "s")
    first, second = ((whole.members[index],) for index in (0, 1))
    report = execute_pack(replace(whole, members=second), quiet)
    (failure,) = report.failed.values()
    assert f"{first[0][0]} (model.width=2), has no result" in failure["error"]
    assert "run the same command again" in failure["error"]
    assert failure["traceback"] == ""  # what is to be mended is the trial before
    assert not Store(tmp_path / "s").identities()
    assert list(execute_pack(replace(whole, members=first), quiet).finished) == [first[0][0]]
    assert list(execute_pack(replace(whole, members=second), quiet).finished) == [second[0][0]]


def ended(plan: Plan, results: Path, summary: RunSummary) -> tuple[list[int], dict[int, str]]:
    """Widths with a result, and the error of each without."""
    width = {trial.identity: trial.config.model.width for trial in plan.trials}
    assert set(Store(results / plan.sweep.name).failures()) == set(summary.failed)
    return sorted(width[name] for name in summary.finished), {
        width[name]: failure["error"] for name, failure in summary.failed.items()
    }


@pytest.mark.more
def test_a_trial_that_fails_takes_only_those_after_it_along(tmp_path: Path) -> None:
    # A learning rate that grows beyond its limit: the second trial's config is refused, and nothing is wrong with
    # the first, nor with the other chain.
    text = STUDY.replace("into: training.stop_below, factor: 0.5, first: 100.0", "into: training.learning_rate, $")
    text = text.replace("$", "factor: 1e9, first: 0.01").replace("grid: {", "grid: {chain.factor: [1e9, 1e-1], ")
    sweep = load(tmp_path, text)
    plan = plan_of(sweep)
    summary = run(plan, workspace=ROOT, results=tmp_path, launch=INLINE)
    done, failed = ended(plan, tmp_path, summary)
    assert done == [2, 2, 3, 4]
    assert "training.learning_rate: must be at most 10_000" in failed[3]
    assert "(model.width=3), has no result" in failed[4]
    again = run(plan_of(sweep, frozenset(summary.finished)), workspace=ROOT, results=tmp_path, launch=INLINE)
    assert set(again.failed) == set(summary.failed)
    assert not again.finished


def test_what_diverged_is_not_carried_on(tmp_path: Path) -> None:
    wild = ["training.learning_rate=1e4", "training.clip=1e6", "model.parameterization=direct", "training.steps=200"]
    sweep = load(tmp_path, STUDY, *wild, "chain.first=0.0", "task.horizon=100")
    plan = plan_of(sweep)
    summary = run(plan, workspace=ROOT, results=tmp_path, launch=INLINE)
    assert list(summary.finished.values()) == ["diverged"]
    done, failed = ended(plan, tmp_path, summary)
    assert done == [2]
    assert "(model.width=2), diverged, and its validation_loss is not carried on" in failed[3]
    assert "(model.width=3), has no result" in failed[4]


@pytest.mark.parametrize("word", ["nan", "inf"])
def test_a_number_that_is_not_finite_is_not_carried_on(tmp_path: Path, word: str) -> None:
    sweep = load(tmp_path, STUDY)
    plan = plan_of(sweep)
    whole = job_of(plan, tmp_path / "study")
    execute_pack(replace(whole, members=whole.members[:1]), quiet)
    name = whole.members[0][0]
    path = tmp_path / "study" / "records" / f"{name}.json"
    record = json.loads(path.read_text())
    record["summary"]["validation_loss"] = word
    path.write_text(json.dumps(sealed(record)))  # as if this had been written
    left = plan_of(sweep, frozenset({name}))
    _, failed = ended(plan, tmp_path, run(left, workspace=ROOT, results=tmp_path, launch=INLINE))
    assert f"(model.width=2), has the validation_loss {word}, and only a finite number" in failed[3]
    assert "(model.width=3), has no result" in failed[4]


class TwoAtOnce(InlineBackend):
    """Says that two jobs may run at once, so that a lack of memory may be due to the other."""

    slots = 2


def test_a_chain_that_lacked_memory_beside_others_goes_on_alone(tmp_path: Path) -> None:
    plan = plan_of(load(tmp_path, STUDY))
    store, notes, tries = Store(tmp_path / "study"), [], []

    def hungry(job: PackJob, progress: Progress) -> PackReport:
        tries.append([data["model"]["width"] for _, data in job.members])

        def reached(fraction: float, doing: str = "") -> None:
            if len(tries) == 1 and 1 / 3 < fraction < 2 / 3:
                raise MemoryError("4 TiB")

        return execute_pack(job, reached)

    journal = Journal(store.location, {trial.identity: TrialStatus() for trial in plan.trials})
    course = PackScheduler(plan, ROOT, store, journal, lambda snapshot: notes.append(snapshot.note), lambda name: None)
    hand_out(course, TwoAtOnce(hungry))
    assert tries == [[2, 3, 4], [3, 4]]
    assert list(course.results) == [trial.identity for trial in plan.trials]
    assert not course.failures
    assert all(row.state.has_result for row in journal.trials.values())
    assert "2 trials again, one at a time, after a failure" in notes


@pytest.mark.long
@pytest.mark.drill
def test_under_ray_a_chain_goes_on_after_its_worker_was_killed_unless_the_trial_kills_every_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path(Path(__file__).parent))
    plan = plan_of(load(tmp_path, STUDY, f"task.rate=1.0,{FATAL_RATE}"))
    delivered: list[str] = []
    summary = run(
        plan,
        workspace=ROOT,
        results=tmp_path / "ray",
        on_result=delivered.append,
        work=deadly,
    )
    ray_store = Store(tmp_path / "ray" / "study")
    assert (ray_store.folder / "killed").exists()
    fatal = [trial for trial in plan.trials if trial.config.task.rate == FATAL_RATE]
    killer, unreached = fatal[1].identity, fatal[2].identity
    assert set(summary.failed) == set(ray_store.failures()) == {killer, unreached}
    assert "worker" in summary.failed[killer]["error"]
    assert f"the chain broke at the trial {killer}, whose worker died" in summary.failed[unreached]["error"]
    assert sorted(delivered) == sorted(trial.identity for trial in plan.trials if trial not in fatal[1:])

    # The same in this process, where nothing dies: bit for bit what the workers found.
    run(plan, workspace=ROOT, results=tmp_path / "inline", launch=INLINE)
    inline_store = Store(tmp_path / "inline" / "study")
    assert inline_store.identities() - ray_store.identities() == {killer, unreached}
    assert_same_results(ray_store, inline_store, delivered)
