"""The plan: packs hold one program, nothing is planned twice. (Identities: test_identity.py.)"""

from __future__ import annotations

from dataclasses import replace

from engine import trial, usual_model
from memsweep.config.schema.study import ResourcesConfig, SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.sweep.planning import cost
from memsweep.sweep.planning.plan import PACK_REPLICAS, PACK_SECONDS, identified, make_packs, make_plan

BASE = trial(task={"kernel": "polynomial"})


def sweep_of(rows: list[TrialConfig]) -> SweepConfig:
    return SweepConfig(name="s", rows=tuple(rows), grid={}, resources=ResourcesConfig())


def test_packs_hold_everything_once_and_the_costliest_come_first():
    rows = [
        trial(task={"horizon": horizon, "kernel": kernel}, model={"width": width})
        for horizon in (20, 40)
        for kernel in ("exponential", "polynomial")
        for width in (2, 3)
    ]
    trials = identified(sweep_of(rows))
    packs = make_packs(trials, target_seconds=0.0)  # a program that shares its batches is cut for no other's sake
    assert [{t.config.task.horizon for t in pack.trials} for pack in packs] == [{40}, {20}]
    assert packs[0].cost > packs[1].cost > 0
    assert sorted(t.identity for pack in packs for t in pack.trials) == sorted(t.identity for t in trials)


def test_short_programs_go_together_and_long_ones_are_cut():
    """From Ray's view: a pack is neither shorter than worth scheduling, nor so long that cores wait for it."""
    short = [
        trial(task={"horizon": horizon}, training={"steps": 1}, perturbation={"balls": ()}) for horizon in range(10, 40)
    ]
    plan = make_plan(sweep_of(short), identified(sweep_of(short)), done=())
    assert len(plan.packs) == 1

    sampled = {"training": {"seeds": 5, "steps": 20_000}, "model": {"width": 8, "activation": "tanh"}}
    long = [
        trial(task={"horizon": 64}, model=sampled["model"], training=sampled["training"] | {"first_seed": 5 * n})
        for n in range(80)
    ]
    plan = make_plan(sweep_of(long), identified(sweep_of(long)), done=())
    shared = (1 + 5) * cost.shared(long[0])  # a program is cut where its own work is five times what its trials share
    assert len(plan.packs) > 4
    assert all(pack.cost <= max(PACK_SECONDS[1], shared) for pack in plan.packs)
    assert sorted(t.identity for pack in plan.packs for t in pack.trials) == sorted(t.identity for t in plan.trials)


def test_a_pack_has_no_two_parts_of_one_program():
    """A worker would run them as one, larger than any pack may be."""
    rows = [
        trial(task={"horizon": horizon}, training={"seeds": 100, "first_seed": 100 * n, "steps": 1})
        for horizon in (10, 20, 30)
        for n in range(7)
    ]
    for pack in make_packs(identified(sweep_of(rows))):
        for horizon in (10, 20, 30):
            assert sum(100 for t in pack.trials if t.config.task.horizon == horizon) <= PACK_REPLICAS


def test_a_trial_that_fills_an_ensemble_stays_with_the_others_of_it():
    """Ensembles are padded to 64 replicas: five more seeds in an open one cost next to nothing."""
    model = usual_model("dense_rnn", width=32)
    rows = [
        replace(trial(task={"horizon": 100}, training={"seeds": 5, "first_seed": 5 * n, "steps": 20_000}), model=model)
        for n in range(24)
    ]
    packs = make_packs(identified(sweep_of(rows)), target_seconds=0.1)
    assert {len(pack.trials) for pack in packs} == {12}


def test_a_sweep_that_goes_on_is_cut_as_at_first():
    """The packs that are left are packs of the whole plan, so they find their checkpoints."""
    rows = [
        trial(model={"width": 8, "activation": "tanh"}, training={"seeds": 5, "steps": 20_000, "first_seed": 5 * n})
        for n in range(240)
    ]
    trials = identified(sweep_of(rows))
    whole = make_plan(sweep_of(rows), trials, done=()).packs
    done = [t.identity for pack in whole[::2] for t in pack.trials]
    left = make_plan(sweep_of(rows), trials, done=done).packs
    assert len(whole) > 3
    assert {pack.identity for pack in left} == {pack.identity for pack in whole[1::2]}


def test_what_is_done_is_not_packed():
    trials = identified(sweep_of([trial(model={"width": width}) for width in (2, 3, 4)]))
    plan = make_plan(sweep_of([t.config for t in trials]), trials, done=[trials[1].identity])
    assert [t.identity for t in plan.packs[0].trials] == [trials[0].identity, trials[2].identity]
    everything = make_plan(sweep_of([t.config for t in trials]), trials, done=[t.identity for t in trials])
    assert everything.packs == ()
