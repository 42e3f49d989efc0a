"""Sentences of several memories or tasks have the verb and the pronoun of their subject."""

from __future__ import annotations

import pytest

from memsweep.report.headline.stability import _every, _sentences

CLAUSE = "is not held stably under `direct` (T^−0.6); `exp` holds it (T^0.0)"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["parity"], "parity is not held stably under `direct` (T^−0.6); `exp` holds it (T^0.0)."),
        (["parity", "flip_flop"], "parity and flip_flop are not held stably under `direct` (T^−0.6); `exp` holds them"),
        (["a memory", "parity"], "a memory and parity are not held stably under `direct` (T^−0.6); `exp` holds them"),
        (["a memory", "b memory"], "a and b memory is not held stably under `direct` (T^−0.6); `exp` holds it (T^0.0)"),
    ],
)
def test_the_verb_follows_the_subject(names: list[str], said: str) -> None:
    (sentence,) = _sentences({("T = 4 at width 2", CLAUSE): names})
    assert sentence.startswith(f"For T = 4 at width 2, {said}")


def test_two_settings_are_both() -> None:
    assert [_every(["a", "b"], word, "") for word in ("every", "any")] == ["both settings", "either setting"]
    assert [_every("abc", word, "") for word in ("every", "any")] == ["all 3 settings", "any of 3 settings"]
    assert _every(["a", "b"], "every", "parameterization") == "both parameterizations"
