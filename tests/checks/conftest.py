"""An audit of a module in tests/support/nets, with as much time as it needs: nothing in it depends on the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memsweep.checks.run import Audit, audit
from memsweep.checks.subject import Subject
from memsweep.models.base import Signature
from memsweep.models.module.config import ArgumentNames
from memsweep.models.module.factory import resolve
from paths import TESTS

Audited = Callable[..., Audit]


def subject_of(
    target: str, *, horizon: int = 128, width: int = 8, tokens: bool = False, names: Any = None, **given: Any
) -> Subject:
    factory = resolve(target, [TESTS / "support" / "nets"])
    sizes = 7 if tokens else 2
    signature = Signature(inputs=sizes, outputs=sizes, horizon=horizon)
    return Subject(
        lambda: factory.build(signature, width, given, names or ArgumentNames()), sizes, horizon, tokens=tokens
    )


@pytest.fixture
def audited() -> Audited:
    return lambda target, **settings: audit(subject_of(target, **settings), seconds=3600.0)


@pytest.fixture
def subject() -> Callable[..., Subject]:
    return subject_of
