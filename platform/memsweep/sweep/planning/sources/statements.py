"""The part of a statement that can change a number, as text, and the definitions that it refers to.

Left out are comments, docstrings, annotations, messages of errors and logs, functions for readers alone
(``SENTENCES``), what memsweep says where code of others fails (``_GUARD``), and fields declared by ``setting`` (their
values are in a trial's identity). A branch for some trials alone (``_BRANCHES``) is a text of its own in memsweep's own
code. Of what is left out of users' code, ``memsweep.sweep.planning.sources.facts`` says what counts all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

from memsweep.sweep.planning.sources.members import mentioned

WHOLE = "*"
"""In place of a name: all definitions of a module."""
SENTENCES = frozenset(
    {
        *("problems", "problems_of_code", "problems_of_states", "problems_of_certificates", "problems_without_steps"),
        *("notes_of_code", "guessed_roles", "closed_forms", "count_parameters"),
    }
)
"""Names of functions for plans, descriptions and provenance: no number of a trial rests on them."""
_WORDING, _GUARD = "sentence", "foreign_code"
"""In memsweep's own code, the name of a function that words an error of other code, and of the guard that takes it."""
_BRANCHES = frozenset(
    {
        "asks_groups",
        "asks_measures",
        "asks_settings",
        "carries_settings",
        "drops",
        "freezes_weights",
        "groups_by_pattern",
        "has_layer_units",
        "holds_complex",
        "holds_special_tensors",
        "holds_torch_layers",
        "influence_decides",
        "keeps_files",
        "is_beyond_torch",
        "lacks_map",
        "mixes_models",
        "omits_encoder",
        "reads_inputs",
        "refers_elsewhere",
        "suits",
        "takes_copies",
        "takes_modulus",
        "takes_seeds",
        "trains_by_convolution",
        "trains_over_sequences",
        "transforms_blocks",
        "wraps",
    }
)
"""Names of functions of a trial. A statement ``if name(...):`` without else is a branch of the trials they hold for."""
_LOGGERS = frozenset({"_log", "logging", "warnings"})

Definition = tuple[str, str]
"""Name of a module and a name at its top, or ``WHOLE``."""
References = dict[str, Definition]
"""Spelling of a name in a text -> the definition that it stands for."""
Branch = tuple[Definition, str, References]
"""Its condition, its text, and the references in it."""


class _Stripper(ast.NodeTransformer):
    """Removes from a statement the parts that cannot change a number, and its branches, which it keeps."""

    def __init__(self, *, own: bool) -> None:
        self.branches: list[ast.If] = []
        self._own = own

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(getattr(node, "body", None), list):  # of a block; a lambda's body is an expression
            kept = [each for each in node.body if not (_is_removable(each) or self._is_said(each))]  # type: ignore[attr-defined]
            branches = [each for each in kept if self._own and is_branch(each)]
            self.branches += branches
            node.body = [each for each in kept if each not in branches] or [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        node.exc = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        node.cause = None
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self._own and is_named(node.func, {_GUARD}):
            node.args, node.keywords = [], []
        return self.generic_visit(node)

    def _is_said(self, node: ast.AST) -> bool:
        return self._own and isinstance(node, ast.FunctionDef) and node.name == _WORDING

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)


def _is_removable(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name in SENTENCES
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.value, ast.Call) and is_named(node.value.func, {"setting"})
    return isinstance(node, ast.Import | ast.ImportFrom) or is_text(node) or is_type_only(node) or is_log(node)


def is_text(node: ast.AST) -> bool:
    """A docstring, or another text that stands alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_type_only(node: ast.AST) -> bool:
    """A block that type checkers alone read."""
    return isinstance(node, ast.If) and is_named(node.test, {"TYPE_CHECKING"})


def is_branch(node: ast.AST) -> bool:
    """Whether a statement is for the trials alone that its condition holds for."""
    test = node.test if isinstance(node, ast.If) and not node.orelse else None
    return isinstance(test, ast.Call) and is_named(test.func, _BRANCHES)


def is_log(node: ast.AST) -> bool:
    """A call of a log, or of what is called like one."""
    call = node.value if isinstance(node, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    return isinstance(function, ast.Attribute) and is_named(function.value, _LOGGERS)


def is_named(node: ast.AST, names: Collection[str]) -> bool:
    """Whether an expression is one of these names."""
    return isinstance(node, ast.Name) and node.id in names


def read_statement(
    node: ast.stmt, known: References, *, own: bool = True
) -> tuple[str, References, list[Branch], set[str]]:
    """The text of a statement, which is stripped, by spelling the definitions that its names stand for, the same of
    its branches, after the condition of each, and the words in all of it.

    A local variable with a known name counts as a reference, too: one too many moves an identity, and loses no change.
    """
    stripper = _Stripper(own=own)
    stripped = stripper.visit(node)
    branches = [(known[branch.test.func.id], *read_text(branch, known)) for branch in stripper.branches]  # type: ignore[attr-defined]
    words = {word for each in (stripped, *stripper.branches) for word in mentioned(each)}
    return *read_text(stripped, known), branches, words


def read_text(stripped: ast.AST, known: References) -> tuple[str, References]:
    """The text of a syntax tree, and the references in it."""
    references: References = {}
    for each in ast.walk(stripped):  # an attribute comes before the name that it belongs to
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            module, name = known.get(each.value.id, ("", ""))
            if name == WHOLE:
                references[f"<module>.{each.attr}"] = (module, each.attr)
                each.value.id = "<module>"  # under which name a module was imported does not matter
        elif isinstance(each, ast.Name) and each.id in known:
            references[each.id] = known[each.id]
    return spelled(stripped), references


def spelled(value: Any) -> str:
    """A syntax tree as text, the same on every version of Python: fields without content are left out."""
    if isinstance(value, ast.AST):
        filled = [(name, given) for name, given in ast.iter_fields(value) if given is not None and given != []]
        return f"{type(value).__name__}({','.join(f'{name}={spelled(given)}' for name, given in filled)})"
    if isinstance(value, list):
        return f"[{','.join(map(spelled, value))}]"
    return repr(value)
