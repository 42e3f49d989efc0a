"""Reads definitions from source files, and the definitions that each of them refers to.

A definition is a function, a class or a variable at the top of a module. Its text is its syntax tree without the parts
that cannot change a number (``memsweep.sweep.planning.sources.statements``). The name of its module is no part of it:
code may move from file to file. A branch for some trials alone is a text of its own beside that of its definition: it
counts for the trials whose closure holds its condition. A method or a field that was added to a class later is a
definition of its own (``memsweep.sweep.planning.sources.members``): one that no trial reaches moves none.

Modules outside of memsweep count as a whole, because foreign code may find its own parts in any way.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memsweep.sweep.planning.sources.facts import second_text, settings_text
from memsweep.sweep.planning.sources.kept import Kept
from memsweep.sweep.planning.sources.members import bases, mentioned, mentioned_in, names_bound, take_later
from memsweep.sweep.planning.sources.moved import as_before
from memsweep.sweep.planning.sources.statements import (
    SENTENCES,
    WHOLE,
    Branch,
    Definition,
    References,
    is_text,
    is_type_only,
    read_statement,
    read_text,
    spelled,
)

_EFFECTS = ""
"""In place of a name: statements that define nothing. They run whenever the module is imported."""
ANNOTATIONS = ".annotations"
"""In place of a name: what a user's file says of the settings of layers, which counts where memsweep wraps them. With
its point, it is no part of ``WHOLE``."""
OTHER_CODE = frozenset({".pyx", ".so", ".pyd", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".cuh"})
"""Suffixes of code in other languages. Such files count with the Python modules of their folder."""
_LATER_CODE = {
    **{f"{name}.cpp": name for name in ("selective_layer", "state_space", "stack_of_inputs")},
    **dict.fromkeys(("stack_of_inputs.h", "stack_of_few_inputs.cpp"), "stack_of_inputs"),
    **dict.fromkeys(("gated_few.h", "gate_panels.h"), "gated"),
}
"""Those of the kernels that came after identities were fixed: one counts for the trials whose code mentions the name
here (``memsweep.recurrence.compiled.library.Kernel.function``)."""
_IMPORTS = frozenset({ast.Import, ast.ImportFrom})
_C_COMMENT = re.compile(rb'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/', re.DOTALL)

Cut = Callable[[Definition], bool]
"""Whether a definition is left out of a closure."""


@dataclass
class Module:
    """One source file, read.

    Attributes:
        texts: name of a definition -> hash of its text.
        references: name of a definition -> the references in its text.
        branches: name of a definition -> its branches.
        mentions: name of a definition -> the words in its text.
        members: name of a class -> its later members, which are definitions as well: key, and words that reach it.
        bases: name of a class -> its bases; None for one that is not part of the graph.
        imports: name that an import at the top binds -> the definition it stands for.
        outside: top names of all modules that the file imports.
    """

    texts: dict[str, str] = field(default_factory=dict)
    references: dict[str, References] = field(default_factory=dict)
    branches: dict[str, list[Branch]] = field(default_factory=dict)
    mentions: dict[str, set[str]] = field(default_factory=dict)
    members: dict[str, list[tuple[str, list[str]]]] = field(default_factory=dict)
    bases: dict[str, list[Definition | None]] = field(default_factory=dict)
    imports: dict[str, Definition] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)


class SourceGraph:
    """The definitions of source files, as nodes, and their references, as edges.

    Args:
        find: path of a module by its dotted name; None for a module that is not part of the graph.
        is_whole: whether a module counts as a whole.
        kept: what processes before this one read of the other modules; None: all are read.
    """

    def __init__(
        self, find: Callable[[str], Path | None], is_whole: Callable[[str], bool], kept: Kept | None = None
    ) -> None:
        self._find, self._is_whole, self._kept = find, is_whole, kept
        self._modules: dict[str, Module] = {}
        self._loaded = False
        self._other: dict[Path, dict[Path, str]] = {}  # of a folder: many closures ask for the same

    def closure(self, roots: Iterable[Definition], cut: Cut) -> frozenset[Definition]:
        """The roots and all definitions that they refer to, at any depth.

        Args:
            roots: definitions to begin with.
            cut: which definitions are left out, with everything that only they refer to.
        """
        reached: set[Definition] = set()
        words = {""}
        members: set[tuple[str, Definition]] = set()  # later members of the classes so far, after the word for each
        waiting = [self._resolve(root) for root in roots]
        while waiting:
            definition = waiting.pop()
            if definition not in reached and not cut(definition):
                reached.add(definition)
                for _, references in self._parts(definition, cut):
                    waiting += map(self._resolve, references.values())
                words |= self._mentions(definition)
                members.update(self._members(definition))
            if not waiting:
                reaching = mentioned_in({word for word, _ in members}, words)
                found = {each for each in members if each[0] in reaching}
                waiting, members = [member for _, member in found if member not in reached], members - found
        return frozenset(reached)

    def digest(self, reached: Iterable[Definition], cut: Cut) -> str:
        """A hash of the texts of definitions and of the texts that each name in them stands for, 16 hex digits.

        Of code that moved, those that it had before.
        """
        if self._kept is not None:
            self._kept.save({name: module for name, module in self._modules.items() if not self._is_whole(name)})
        return hashlib.sha256("\n".join(sorted(as_before(self.lines(reached, cut)))).encode()).hexdigest()[:16]

    def lines(self, reached: Iterable[Definition], cut: Cut) -> set[str]:
        """The texts of definitions, each with those that the names in it stand for, and of code beside them."""
        reached = [*reached]
        lines = {line for definition in reached for line in self._lines(definition, cut)}
        # a user's file may have the word of a kernel, and does not call it
        words = {""}.union(*(self._mentions(each) for each in reached if not self._is_whole(each[0])))
        for path in filter(None, map(self._find, {module for module, _ in reached})):
            if path.parent not in self._other:
                self._other[path.parent] = dict(_other_code(path.parent))
            found = self._other[path.parent].items()
            lines.update(line for file, line in found if _LATER_CODE.get(file.name, "") in words)
        return lines

    def outside(self, reached: Iterable[Definition]) -> set[str]:
        """Top names of the modules that the modules of these definitions import."""
        return set().union(*(self._module(name).outside for name in {module for module, _ in reached}))

    def forget(self, module: str) -> None:
        """Drops what was read of a module, so that its file is read again."""
        self._modules.pop(module, None)
        self._other.clear()
        if not self._is_whole(module):  # its file changed since this process began
            self._kept = None

    def foreign(self) -> list[str]:
        """The modules read so far that count as a whole."""
        return [name for name in self._modules if self._is_whole(name)]

    def _module(self, name: str) -> Module:
        if self._kept is not None and not self._loaded:
            self._loaded = True
            self._modules = self._kept.load() | self._modules
        if name not in self._modules:
            path = self._find(name)
            self._modules[name] = Module() if path is None else self._read(name, path)
        return self._modules[name]

    def _resolve(self, definition: Definition) -> Definition:
        """The definition at the end of a chain of imports; the whole module where the name is not found."""
        seen: set[Definition] = set()
        while definition not in seen:
            seen.add(definition)
            name, word = definition
            if word in (WHOLE, ANNOTATIONS) or self._is_whole(name):
                return name, word if word == ANNOTATIONS else WHOLE
            module = self._module(name)
            if word in module.texts:
                return definition
            if word not in module.imports:
                return name, WHOLE
            definition = module.imports[word]
        return definition[0], WHOLE

    def _mentions(self, definition: Definition) -> set[str]:
        """The words by which a definition could reach a member of a class."""
        name, word = definition
        found = self._module(name).mentions
        return set().union(*(found.values() if word == WHOLE else (found.get(word, ()), found.get(_EFFECTS, ()))))

    def _members(self, definition: Definition) -> Iterator[tuple[str, Definition]]:
        """The later members of a class, or of all classes of a module, each after the word that reaches it."""
        name, word = definition
        found = self._module(name).members
        for owner in found if word == WHOLE else [word]:
            for key, words in found.get(owner, ()):
                always = self._has_foreign_base((name, owner))
                yield from ((word, (name, key)) for word in ([""] if always else words))

    def _has_foreign_base(self, definition: Definition) -> bool:
        """Whether a class, or one in it, has a base, at any depth, that is not part of the graph."""
        seen: set[Definition] = set()
        waiting: list[Definition | None] = [definition]
        while waiting:
            if (base := waiting.pop()) is None or (found := self._resolve(base))[1] == WHOLE:
                return True
            if found not in seen:
                seen.add(found)
                waiting += self._module(found[0]).bases.get(found[1], ())
        return False

    def _parts(self, definition: Definition, cut: Cut) -> Iterator[tuple[str, References]]:
        """Hash and references of everything that counts with a definition."""
        name, word = definition
        module = self._module(name)
        for each in module.texts if word == WHOLE else (word, _EFFECTS):
            if each in module.texts and not (word == WHOLE and "." in each):
                yield module.texts[each], module.references[each]
            for condition, text, references in module.branches.get(each, ()):
                if not cut(self._resolve(condition)):
                    yield text, references

    def _lines(self, definition: Definition, cut: Cut) -> Iterator[str]:
        for text, references in self._parts(definition, cut):
            meanings = {
                spelling: "" if cut(target) else [text for text, _ in self._parts(target, cut)]
                for spelling, target in ((spelling, self._resolve(given)) for spelling, given in references.items())
            }
            yield f"{text} {sorted(meanings.items())}"

    def _read(self, name: str, path: Path) -> Module:
        if path.suffix != ".py":
            return Module({_EFFECTS: _hash(path.read_bytes())}, {_EFFECTS: {}})
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # nothing can have imported it
            return Module()
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        return self._read_tree(name, tree, _Imports(package, self._find))

    def _read_tree(self, name: str, tree: ast.Module, imports: _Imports) -> Module:
        within = [(node, _imports_in(node)) for node in tree.body]
        module = Module(outside=_top_names(each for _, found in within for each in found))
        within = [(node, found) for node, found in within if not is_type_only(node)]
        module.imports = imports.bound_by(node for node, _ in within)
        defined = {word: (name, word) for node, _ in within for word in names_bound(node)}
        texts: dict[str, list[str]] = {}
        if self._is_whole(name):
            texts[_EFFECTS], module.references[_EFFECTS] = [], self._foreign_imports(name, tree, imports)
            self._add_facts(tree, imports, texts, module)
        for node, found in within:
            if type(node) in _IMPORTS or is_text(node):
                continue
            known = defined | module.imports | imports.bound_by(found)
            for word, statement in self._statements(name, node, known, module):
                text, references, branches, words = read_statement(statement, known, own=not self._is_whole(name))
                texts.setdefault(word, []).append(text)
                module.references.setdefault(word, {}).update(references)
                module.branches.setdefault(word, []).extend(branches)
                module.mentions.setdefault(word, set()).update(words)
        module.texts = {word: _hash("\n".join(parts).encode()) for word, parts in texts.items()}
        return module

    def _foreign_imports(self, name: str, tree: ast.Module, imports: _Imports) -> References:
        """Imports of other foreign modules, and the packages that this one is in: each runs, used or not."""
        imported = {source for source, _ in imports.bound_by(ast.walk(tree)).values()}
        words = name.split(".")
        around = {".".join(words[:length]) for length in range(1, len(words))}
        found = {*imported, *(package for package in around if _runs(self._find(package)))}
        return {f"import {source}": (source, WHOLE) for source in sorted(found) if self._is_whole(source)}

    def _add_facts(self, tree: ast.Module, imports: _Imports, texts: dict[str, list[str]], module: Module) -> None:
        """Adds what the usual text of a foreign module leaves out, where it counts."""
        if settings := settings_text(tree):
            texts[ANNOTATIONS], module.references[ANNOTATIONS] = [settings], {}
        if (second := second_text(tree, imports.bound_by)) is not None:
            texts[_EFFECTS].append(spelled(second))
            module.mentions[_EFFECTS] = {*mentioned(second)}
            module.references[_EFFECTS] |= read_text(second, imports.bound_by(ast.walk(tree)))[1]

    def _statements(self, name: str, node: ast.stmt, known: References, module: Module) -> list[tuple[str, ast.stmt]]:
        """A statement after each name that it binds; of a class, notes its bases and later members, which follow it."""
        statements = [(word, node) for word in names_bound(node) or [_EFFECTS]]
        if isinstance(node, ast.ClassDef) and not self._is_whole(name):
            module.bases[node.name] = [_base(each, known) for each in bases(node)]
            later = [each for each in take_later(node) if each.name not in SENTENCES]
            module.members[node.name] = [(each.key, each.words) for each in later]
            statements += [(each.key, each.node) for each in later]
        return statements


@dataclass(frozen=True)
class _Imports:
    """The names that the imports of one module bind.

    Attributes:
        package: dotted name of the package that relative imports begin from.
        find: as for ``SourceGraph``.
    """

    package: str
    find: Callable[[str], Path | None]

    def bound_by(self, nodes: Iterable[ast.AST]) -> References:
        """Names that imports among these nodes bind to modules of the graph, or to definitions in them."""
        bound: References = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if self.find(alias.name) is not None:
                        bound[alias.asname or alias.name.partition(".")[0]] = (alias.name, WHOLE)
            elif isinstance(node, ast.ImportFrom):
                source = self._source(node)
                for alias in node.names:
                    if self.find(f"{source}.{alias.name}") is not None:
                        bound[alias.asname or alias.name] = (f"{source}.{alias.name}", WHOLE)
                    elif self.find(source) is not None:
                        bound[alias.asname or alias.name] = (source, alias.name)
        return bound

    def _source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        above = self.package.split(".")
        return ".".join(filter(None, (*above[: len(above) - node.level + 1], node.module)))


def _runs(path: Path | None) -> bool:
    """Whether a file is that of a package, and has statements."""
    if path is None or path.name != "__init__.py":
        return False
    try:
        return not all(map(is_text, ast.parse(path.read_bytes()).body))
    except (SyntaxError, ValueError):  # nothing can have imported it
        return False


def _base(node: ast.expr, known: References) -> Definition | None:
    """The definition that a base of a class stands for: of a class in a class, the outer one."""
    names = ast.unparse(node).split(".")
    module, word = known.get(names[0], ("", ""))
    return None if not module else (module, names[1]) if word == WHOLE and len(names) > 1 else (module, word)


def _imports_in(statement: ast.stmt) -> list[ast.AST]:
    return [each for each in ast.walk(statement) if type(each) in _IMPORTS]


def _top_names(imports: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in imports:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _other_code(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files in other languages in a module's folder, and in folders below that are no packages, with hashes."""
    for path in code_below(folder, OTHER_CODE):
        content = path.read_bytes()
        if path.suffix not in (".so", ".pyd", ".pyx"):
            content = b" ".join(_C_COMMENT.sub(lambda match: match[1] or b" ", content).split())
        yield path, f"{path.name} {_hash(content)}"


def code_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files with these suffixes in a folder and in its sub-folders that are no packages, sorted."""
    inner = [path for path in folder.iterdir() if path.is_dir() and not (path / "__init__.py").is_file()]
    own = [path for path in folder.iterdir() if path.suffix in suffixes and path.is_file()]
    return sorted([*own, *(path for each in inner for path in code_below(each, suffixes))])


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@functools.cache
def folders_of(top: str) -> list[Path]:
    """The folders that hold a top-level module or package."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    inside = spec.submodule_search_locations
    own = [spec.origin] if spec.origin and spec.has_location else []  # a part of Python itself has no place
    places = [Path(place) for place in (inside or own) if Path(place).exists()]
    # a link is followed, so that a package under development is not taken for an installed one; under another name
    # than that of its target it is where the link lies
    return [real.parent if (real := place.resolve()).name == place.name else place.parent.resolve() for place in places]
