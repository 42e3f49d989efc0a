"""Members of a class that count by themselves: methods and fields that were added after identities were fixed.

A class counts with the members that ``members.txt`` lists: those that it had when identities were fixed. A later member
counts for the trials that may reach it: where a definition of the closure mentions its name, as an attribute, a
keyword, a variable or a string. Where it may be reached without its name, it always counts: a special method
(``__call__``), a method of ``nn.Module`` (which calls ``forward``), a member of a class with another foreign base, a
metaclass or a foreign decorator, and a field that is read by ``asdict``. A field that comes before others counts where
its class is called with arguments by position, which it shifts.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTED = Path(__file__).with_name("members.txt")
_UNPACKED = frozenset({"ArgumentNames", "RolesConfig", "Signature", "Turn"})
"""Dataclasses whose fields are read one after the other."""
_BY_NAME = frozenset({"getattr", "setattr", "hasattr"})
_PLAIN_BASES = frozenset({"object", "ABC", "Generic", "Protocol", "nn.Module"})
"""Foreign bases that reach members by their names alone."""


@dataclass(frozen=True)
class Member:
    """A later member of a class.

    Attributes:
        owner: qualified name of the class.
        name: of the member.
        node: its statement.
        always: it counts wherever its class does.
        shifts: it counts where its class is called with arguments by position.
    """

    owner: str
    name: str
    node: ast.stmt
    always: bool
    shifts: bool

    @property
    def words(self) -> list[str]:
        """The words that reach it; an empty one is always there."""
        call = [_call_of(self.owner)] if self.shifts else []
        return [""] if self.always else [self.name, *call]

    @property
    def key(self) -> str:
        """Its name in its module: ``Model.spare``."""
        return f"{self.owner}.{self.name}"


@functools.cache
def listed() -> dict[str, frozenset[str]]:
    """Qualified name of a class -> the members that count with it; of classes of one name, those of each."""
    lines = _LISTED.read_text(encoding="utf-8").splitlines()
    return {owner: frozenset(names.split()) for owner, _, names in (line.partition(":") for line in lines)}


def take_later(node: ast.ClassDef, prefix: str = "") -> list[Member]:
    """Removes the later members from a class, and from the classes in it, and returns them."""
    owner = f"{prefix}{node.name}"
    old = listed().get(owner, frozenset())
    taken: list[Member] = []
    kept: list[ast.stmt] = []
    for place, each in enumerate(node.body):
        names = set(names_bound(each))
        if isinstance(each, ast.ClassDef) and each.name in old:
            taken += take_later(each, f"{owner}.")
        if not names or names & old:
            kept.append(each)
            continue
        shifts = isinstance(each, ast.AnnAssign) and _shifts(node, place, old)
        _keep_default(each)
        reached = node.name in _UNPACKED or _is_open(node) or (shifts and "cls(" in ast.unparse(node))
        taken += [Member(owner, name, each, reached or _is_called(name), shifts) for name in sorted(names)]
    node.body = kept or [ast.Pass()]
    return taken


def bases(node: ast.ClassDef) -> Iterator[ast.expr]:
    """The bases, of a class and of the classes in it, that may be foreign."""
    for base in (base for each in ast.walk(node) if isinstance(each, ast.ClassDef) for base in each.bases):
        plain = base.value if isinstance(base, ast.Subscript) else base
        if ast.unparse(plain) not in _PLAIN_BASES:
            yield plain


def names_bound(node: ast.stmt) -> list[str]:
    """Names that a statement in a class, or at the top of a module, binds, imports apart."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    return []


def mentioned(node: ast.AST) -> Iterator[str]:
    """The words in a syntax tree by which a member could be reached; ``state_*`` of ``getattr(x, f"state_{name}")``."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.keyword) and each.arg:
            yield each.arg
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield from filter(str.isidentifier, each.value.split("."))
        elif isinstance(each, ast.Call) and each.args:
            yield _call_of(ast.unparse(each.func))
            if ast.unparse(each.func) in _BY_NAME:
                yield from (f"{_beginning(name)}*" for name in each.args[1:2] if isinstance(name, ast.JoinedStr))


def _call_of(function: str) -> str:
    """The word of a call with arguments by position."""
    return f"{function.rpartition('.')[2]}("


def _beginning(text: ast.JoinedStr) -> str:
    """The text before the first value in a formatted string."""
    first = text.values[0]
    return str(first.value) if isinstance(first, ast.Constant) else ""


def mentioned_in(names: Iterable[str], words: Collection[str]) -> set[str]:
    """The names of members that words reach: each by its name, or, with a star, by the beginning of it."""
    beginnings = tuple(word[:-1] for word in words if word.endswith("*"))
    return {name for name in names if name in words or name.startswith(beginnings)}


def _keep_default(node: ast.stmt) -> None:
    """Takes out of a field that ``setting`` declares everything but its default: the rest is for checks and words."""
    call = getattr(node, "value", None)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "setting":
        call.args = call.args[:1]
        call.keywords = [each for each in call.keywords if each.arg == "factory"]


def _shifts(node: ast.ClassDef, place: int, old: frozenset[str]) -> bool:
    """Whether fields that were there before follow a new one, and are given by position."""
    if any("kw_only" in ast.unparse(each) for each in node.decorator_list):
        return False
    after = (each for each in node.body[place + 1 :] if isinstance(each, ast.AnnAssign))
    return any(old.intersection(names_bound(each)) for each in after)


def _is_called(name: str) -> bool:
    """Whether Python or torch calls a method of this name."""
    from torch import nn

    return name.startswith("__") or hasattr(nn.Module, name)


def _is_open(node: ast.ClassDef) -> bool:
    """Whether a metaclass or a decorator may look at the members of a class."""
    decorators = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    names = (ast.unparse(each).rpartition(".")[2] for each in decorators)
    return bool(node.keywords) or not all(name == "dataclass" or name.startswith("register_") for name in names)
