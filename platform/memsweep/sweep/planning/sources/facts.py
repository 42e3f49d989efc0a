"""The facts of a user's file that its usual text leaves out, and that may change its numbers all the same.

The text of a statement (``memsweep.sweep.planning.sources.statements``) leaves out imports, annotations, messages and
the order of definitions. In memsweep's own code this is safe, and in most files of users, too. A file where it is not
counts with a second text: the whole file in its order, less what is safe to leave out everywhere. Files without such
facts have no second text, so that their identities stay.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import copy
import itertools
import math
import sys
import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from memsweep.sweep.planning.sources.members import names_bound
from memsweep.sweep.planning.sources.statements import (
    SENTENCES,
    WHOLE,
    References,
    is_log,
    is_named,
    is_text,
    is_type_only,
)

ENGINE = "memsweep"
_USUAL = {
    "F": "torch.nn.functional",
    "Image": "PIL.Image",
    "evals": "cogscale.evals",
    "functional": "torch.nn.functional",
    "load_digits": "sklearn.datasets.load_digits",
    "ms": "memsweep",
    "nn": "torch.nn",
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "rearrange": "einops.rearrange",
}
"""Names that stand for one thing wherever they are imported."""
_TORCH = frozenset(
    {
        *("torch", "torch.autograd", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.parameter"),
        *("torch.nn.utils", "torch.optim", "torch.utils.checkpoint", "torch.utils.data"),
    }
)
"""Modules of torch that share no names, but for those that ``torch`` itself has."""
_FIRST = (math, typing, collections.abc, itertools)
"""Modules whose names stand for what these have, before those of torch."""
_READERS = frozenset(
    {
        *("__annotations__", "get_annotations", "get_type_hints", "inspect"),
        *("register", "singledispatch", "singledispatchmethod", "plum", "pydantic"),
    }
)
"""Words of code that reads annotations."""
_OF_FIELDS = ("dataclass", "attr", "define")
"""Words in the names of decorators that make fields of annotations."""
_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")
"""Words in annotations that decide which fields a dataclass has."""
_Import = ast.Import | ast.ImportFrom

Bound = Callable[[Iterable[ast.AST]], References]
"""The names that imports bind to modules of the graph, and to definitions in them."""


def second_text(tree: ast.Module, bound: Bound) -> ast.Module | None:
    """The file less what changes no number; None where its usual text says all."""
    careful = _Careful(copy.deepcopy(tree), bound)
    return careful.tree if careful.counts else None


def settings_text(tree: ast.Module) -> str:
    """The annotations that say to ``wrap`` what an argument takes: of factories, of ``__init__`` and of fields.

    An ``int`` is what it takes an argument for that has none.
    """
    return "\n".join(each for each in _settings(tree) if not each.endswith(": int"))


def _settings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or node in tree.body):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            yield from (f"{node.name} {each.arg}: {ast.unparse(each.annotation)}" for each in given if each.annotation)
        elif isinstance(node, ast.ClassDef):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            yield from (f"{node.name} {ast.unparse(each.target)}: {ast.unparse(each.annotation)}" for each in fields)


class _Careful(ast.NodeTransformer):
    """Removes from a file what changes no number, and notes whether the usual text leaves out more than this.

    Attributes:
        tree: what is left.
        counts: whether the usual text leaves out a part of it.
    """

    def __init__(self, tree: ast.Module, bound: Bound) -> None:
        self._bound, self._ours = bound, _names_of_engine(tree)
        self._unclear = _unclear(tree) | _handed_on(tree, bound)
        _take_sentences(tree, self._ours)
        self._top = [*tree.body]
        self._annotated = bool(_READERS & _words(tree))
        self._reads_errors = any(isinstance(each, ast.ExceptHandler) and _reads(each) for each in ast.walk(tree))
        self._fields: list[ast.AST] = []
        self._loose = False
        self._ordered = _is_ordered(tree)
        self.counts = self._ordered or _modules_in(tree, bound) > 1
        self.tree = tree
        tree.body = [each for each in self._top if self._visit_top(each) is not None]

    def _visit_top(self, node: ast.stmt) -> ast.AST | None:
        # what an import in such a statement binds is not known to the usual text of others
        self._loose = not names_bound(node) and not isinstance(node, _Import)
        return self.visit(node)

    def visit_Import(self, node: ast.Import) -> ast.AST | None:
        known = self._bound([node]) if self._ordered else {}
        node.names = [
            each for each in node.names if not self._is_usual(*(own := _meaning(node, each))) or own[0] in known
        ]
        self.counts |= bool(node.names)
        return node if node.names else None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        known = {} if self._loose else self._bound([node])
        node.names = [
            each for each in node.names if not self._is_usual(*_meaning(node, each)) and not self._is_found(each, known)
        ]
        self.counts |= bool(node.names)
        return node if node.names else None

    def _is_usual(self, name: str, target: str) -> bool:
        return name not in self._unclear and _is_usual(name, target)

    def _is_found(self, alias: ast.alias, known: References) -> bool:
        """Whether the usual text says what a name stands for: code of the graph, and no matter when that runs."""
        own = alias.asname in (None, alias.name) and alias.name != "*" and not self._ordered
        return own and alias.name in known and alias.name not in self._unclear

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.counts |= is_log(node)
        return None if is_text(node) else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if is_type_only(node):
            if not node.orelse:
                return None
            self.counts, node.body = True, []
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.counts |= node.name in SENTENCES and node not in self._top
        node.returns = self._annotation(node.returns)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = self._annotation(node.annotation)
        return node

    def _annotation(self, given: ast.expr | None, *, is_field: bool = False) -> ast.expr | None:
        kept = given if self._annotated or is_field else None
        self.counts |= kept is not None
        return kept

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if any(word in ast.unparse(each) for each in node.decorator_list for word in _OF_FIELDS):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            self._fields += [each for each in fields if any(word in ast.unparse(each.annotation) for word in _FIELDS)]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if isinstance(node.value, ast.Call) and is_named(node.value.func, {"setting"}):
            if "setting" in self._ours:
                return None
            self.counts = True
        node.annotation = self._annotation(node.annotation, is_field=node in self._fields) or ast.Constant(None)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            if self._reads_errors or _carries(node.exc):
                self.counts = True
            else:
                node.exc = node.exc.func
        node.cause = node.cause if self._reads_errors else None
        self.counts |= node.cause is not None
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = node.msg if self._reads_errors else None
        self.counts |= node.msg is not None
        return self.generic_visit(node)


def _is_usual(name: str, target: str) -> bool:
    """Whether a name stands for what it stands for in every file that imports it by itself."""
    import torch

    source, _, word = target.rpartition(".")
    if name in _USUAL or not source:
        return target in (name, _USUAL.get(name))
    if name != word or word == "*":
        return False
    if any(word in dir(first) for first in _FIRST):
        return any(source == first.__name__ for first in _FIRST)
    if word in torch.__all__:
        return source == "torch"
    return source in _TORCH or source.partition(".")[0] in sys.stdlib_module_names


def _meaning(node: _Import, alias: ast.alias) -> tuple[str, str]:
    """The name that an import binds, and what it stands for."""
    if isinstance(node, ast.ImportFrom):
        return alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"
    top = alias.name.partition(".")[0]
    return (alias.asname, alias.name) if alias.asname else (top, top)


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, _Import):
            yield from (_meaning(node, alias) for alias in node.names)


def _unclear(tree: ast.Module) -> set[str]:
    """Names that two imports bind to different things, or an import and another statement."""
    counted = Counter(name for name, _ in set(_imports(ast.walk(tree))))
    counted.update({name for node in tree.body for name in names_bound(node)})
    return {name for name, count in counted.items() if count > 1}


def _handed_on(tree: ast.Module, bound: Bound) -> set[str]:
    """Names from several files that are imported for other files alone: no statement says what they stand for."""
    found = bound(ast.walk(tree))
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return found.keys() - used if len({source for source, _ in found.values()}) > 1 else set()


def _names_of_engine(tree: ast.Module) -> set[str]:
    return {name for name, target in _imports(tree.body) if target.partition(".")[0] == ENGINE}


def _take_sentences(tree: ast.Module, ours: Collection[str]) -> None:
    """Removes the methods for readers from the parts that a file registers: memsweep alone calls them."""
    registered = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and _is_registered(each, ours)]
    for owner in (inner for each in registered for inner in ast.walk(each) if isinstance(inner, ast.ClassDef)):
        owner.body = [each for each in owner.body if not (isinstance(each, ast.FunctionDef) and each.name in SENTENCES)]


def _is_registered(node: ast.ClassDef, ours: Collection[str]) -> bool:
    names = [ast.unparse(each.func if isinstance(each, ast.Call) else each).split(".") for each in node.decorator_list]
    return any(name[0] in ours and name[-1].startswith("register_") for name in names)


def _words(tree: ast.Module) -> set[str]:
    """The names and attributes in a file, and the parts of those that it imports."""
    imported = {word for _, target in _imports(ast.walk(tree)) for word in target.split(".")}
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return imported | names | {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}


def _reads(handler: ast.ExceptHandler) -> bool:
    """Whether the code for an error reads it, but for another error that it raises."""
    waiting: list[ast.AST] = [*handler.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and node.id == handler.name:
            return True
        waiting += () if isinstance(node, ast.Raise) else ast.iter_child_nodes(node)
    return False


def _carries(error: ast.Call) -> bool:
    """Whether an error of the user's own is made of more than texts: another file may read it."""
    name = ast.unparse(error.func)
    if name != "StopIteration" and hasattr(builtins, name):
        return False
    return bool(error.keywords) or not all(map(_is_words, error.args))


def _is_words(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_ordered(tree: ast.Module) -> bool:
    """Whether the order of a file's statements may count: a name has two values, or a statement binds none."""
    counted = Counter({name for name, _ in _imports(tree.body)})
    for node in tree.body:
        counted.update({*names_bound(node)})
    acts = (not names_bound(each) and not _is_idle(each) for each in tree.body)
    return any(count > 1 for count in counted.values()) or any(acts)


def _is_idle(node: ast.stmt) -> bool:
    script = isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test).startswith("__name__ ==")
    return script or isinstance(node, _Import | ast.Pass) or is_text(node) or is_type_only(node)


def _modules_in(tree: ast.Module, bound: Bound) -> int:
    """The number of names for modules of users: the usual text does not say which of them an attribute is of."""
    return sum(word == WHOLE for _, word in bound(ast.walk(tree)).values())
