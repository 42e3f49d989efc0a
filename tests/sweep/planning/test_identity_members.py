"""Members of classes: the first ones count with their class, later ones by themselves."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_identity_code import PACKAGE, module_name
from test_identity_process import UNUSED, with_members

from engine import trial, usual_model
from memsweep.config.core.fields import setting
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import SearchConfig
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import (
    PerturbationConfig,
    TrialConfig,
)
from memsweep.measures.bits import Bits
from memsweep.measures.capacity import Capacity
from memsweep.measures.memory_over_inputs import MemoryOverInputs
from memsweep.measures.worst_inputs import WorstInputs
from memsweep.sweep.planning import identity as identities
from memsweep.sweep.planning.fingerprint import code_fingerprint, forget
from memsweep.sweep.planning.identity import identifying, identity, without_later
from memsweep.sweep.planning.sources.members import listed, mentioned, mentioned_in, take_later
from memsweep.sweep.planning.sources.source_graph import SourceGraph
from memsweep.sweep.planning.sources.statements import WHOLE

BASE, DIAGONAL, TRAINING = "models/base.py", "models/modal/diagonal_rnn.py", "config/schema/training.py"
Edit = Callable[[dict[str, str]], list[str]]


def measured_in_every_way() -> TrialConfig:
    asked = (Bits.Config(roundings=("fixed_recurrent",)), Capacity.Config(bits=(4,), radii=(0.1,)))
    perturbation = PerturbationConfig(asked_measures=(*asked, MemoryOverInputs.Config(), WorstInputs.Config()))
    return dataclasses.replace(trial(), model=usual_model("stable_ssm"), perturbation=perturbation)


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Reads files of the engine with other texts, and gives the fingerprints of the trials then."""
    trials = [trial(), dataclasses.replace(trial(), model=usual_model("lru")), measured_in_every_way()]
    contents: dict[Path, bytes] = {}
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: contents[path] if path in contents else read(path))

    def fingerprints(texts: dict[str, str]) -> list[str]:
        contents.update({PACKAGE / name: text.encode() for name, text in texts.items()})
        forget(*(module_name(PACKAGE / name) for name in texts))
        return [code_fingerprint(config) for config in trials]

    yield fingerprints
    monkeypatch.undo()
    forget(*map(module_name, contents))


def grown(name: str, **added: str) -> str:
    return with_members(PACKAGE / name, {owner: f"{text}\n" for owner, text in added.items()})


def mentioning(word: str) -> str:
    """The source of the diagonal model, whose code mentions a word."""
    text = (PACKAGE / DIAGONAL).read_text()
    assert text.count("        return Traits(") == 1
    return text.replace("        return Traits(", f"        config.{word}\n        return Traits(")


def test_unused_members_move_no_trial(edited: Edit) -> None:
    before = edited({})
    assert edited({name: with_members(PACKAGE / name, added) for name, added in UNUSED.items()}) == before
    first = "    linear: bool = False\n"
    text = (PACKAGE / BASE).read_text()
    assert text.count(first) == 1
    assert edited({BASE: text.replace(first, f"    spare: int = 0\n{first}")}) == before


def test_a_later_method_moves_the_trials_that_mention_it(edited: Edit) -> None:
    before = edited({})
    assert edited({BASE: grown(BASE, LayerModel="    def spare(self):\n        return 1 + 1")}) == before
    called = edited({DIAGONAL: mentioning("spare")})
    changed = edited({BASE: grown(BASE, LayerModel="    def spare(self):\n        return 1 - 1")})
    assert [one == other for one, other in zip(called, changed, strict=True)] == [False, True, True]
    assert called[1:] == before[1:]


def test_a_later_method_brings_what_it_refers_to(edited: Edit) -> None:
    edited({DIAGONAL: mentioning("spare")})
    method = "    def spare(self):\n        return spare_helper()"
    one = edited({BASE: grown(BASE, LayerModel=method) + "\n\ndef spare_helper():\n    return 1 + 1\n"})
    two = edited({BASE: grown(BASE, LayerModel=method) + "\n\ndef spare_helper():\n    return 1 - 1\n"})
    assert [first == second for first, second in zip(one, two, strict=True)] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "owner", "text"),
    [
        (BASE, "Model", "    def __call__(self):\n        return 1"),
        (BASE, "LayerModel", "    def train(self, mode=True):\n        return 1"),  # torch calls it
        (BASE, "LayerModel", "    def ensemble_of(self):\n        return 1"),  # in the place of the one of Model
    ],
)
def test_a_later_method_that_is_called_without_a_mention_counts(edited: Edit, name: str, owner: str, text: str) -> None:
    before = edited({})
    after = edited({name: grown(name, **{owner: text})})
    assert not set(before) & set(after)


@pytest.mark.parametrize(
    ("code", "reached"),
    [
        ("getattr(config, 'spare')", True),
        ('getattr(config, f"spa{config.name}")', True),
        ('getattr(config, f"{config.name}re")', True),
        ('getattr(config, f"tire_{config.name}")', False),
        ("replace(config, spare=1)", True),
        ("config['model.spare']", True),
        ("config.respare", False),
        ("folder.glob('*.py')", False),
    ],
)
def test_a_name_may_be_mentioned_as_text(code: str, reached: bool) -> None:
    assert bool(mentioned_in(["spare"], set(mentioned(ast.parse(code))))) is reached


def test_a_changed_default_of_a_later_field_moves_the_trials_that_read_it(edited: Edit) -> None:
    edited({DIAGONAL: mentioning("spare")})
    one, words, two = (
        edited({TRAINING: grown(TRAINING, TrainingConfig=f"    spare: float = setting({value}, {doc!r})")})
        for value, doc in ((1.5, "a doc"), (1.5, "another doc"), (2.5, "a doc"))
    )
    assert one == words
    assert [first == second for first, second in zip(one, two, strict=True)] == [False, True, True]


@pytest.mark.parametrize(
    ("source", "always"),
    [
        ("class Model(nn.Module, ABC):\n    def spare(self): ...", False),
        ("@dataclass(frozen=True)\nclass Traits:\n    linear: bool\n    spare: int = 0", False),
        ("@dataclass(frozen=True, kw_only=True)\nclass Traits:\n    spare: int = 0\n    linear: bool = False", False),
        ("@dataclass\nclass Signature:\n    spare: int = 0", True),
        ("@total_ordering\nclass Traits:\n    def spare(self): ...", True),
        ("class Traits(metaclass=Meta):\n    def spare(self): ...", True),
        ("class Model(nn.Module):\n    def forward_spare(self): ...\n    def state_dict(self): ...", True),
    ],
)
def test_what_may_be_reached_without_its_name_always_counts(source: str, always: bool) -> None:
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    *_, last = take_later(node)
    assert last.always is always


def test_a_later_field_of_a_search_at_its_default_makes_no_other_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds of its samplers follow from its key."""
    plain = SearchConfig()
    assert without_later(to_dict(plain), plain) == to_dict(plain)
    known = {**listed(), "SearchConfig": listed()["SearchConfig"] - {"startup"}}
    monkeypatch.setattr(identities, "listed", lambda: known)
    other = dataclasses.replace(plain, startup=plain.startup + 1)
    assert to_dict(plain).keys() - without_later(to_dict(plain), plain).keys() == {"startup"}
    assert without_later(to_dict(other), other) == to_dict(other)


@pytest.mark.parametrize(
    ("decorator", "call", "reached"),
    [
        ("dataclass(frozen=True)", "Traits(True)", True),
        ("dataclass(frozen=True)", "base.Traits(*given)", True),
        ("dataclass(frozen=True)", "Traits(linear=True)", False),
        ("dataclass(kw_only=True)", "Traits(True)", False),
    ],
)
def test_a_field_before_others_counts_where_arguments_go_by_position(decorator: str, call: str, reached: bool) -> None:
    (node,) = ast.parse(f"@{decorator}\nclass Traits:\n    spare: int = 0\n    linear: bool = False").body
    assert isinstance(node, ast.ClassDef)
    (member,) = take_later(node)
    words = set(mentioned(ast.parse(call)))
    assert bool(mentioned_in(member.words, words)) is reached


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own:
    size: int = setting(1, "of a user's class")


def test_a_later_field_at_its_default_is_in_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    before, plain = identifying(TrainingConfig()), identity(trial())
    known = {**listed(), "TrainingConfig": listed()["TrainingConfig"] - {"patience"}}
    monkeypatch.setattr(identities, "listed", lambda: known)
    identities._counting.cache_clear()
    try:
        assert before.keys() - identifying(TrainingConfig()).keys() == {"patience"}
        assert identifying(TrainingConfig(patience=3))["patience"] == 3
        assert identity(trial()) != plain
        assert identity(trial(training={"patience": 3})) != identity(trial())
        assert identifying(Own())["size"] == 1  # of a class that memsweep does not know, every field counts
    finally:
        identities._counting.cache_clear()


@pytest.mark.parametrize(
    "text", ["class Task:\n    def sentence(self):\n        return {}\n", "x = foreign_code({})\n"]
)
def test_code_of_a_user_counts_whatever_its_names(tmp_path: Path, text: str) -> None:
    """The names of what words memsweep's errors are nobody else's."""

    def digest(number: int, *, whole: bool) -> str:
        (tmp_path / "user.py").write_text(text.format(number))
        graph = SourceGraph(lambda name: tmp_path / f"{name}.py", lambda name: whole)
        return graph.digest(graph.closure([("user", WHOLE)], lambda _: False), lambda _: False)

    assert digest(1, whole=True) != digest(2, whole=True)
    assert digest(1, whole=False) == digest(2, whole=False)
