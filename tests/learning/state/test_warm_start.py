"""Warm starts: a row that goes on from a stored state has the bits of a training from the beginning."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_checkpoints import Held
from test_until import assert_same, with_training

from engine import trial, usual_model
from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.training import TURNING, Turn
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.state.warm_start import prefix
from memsweep.sweep.planning.identity import identity, pack_identity
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import PackJob, execute_pack
from memsweep.trial import RunOptions, TrialResult, WorkerRank, run_pack, run_replicas
from paths import ROOT

SMALL = {"batch_size": 8, "validation_size": 16}
QUICK = {"balls": (), "test_size": 16}


def until(config: TrialConfig, step: int) -> TrialConfig:
    return with_training(config, until=step)


def turned(config: TrialConfig, step: int, **settings: float) -> TrialConfig:
    """The trial from whose settings at ``step`` other ones turn."""
    now = {name: getattr(config.training, name) for name in TURNING}
    return with_training(config, until=0, turns=(*config.training.turns, Turn(until=step, **now)), **settings)


def begun(configs: list[TrialConfig], **options: Any) -> tuple[list[TrialResult], int]:
    """The results of a pack, and the step at which its training began."""
    told: list[float] = []
    results = run_pack(configs, RunOptions(progress=told.append, **options))
    training = configs[0].training
    validated = round(told[0] / 0.8 * training.end)
    return results, validated - training.validate_every


def linear(**training: Any) -> list[TrialConfig]:
    """Four trials of one program, in two buckets of widths."""
    kinds = ((2, 2, 0, 0.01), (5, 3, 4, 0.03), (12, 1, 0, 0.01), (3, 2, 1, 0.02))
    return [
        trial(
            model={"width": width},
            training=SMALL | {"seeds": seeds, "first_seed": first, "learning_rate": rate} | training,
            perturbation=QUICK,
        )
        for width, seeds, first, rate in kinds
    ]


def sampled(**training: Any) -> list[TrialConfig]:
    """The same with a model that is not linear, whose losses come from sequences."""
    return [
        dataclasses.replace(config, model=dataclasses.replace(config.model, activation="tanh"))
        for config in linear(**training)
    ]


def of_model(name: str, **training: Any) -> list[TrialConfig]:
    """Trials of a model; one alone where it does not pack."""
    config = trial(task={"horizon": 8}, training=SMALL | {"batch_size": 4} | training, perturbation=QUICK)
    model = registry.get(registry.MODEL, name)
    fields = {"state_size": 2} if name == "stable_ssm" else {}
    own = dataclasses.replace(config, model=usual_model(name, width=2, **fields))
    if not model.traits(own.model).pack_fields:
        return [own]
    return [own, with_training(own, first_seed=5, learning_rate=0.02), with_training(own, seeds=1)]


@pytest.mark.parametrize(
    "configs",
    [
        pytest.param(linear(), marks=pytest.mark.more),
        linear(patience=1, learning_rate=0.3, train_size=20, dtype="float32"),  # some end before they are handed on
        pytest.param(linear(schedule="plateau", plateau_patience=0), marks=pytest.mark.more),
        pytest.param(linear(objective="population", margin_penalty=0.1), marks=pytest.mark.more),
        sampled(dtype="float32"),
        pytest.param(sampled(), marks=pytest.mark.more),
    ],
    ids=["linear", "patience", "plateau", "population", "sampled float32", "sampled"],
)
def test_a_chain_of_rows_in_changing_company_has_the_bits_of_whole_trainings(configs):
    whole, middle = run_pack(configs), run_pack([until(config, 40) for config in configs])
    first, second = [Held() for _ in configs], [Held() for _ in configs]
    half = len(configs) // 2
    for part in (range(half), range(half, len(configs))):  # not all were together at first
        run_pack([until(configs[at], 20) for at in part], RunOptions(end_states=[first[at] for at in part]))
    order = list(reversed(range(len(configs))))
    results, at_step = begun(
        [until(configs[at], 40) for at in order],
        start_states=[first[at] for at in order],
        end_states=[second[at] for at in order],
    )
    assert at_step == 20
    for at, result in zip(order, results, strict=True):
        assert_same(result, middle[at])
    for chosen in ([0], [1, 2]):
        results, at_step = begun([configs[at] for at in chosen], start_states=[second[at] for at in chosen])
        assert at_step == 40
        for at, result in zip(chosen, results, strict=True):
            assert_same(result, whole[at])
    early = {step for result in whole for step in result.tables["replicas"]["steps"]} - {60}
    assert bool(early) == bool(configs[0].training.patience)


@pytest.mark.parametrize("name", registry.names(registry.MODEL))
def test_rows_of_every_model_go_on(name):
    configs = of_model(name, steps=6, validate_every=2)
    kept = [Held() for _ in configs]
    run_pack([until(config, 4) for config in configs], RunOptions(end_states=kept))
    results, at_step = begun(configs[::-1], start_states=kept[::-1])
    assert at_step == 4
    for result, whole in zip(results[::-1], run_pack(configs), strict=True):
        assert_same(result, whole)


@pytest.mark.parametrize("make", [linear, sampled])
def test_a_member_of_a_population_goes_on_from_its_donor(make):
    """Settings turn twice, each time after the state of another row was taken over; the same from nothing."""
    (donor, *_) = make(weight_decay=0.1)
    first, second = Held(), Held()
    run_pack([until(donor, 20)], RunOptions(end_states=[first]))
    changed = turned(donor, 20, learning_rate=0.04, amplitude_penalty=0.2, clip=0.1)
    (middle,), at_step = begun([until(changed, 40)], start_states=[first], end_states=[second])
    assert at_step == 20
    assert_same(middle, run_pack([until(changed, 40)])[0])
    final = turned(changed, 40, weight_decay=0.0, margin_penalty=0.3, amplitude_penalty=1e-3)
    (end,), at_step = begun([final], start_states=[second])
    assert at_step == 40
    assert_same(end, run_pack([final])[0])
    assert begun([changed], start_states=[second])[1] == 40  # and the row whose settings did not turn


def test_a_pack_that_ended_early_leaves_states_that_others_can_join():
    """With patience a trial alone ends before its row does; in company its rows wait, and the others go on."""
    configs = linear(patience=1)[::3]
    configs[0] = with_training(configs[0], learning_rate=0.5, seeds=1)
    whole = run_pack(configs)
    assert max(whole[0].tables["replicas"]["steps"]) < 40
    assert max(whole[1].tables["replicas"]["steps"]) > 40
    kept = [Held() for _ in configs]
    for config, slot in zip(configs, kept, strict=True):
        run_pack([until(config, 40)], RunOptions(end_states=[slot]))
    results, at_step = begun(configs, start_states=kept)
    assert at_step == 40
    for one, other in zip(results, whole, strict=True):
        assert_same(one, other)


def test_the_prefix_is_what_the_steps_follow_from_and_nothing_else():
    (config, *_) = linear()
    here = prefix(until(config, 20), 20)
    same = [
        config,
        until(config, 40),
        turned(config, 20, learning_rate=0.5),
        turned(config, 40, clip=0.1),
        turned(turned(config, 10), 20, weight_decay=1.0),
        dataclasses.replace(config, perturbation=dataclasses.replace(config.perturbation, starts=3)),
        with_training(config, checkpoint_every=7, merge_redundant=False, merge_tolerance=0.1),
    ]
    assert {prefix(one, 20) for one in same} == {here}
    others = [
        turned(config, 10, learning_rate=0.5),
        with_training(config, learning_rate=0.011),
        with_training(config, steps=70),
        with_training(config, seeds=3),
        with_training(config, first_seed=1),
        with_training(config, data_seed=1),
        with_training(config, select="loss"),
        with_training(config, validate_every=5),
        linear()[1],
        trial(task={"kernel": "polynomial"}, training=SMALL),
    ]
    hashes = [here, prefix(config, 30), prefix(config, 20, shards=2), *(prefix(one, 20) for one in others)]
    assert len(set(hashes)) == len(hashes)


def begun_and_whole() -> tuple[TrialConfig, bytes, TrialResult]:
    """A trial, the state of its first 20 steps, and its whole result."""
    config, slot = linear()[0], Held()
    run_pack([until(config, 20)], RunOptions(end_states=[slot]))
    assert slot.data is not None
    return config, slot.data, run_pack([config])[0]


@pytest.fixture(scope="module")
def handed() -> tuple[TrialConfig, bytes, TrialResult]:
    """See ``begun_and_whole``."""
    return begun_and_whole()


@pytest.mark.more
def test_a_program_begins_where_all_its_trials_are_or_from_nothing(handed):
    config, good, _ = handed
    other = linear()[1]
    slot, later = Held(), Held()
    run_pack([until(other, 20)], RunOptions(end_states=[slot]))
    run_pack([until(other, 10)], RunOptions(end_states=[later]))
    begins = {
        "both at one step": ([Held(good), slot], 20),
        "one has none": ([Held(good), None], 0),
        "one lies nowhere": ([Held(good), Held()], 0),
        "they are apart": ([Held(good), later], 0),
        "mixed up": ([slot, Held(good)], 0),
    }
    shorter = [until(config, 30), until(other, 30)]
    (wanted, _) = run_pack(shorter)
    for name, (slots, expected) in begins.items():
        (result, _), at_step = begun(shorter, start_states=slots)
        assert at_step == expected, name
        assert_same(result, wanted)


class _PowerCut(Exception):
    pass


def test_the_checkpoint_of_an_interrupted_pack_wins_when_it_is_further(handed):
    config, good, whole = handed
    for every, cut_at, expected in ((20, 0.9, 40), (10, 0.3, 20)):  # beyond the state at 20, and before it
        own, slot = with_training(config, checkpoint_every=every), Held()
        with pytest.raises(_PowerCut):
            run_pack([own], RunOptions(checkpoint=slot, progress=_cut_at(cut_at)))
        assert slot.data is not None
        (result,), at_step = begun([own], checkpoint=slot, start_states=[Held(good)])
        assert at_step == expected
        assert_same(result, whole)


def _cut_at(share: float) -> Any:
    def cut(fraction: float) -> None:
        if fraction >= 0.8 * share - 1e-9:
            raise _PowerCut

    return cut


def test_several_workers_hand_on_nothing(handed):
    config, *_ = handed
    with pytest.raises(ValueError, match=r"resources\.workers must be 1"):
        run_replicas([config], RunOptions(worker=WorkerRank(0, 2), start_states=[None]))


def _job(folder: Path, configs: list[TrialConfig], after: dict[str, str] | None = None) -> PackJob:
    members = tuple((identity(config), to_dict(config)) for config in configs)
    name = pack_identity(identity for identity, _ in members)
    root = str(ROOT)
    return PackJob(name, "demo", str(folder), root, members, after=tuple((after or {}).items()))


@pytest.mark.more
def test_jobs_keep_states_beside_the_results_and_go_on_from_them(tmp_path):
    """Rows that may go on and rows that begin share a job, not a program; the records are those of whole rows."""
    configs = linear()
    stopped = [until(config, 20) for config in configs[:2]]
    execute_pack(_job(tmp_path, stopped), lambda *_: None)
    states = tmp_path / "states"
    names = [identity(config) for config in stopped]
    assert sorted(path.stem for path in states.iterdir()) == sorted(names)
    store = Store(tmp_path)
    assert store.outcomes(names) == dict.fromkeys(names, "stopped_early")
    assert [store.record(name)["summary"]["steps"] for name in names] == [20, 20]

    later = [until(config, 40) for config in configs[:3]]
    after = dict(zip(map(identity, later), names, strict=False))
    seen: list[tuple[int, list[bool]]] = []

    def watched(packed: list[TrialConfig], options: RunOptions) -> list[TrialResult]:
        results, at_step = begun(packed, start_states=options.start_states, end_states=options.end_states)
        seen.append((at_step, [slot is not None for slot in options.start_states]))
        return results

    report = execute_pack(_job(tmp_path, later, after), lambda *_: None, run=watched)
    assert set(report.finished) == set(map(identity, later))
    assert seen == [(20, [True, True]), (0, [])]
    for config, whole in zip(later, run_pack(later), strict=True):
        record, tables = store.result(identity(config))
        assert record["summary"] == whole.summary
        replicas = tables["replicas"][whole.tables["replicas"].columns]
        pd.testing.assert_frame_equal(replicas, whole.tables["replicas"], check_exact=True, check_dtype=False)

    store.forget_states([*names, "f" * 32])
    assert sorted(path.stem for path in states.iterdir()) == sorted(map(identity, later))
    ends = _job(tmp_path, configs[:3], dict(zip(map(identity, configs), map(identity, later), strict=False)))
    execute_pack(ends, lambda *_: None, run=watched)
    assert seen[2:] == [(40, [True, True, True])]
    assert len(list(states.iterdir())) == 3  # whole rows keep none
    store.forget_states()
    store.forget_states()
    assert not states.exists() or not list(states.iterdir())
