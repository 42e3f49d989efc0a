"""Planted faults of the kinds that users of recurrent modules reported: each is found by its check alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from memsweep.checks.contract.shapes import shapes
from memsweep.checks.finding import Status
from memsweep.checks.run import Audit
from memsweep.checks.subject import Subject
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
    "OverwritesItsInputs": {"determinism"},
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


def test_inputs_that_are_overwritten_are_no_state(audited: Callable[..., Audit]) -> None:
    found = audited("audit_contract:OverwritesItsInputs")["determinism"]
    assert re.fullmatch(r"It changes its inputs in place \(by .* times their size\): .* x \+= y\.", found.sentence)
    assert found.numbers["inputs_changed"] > 0.1
    assert found.numbers["difference"] == found.numbers["training"] == 0


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


class Gives(nn.Module):
    """A leaky sum, whose outputs come in a form of the caller's choice."""

    def __init__(self, form: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.rate, self.form = nn.Parameter(torch.tensor(0.5)), form

    def forward(self, inputs: Tensor) -> Any:
        outputs = inputs.cumsum(1) * self.rate
        return self.form(outputs, outputs[:, -1])


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (lambda outputs, last: outputs, ""),
        (lambda outputs, last: (outputs, last), ""),
        (lambda outputs, last: {"logits": outputs, "state": last}, r"gives a dict.*returns net\(x\)\['logits'\]"),
        (lambda outputs, last: [outputs, last], r"gives a list that begins with a Tensor.*returns net\(x\)\[0\]"),
        (lambda outputs, last: ((outputs, last), last), r"a tuple that begins with a tuple.*returns net\(x\)\[0\]"),
        (lambda outputs, last: outputs[..., 0], r"gives outputs \[B, T\].*returns net\(x\).unsqueeze\(-1\)"),
    ],
)
def test_a_form_of_outputs_that_studies_refuse_is_a_note(form: Callable[[Tensor, Tensor], Any], told: str) -> None:
    found = shapes(Subject(lambda: Gives(form), 1, 16), 3600.0)
    assert found.status is (Status.NOTE if told else Status.PASS)
    assert re.search(told, found.sentence)
