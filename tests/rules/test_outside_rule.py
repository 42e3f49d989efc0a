"""A learning rule of another distribution: its own tests run the suite, which holds it and refuses a wrong claim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distribution import installed
from sweeping import environment

pytestmark = pytest.mark.more

RULE = '''
from memsweep.registry import register_rule
from memsweep.rules.base import Rule


@register_rule("online_input")
class OnlineInput(Rule):
    """The input of a unit learns by the diagonal of a step's Jacobian; how it forgets learns from one step."""

    def traced(self, unit):
        return unit.part_names - unit.forgetting


@register_rule("online_bold")
class OnlineBold(OnlineInput):
    """The same, with a claim to be exact where every state feels all others."""

    exact = True

    @classmethod
    def refusal(cls, model, config):
        return None
'''
SUITES = """
import far_rule

from memsweep.testing import RuleSuite


class TestOnlineInput(RuleSuite):
    rule = "online_input"


class TestOnlineBold(RuleSuite):
    rule = "online_bold"
    unit = "rnn"


del RuleSuite
"""


def test_its_own_tests_run_the_suite(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    site = installed("far_rule", {"__init__.py": RULE}, tmp_path_factory)
    (tmp_path / "test_rule.py").write_text(SUITES)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment(site), capture_output=True, text=True, timeout=600
    )
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    assert len(failed) == 1, ended.stdout + ended.stderr
    assert "TestOnlineBold::test_where_it_claims_to_be_exact" in failed[0]
    assert "expected by differences" in ended.stdout
