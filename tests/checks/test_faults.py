"""Planted faults of the kinds that users of recurrent modules reported: each is found by its check alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memsweep.checks.finding import Status
from memsweep.checks.run import Audit
from memsweep.models.module.config import ArgumentNames

SELECTIVE = {
    "IgnoresItsInput": {"decay", "parameters"},
    "DeclaresNothing": {"parameters"},
    "DeclaresOneDecay": {"decay", "parameters"},
    "OffAtOne": {"forms"},
    "NeverReachesOne": {"decay"},
    "ForgetsAtChunks": {"forms"},
    "DividesByProducts": {"finite", "forms"},
    "HasModes": {"forms"},
}
CONTRACT = {
    "SeesTheMean": {"causality"},
    "SeesTheNext": {"causality"},
    "MixesTheBatch": {"batch"},
    "ReadsTimeFirst": {"batch"},
    "KeepsDropping": {"determinism"},
    "KeepsItsState": {"determinism"},
    "SqueezesOne": {"shapes"},
    "HalfState": {"precision"},
    "ZeroWeights": {"parameters"},
    "Grows": {"finite"},
    "NormWithoutEpsilon": {"parameters"},
}


def faults(audit: Audit) -> set[str]:
    return {finding.check for finding in audit.findings if finding.status is Status.FAULT}


@pytest.mark.parametrize("name", SELECTIVE)
def test_a_fault_of_a_selective_recurrence_is_found(audited: Callable[..., Audit], name: str) -> None:
    horizon = 1024 if name == "NeverReachesOne" else 300  # 0.99 takes some hundred steps to look unlike 1
    assert faults(audited(f"audit_selective:{name}", horizon=horizon)) == SELECTIVE[name]


@pytest.mark.parametrize("name", CONTRACT)
def test_a_fault_of_the_contract_is_found(audited: Callable[..., Audit], name: str) -> None:
    assert faults(audited(f"audit_contract:{name}")) == CONTRACT[name]


CLEAN = {
    "audit_selective:Selective": {"horizon": 300},
    "audit_selective:HasModes": {"handed_over": 1.0},
    "audit_selective:Squashes": {"horizon": 300},
    "audit_selective:SquashesWithoutSteps": {"horizon": 300},
    "audit_contract:Leaky": {},
    "min_gru:MinGRU": {"layers": 2},
    "selective_ssm:SelectiveSSM": {"names": ArgumentNames(width="d_model")},
    "transformer:Transformer": {},
    "torch_rnn:gru": {},
    "torch_rnn:lstm": {"layers": 2, "dropout": 0.2},
    "torch_rnn:TokenGRU": {"tokens": True},
}


@pytest.mark.parametrize("target", CLEAN)
def test_modules_without_a_fault_raise_no_alarm(audited: Callable[..., Audit], target: str) -> None:
    audit = audited(target, **CLEAN[target])
    assert faults(audit) == set()
    single = audit["precision"].numbers["float32"]
    assert max(error for regime in single.values() for error in regime["error"]) < 1e-4
    measured = {finding.check for finding in audit.findings if finding.numbers}
    assert measured >= {"shapes", "causality", "memory", "gradient", "decay", "precision", "finite", "cost"}


def test_a_fault_is_located(audited: Callable[..., Audit]) -> None:
    """The operation, the line of the user's file and the step, as whoever sees NaN asks for them."""
    found = audited("audit_contract:Grows")["finite"]
    (problem,) = [one for one in found.numbers["not_finite"] if (one["dtype"], one["regime"]) == ("float32", "noise")]
    assert problem["operation"] == "exp"
    assert problem["line"].startswith("audit_contract.py:")
    assert ".exp()" in problem["line"]
    # exp overflows float32 beyond 88.7, and the sum of 1 + mean|x| over steps grows by 1.8 a step
    assert 35 < problem["step"] < 60
    half = audited("audit_contract:HalfState")["precision"].sentence
    assert "bfloat16" in half
    assert "audit_contract.py:" in half
    gradient = audited("audit_contract:NormWithoutEpsilon")["parameters"].sentence
    assert "squares" in gradient
