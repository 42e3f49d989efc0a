"""Planted faults that outputs alone do not show, or show late: each is found by its check, and named as what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from memsweep.checks.finding import Status
from memsweep.checks.part import checks
from memsweep.checks.run import Audit
from memsweep.checks.subject import Subject


class Kind(NamedTuple):
    """A fault, the check that must find it, and a word of what it says; settings of its module."""

    target: str
    check: str
    said: str
    status: Status = Status.FAULT
    settings: Mapping[str, Any] = MappingProxyType({})


KINDS = {
    "a leak behind step 200": Kind(
        "audit_planted:LeaksBehind200", "causality", "not causal", settings={"horizon": 512}
    ),
    **{
        f"a leak at borders of {border}": Kind(
            "audit_planted:LeaksAtBorders",
            "causality",
            f"from step {border} on",
            settings={"horizon": 2 * border + 5, "border": border},
        )
        for border in (48, 128, 256)
    },
    "a small leak of float32 states": Kind("audit_planted:LeaksALittleInSingle", "causality", "not causal"),
    "a detached state": Kind("audit_planted:DetachesItsState", "derivatives", "autograd says"),
    "truncated gradients": Kind("audit_planted:ClampsGradients", "derivatives", "autograd says"),
    "a wrong backward function, by the input": Kind("audit_planted:HalvesGradients", "derivatives", "by inputs"),
    "a wrong backward function, by a weight": Kind("audit_planted:ForgetsTheLastStep", "derivatives", "enter.weight"),
    "a state kept in training alone": Kind("audit_planted:KeepsItsStateInTraining", "determinism", "call before"),
    "manual_seed in forward": Kind("audit_planted:Reseeds", "determinism", "torch's random generator"),
    "two names of one tensor": Kind("audit_planted:TwoNames", "parameters", "enter.weight = skip.weight", Status.NOTE),
    "two weights over one memory": Kind("audit_planted:SharesMemory", "parameters", "enter.weight = skip.weight"),
    "a table that is clamped": Kind("audit_planted:ClampsItsTable", "tables", "ends at step 100 of 128"),
    "an accumulator that never forgets": Kind("audit_planted:NeverForgets", "decay", "never forgets", Status.NOTE),
    "a number below float16": Kind("audit_planted:DividesByTooLittle", "finite", "float16", Status.NOTE),
    "a piece that begins without its state": Kind(
        "audit_caches:Stateful", "pieces", "in pieces", settings={"fault": "tail"}
    ),
    "a cache with more than one step": Kind(
        "audit_caches:CacheParams", "pieces", "in pieces", settings={"fault": "pieces"}
    ),
    "padding that moves the state": Kind(
        "audit_caches:PastKeyValues", "padding", "on the left", settings={"fault": "values not masked"}
    ),
    "padding that opens the gate": Kind(
        "audit_caches:CacheParams", "padding", "stays in the state", Status.NOTE, {"fault": "gate not masked"}
    ),
    "step and sequence of cache_params": Kind(
        "audit_caches:CacheParams", "forms", "two forms differ", settings={"fault": "step"}
    ),
    "step and sequence of past_key_values": Kind(
        "audit_caches:PastKeyValues", "forms", "two forms differ", settings={"fault": "step"}
    ),
    "step after setup_step": Kind(
        "audit_caches:SetsUpItsStep", "forms", "two forms differ", settings={"fault": "step"}
    ),
    "step of [B, 1, D]": Kind("audit_caches:StepsWithTime", "forms", "two forms differ", settings={"fault": "step"}),
    "a slight difference of float32 states": Kind(
        "audit_caches:StepsInSingle", "forms", "two forms differ", settings={"fault": "slight step"}
    ),
    "step with two states": Kind(
        "audit_caches:StepsWithTwoStates", "forms", "two forms differ", settings={"fault": "step"}
    ),
}
CLEAN = {
    "audit_planted:Gru": {"horizon": 300},
    "audit_planted:Scanned": {},
    "audit_caches:Stateful": {},
    "audit_caches:CacheParams": {},
    "audit_caches:PastKeyValues": {},
    "audit_caches:SetsUpItsStep": {},
    "audit_caches:StepsWithTime": {},
    "audit_caches:StepsInSingle": {},
    "audit_caches:StepsWithTwoStates": {},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_planted_fault_is_found_by_its_check(subject: Callable[..., Subject], name: str) -> None:
    kind = KINDS[name]
    (look,) = [check.look for check in checks() if check.name == kind.check]
    found = look(subject(kind.target, **kind.settings), 3600.0)
    assert found.status is kind.status, found.sentence
    assert kind.said in found.sentence


@pytest.mark.more
@pytest.mark.parametrize("target", CLEAN)
def test_the_modules_without_the_fault_raise_no_alarm(audited: Callable[..., Audit], target: str) -> None:
    audit = audited(target, **CLEAN[target])
    words = {"causality", "derivatives", "determinism", "parameters", "tables", "decay", "finite", "pieces", "padding"}
    loud = [each for each in audit.findings if each.status not in (Status.PASS, Status.SKIP)]
    assert not [each.sentence for each in loud if each.check in words | {"forms"}]


@pytest.mark.parametrize("target", ["audit_caches:Stateful", "audit_caches:CacheParams", "audit_caches:PastKeyValues"])
def test_a_state_in_good_order_passes(subject: Callable[..., Subject], target: str) -> None:
    one = subject(target)
    for check in checks():
        if check.name in ("forms", "pieces", "padding"):
            found = check.look(one, 3600.0)
            assert found.status is (Status.SKIP if "Stateful" in target and check.name == "padding" else Status.PASS)


def test_a_check_that_its_time_cut_off_is_not_enough(subject: Callable[..., Subject]) -> None:
    from memsweep.checks.run import audit

    found = audit(subject("audit_planted:Gru", horizon=300), seconds=1e-6)
    assert found.status is Status.NOT_ENOUGH
    causality = found["causality"]
    assert causality.status is Status.NOT_ENOUGH
    assert "Not looked at, for no time was left:" in causality.sentence
    assert "cuts, from step" in causality.left_out[0]
    known = {*causality.numbers["cuts"]}
    assert found["memory"].left_out[0].endswith("300 steps")
    (look,) = [check.look for check in checks() if check.name == "causality"]
    more = subject("audit_planted:Gru", horizon=300)
    assert known < {*look(more, 3600.0).numbers["cuts"]}
    assert more.left_out == []


def test_effort_decides_what_is_looked_at(subject: Callable[..., Subject]) -> None:
    (look,) = [check.look for check in checks() if check.name == "causality"]
    looked = []
    for effort in (1, 2):
        one = subject("audit_planted:Scanned", horizon=1100, width=2)
        one.effort = effort
        looked.append({*look(one, 3600.0).numbers["cuts"]})
    assert looked[0] < looked[1]
    for cuts in looked:
        assert {1 << power for power in range(11)} <= cuts
        assert {each + near for each in range(8, 513, 8) for near in (0, 1)} <= cuts
    assert {*range(8, 1025, 8)} <= looked[1]


def test_checks_are_in_the_order_of_their_places_and_each_has_one_file() -> None:
    places = [check.place for check in checks()]
    assert places == sorted(set(places))
    assert len({check.look.__module__ for check in checks()}) == len(checks())


@pytest.mark.parametrize("target", ["audit_planted:Gru", "transformer:Transformer"])
def test_the_curve_of_gradients_by_lag_lies_on_that_of_differences(
    subject: Callable[..., Subject], target: str
) -> None:
    (look,) = [check.look for check in checks() if check.name == "derivatives"]
    found = look(subject(target), 3600.0)
    assert found.status is Status.PASS
    given, differences = found.curves
    assert given.x == differences.x
    assert differences.y == pytest.approx(given.y, rel=0.05, abs=1e-3)
    assert max(given.y) > 10 * min(given.y) > 0
