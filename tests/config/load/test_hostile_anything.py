"""Whatever a study file or a command line holds: it loads, or a ConfigError says what is wrong; nothing is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from config_study import BASE
from memsweep.config.load.study import load_study
from memsweep.errors import ConfigError
from paths import ROOT

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=12),
    st.sampled_from(["exp", "direct", "linear_functional", "${model.width}", "${name}", "???", "1e400", "~", ".nan"]),
)  # fmt: skip
KEYS = st.one_of(
    st.sampled_from(["task", "model", "training", "perturbation", "grid", "resources", "claims", "protocol", "chain",
                     "name", "defaults", "width", "steps", "horizon", "parameterization", "model.width", "rows",
                     "source", "where", "along", "carry", "into", "radii", "balls", "first"]),
    st.text(max_size=8), st.integers(-5, 5), st.none(), st.booleans(),
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
VALID: dict[str, Any] = yaml.safe_load((ROOT / "search_spaces" / "start" / "quickstart.yaml").read_text())


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid study with something else put in, or something taken out, at a few places."""
    study = yaml.safe_load(yaml.safe_dump(VALID))
    for _ in range(draw(st.integers(1, 3))):
        node = study
        while isinstance(node, dict | list) and node:
            key = draw(st.sampled_from(list(node) if isinstance(node, dict) else list(range(len(node)))))
            if not isinstance(node[key], dict | list) or draw(st.integers(0, 2)) == 0:
                if draw(st.booleans()):
                    node[key] = draw(TREES)
                elif isinstance(node, dict):
                    node[draw(KEYS)] = node.pop(key)
                else:
                    del node[key]
                break
            node = node[key]
    return study


def only_config_errors(folder: Path, text: str, *words: str) -> None:
    """Load what may be anything: it loads, or there is a ConfigError of a bearable length; nothing is written."""
    path = folder / "study.yaml"
    path.write_text(text, "utf-8", errors="surrogatepass")
    told = ""
    with contextlib.suppress(ConfigError):
        try:
            load_study(str(path), words, ROOT)
        except ConfigError as error:
            told = str(error)
            raise
    assert len(told) < 20_000
    assert [entry.name for entry in folder.iterdir()] == ["study.yaml"]


TEXTS = st.one_of(st.text(max_size=200), st.text(alphabet="abc:- []{}&*!|>'\"%@`#,?\n\t${}.", max_size=60))
PATHS = st.one_of(
    st.sampled_from(["model", "model.width", "model.parameterization", "training", "training.steps", "task", "grid",
                     "task.kernel", "name", "claims", "protocol", "chain", "resources", "grid.task", "grid.model.width",
                     "perturbation.radii", "defaults", "hydra", "perturbation.radii.from", "training/x", "task@model"]),
    st.text(max_size=10),
)  # fmt: skip
VALUES = st.one_of(
    SCALARS.map(str),
    st.lists(SCALARS.map(str), max_size=4).map(",".join),
    st.text(alphabet="[]{}(),:'\"\\ =1ax$.", max_size=20),
    st.sampled_from(["[1,2]", "{name: exp}", "range(1,4)", "range(0,1,0.3)", "choice(1,2)", "glob(*)", "interval(0,1)",
                     "sort(3,1)", "shuffle(1,2)", "tag(x,1)", "int('x')", "[[[]]]", "{a: {b: c}}", "null", "${task}"]),
)  # fmt: skip
WORD = st.tuples(st.sampled_from(["", "+", "++", "~"]), PATHS, VALUES).map(
    lambda parts: f"{parts[0]}{parts[1]}={parts[2]}"
)
ANYTHING: dict[str, tuple[st.SearchStrategy[Any], Callable[[Path, Any], None]]] = {
    "a tree": (
        st.one_of(st.dictionaries(KEYS, TREES, max_size=5), TREES),
        lambda folder, tree: only_config_errors(folder, yaml.safe_dump(tree, allow_unicode=True)),
    ),
    "a study with mistakes": (
        mutated(),
        lambda folder, study: only_config_errors(folder, yaml.safe_dump(study), "~grid.task.horizon"),
    ),
    "a text": (TEXTS, only_config_errors),
    "overrides": (
        st.lists(st.one_of(st.text(max_size=30), WORD), max_size=4),
        lambda folder, words: only_config_errors(folder, BASE, *words),
    ),
}


@pytest.mark.parametrize(
    "examples",
    [8, pytest.param(int(os.environ.get("MEMSWEEP_EXAMPLES", "300")), marks=[pytest.mark.drill, pytest.mark.long])],
)
@pytest.mark.parametrize("what", ANYTHING)
def test_anything_loads_or_is_refused_in_words(tmp_path, what, examples):
    strategy, check = ANYTHING[what]

    @settings(max_examples=examples, deadline=None)
    @given(strategy)
    def holds(value: Any) -> None:
        check(tmp_path, value)

    holds()
