"""Identity: the code that a trial runs counts, and no other code does."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flips import bases, part

import memsweep
from engine import NETS, trial, usual_model, usual_unit
from memsweep import registry
from memsweep.config.schema.batch_loss import CONVOLUTION, SEQUENCES, STATISTICS, way_of
from memsweep.config.schema.trial import ChainConfig, PerturbationConfig, TrialConfig
from memsweep.sweep.planning import fingerprint
from memsweep.sweep.planning.fingerprint import (
    CHAINED,
    CONDITIONAL,
    CORE,
    EXEMPT,
    code_closure,
    code_fingerprint,
    forget,
)
from memsweep.sweep.planning.identity import identity
from memsweep.sweep.planning.sources.members import Member, take_later
from memsweep.sweep.planning.sources.source_graph import SourceGraph
from memsweep.sweep.planning.sources.statements import SENTENCES, WHOLE, Definition, is_branch
from memsweep.trial import run_pack

PACKAGE = Path(memsweep.__file__).parent


def test_a_chained_trial_counts_the_code_of_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a number from them, and their parts may be others than its own."""
    chain = ChainConfig(along="model.parameterization", first=1.0, earlier=("direct", "softplus"))
    config = dataclasses.replace(trial(), chain=chain)
    before, alone = identity(config), identity(trial())
    definitions_of = fingerprint._definitions_of

    def moved(part: type) -> set[Definition]:
        direct = registry.get("parameterization", "direct")
        return definitions_of(registry.get("parameterization", "best") if part is direct else part)

    monkeypatch.setattr(fingerprint, "_definitions_of", moved)
    assert identity(config) != before
    assert identity(trial()) == alone


def test_the_code_that_reads_configs_moves_no_trial_chained_or_not() -> None:
    chained = dataclasses.replace(trial(), chain=ChainConfig(along="model.width", first=1.0, earlier=(2,)))
    for config in (trial(), chained):
        read = [each for each in code_closure(config) if each[0].startswith("memsweep.config")]
        assert not [each for each in read if each[0].startswith(("memsweep.config.core", "memsweep.config.schema.can"))]
        assert (("memsweep.config.schema.chain", "resolve_chain") in read) is (config is chained)


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> list[TrialConfig]:
    """Trials that together name every registered part, each with other code; tasks that read data sets are left out."""
    configs: dict[str, TrialConfig] = {}
    layer = part("unit", "module", factory=f"{NETS}/torch_rnn.py:gru")
    stack = dataclasses.replace(trial(), model=part("model", "residual_stack", unit=layer))
    bare = [
        dataclasses.replace(
            trial(), model=part("model", "residual_stack", unit=part("unit", name), features=8, encoder__="none")
        )
        for name in ("gru", "lstm")
    ]
    for config in (*bases(str(tmp_path_factory.mktemp("no_data"))), stack, *bare):
        if not {"folder", "file"} & vars(config.task).keys():
            configs.setdefault(code_fingerprint(config), shortened(config))
    return list(configs.values())


def shortened(config: TrialConfig) -> TrialConfig:
    """The same code in a moment of time."""
    training = dataclasses.replace(
        config.training, seeds=1, steps=4, batch_size=4, validation_size=4, validate_every=2, until=None, turns=()
    )
    perturbation = PerturbationConfig(starts=1, ascent_steps=1, test_size=4)
    return dataclasses.replace(config, training=training, perturbation=perturbation, chain=None)


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def definitions_in(path: Path) -> list[tuple[str, int, int]]:
    """(name, first line, last line) of every definition at the top of a file."""
    lines = []
    for node in ast.parse(path.read_bytes()).body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        lines += [(name, first, node.end_lineno or first) for name in names]
    return lines


# The code that runs is in the closure.


def executed(run: Callable[[], object]) -> set[Definition]:
    """The definitions of the engine whose code runs in a call."""
    codes: set[types.CodeType] = set()

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    inside = (code for code in codes if code.co_filename.startswith(f"{PACKAGE}{os.sep}"))
    return {name for code in inside if (name := definition_of(code)) is not None}


def definition_of(code: types.CodeType) -> Definition | None:
    path = Path(code.co_filename)
    for name, first, last in definitions_in(path):
        if first <= code.co_firstlineno <= last and code.co_name != "<module>":
            return module_name(path), name
    return None


NOT_OF_A_TRIAL = (
    *("memsweep.registry", "memsweep.errors", "memsweep.outcome", "memsweep.config", "memsweep.sweep"),
    "memsweep.learning.ensemble.frozen",  # whether a model freezes weights is asked of all of them
)
"""Rooms that a trial calls, and that its closure leaves out."""
LAYERS = "memsweep.models.module.torch_layers"
NO_ENCODER = "memsweep.models.deep.no_encoder.first_layer"
OF_A_CONDITION = {
    **{f"{NO_ENCODER}.{name}": (NO_ENCODER, name) for name in ("omits_encoder", "reads_inputs", "lacks_map")},
    "memsweep.models.module.influence": ("memsweep.models.module.influence", "influence_decides"),
    **{f"{LAYERS}.{name}": (LAYERS, "holds_torch_layers") for name in ("_holds", "_is_known", "_as_compiled")},
}
"""Code that a condition runs to find its answer, after which it is in the closure where that holds. Where it does not,
what it gave is what was there before, and is dropped: a change of it that moves a number makes it hold.
"""


@pytest.mark.more
def test_all_code_that_a_trial_executes_is_in_its_closure(trials: list[TrialConfig]) -> None:
    """Measured for every registered part; so code that a condition leaves out was seen not to run."""
    kept = dict.fromkeys(CONDITIONAL, 0)
    for config in trials:
        closure = code_closure(config)
        ran = executed(functools.partial(run_pack, [config]))
        whole = {module for module, name in closure if name == "*"}
        missing = {each for each in ran - closure if each[0] not in whole and not each[0].startswith(NOT_OF_A_TRIAL)}
        missing = {each for each in missing if ".".join(each) not in CONDITIONAL}  # asked of all, and held by some
        asked = tuple(code for code, condition in OF_A_CONDITION.items() if condition not in closure)
        missing = {each for each in missing if not ".".join(each).startswith(asked)}
        assert missing == set(), f"{config.task.name} by {config.model.name}: executed, but not in its identity"
        assert len(ran & closure) > 60
        for prefix in CONDITIONAL:
            kept[prefix] += any(".".join(each).startswith(prefix) for each in closure)
    assert len(trials) > 20
    always = {prefix for prefix, count in kept.items() if count == len(trials)}
    assert always <= {"memsweep.recurrence.compiled"}, "conditions that always hold"  # where a compiler is, all run it


def test_every_exempt_and_conditional_name_exists() -> None:
    assert all(len(reason) > 15 for reason in EXEMPT.values())
    for name in (*EXEMPT, *CONDITIONAL, *(".".join(root) for root in (*CORE, *CHAINED))):
        path = PACKAGE.parent.joinpath(*name.split("."))
        module = path.parent.with_name(f"{path.parent.name}.py")
        is_module = (path / "__init__.py").is_file() or path.with_name(f"{path.name}.py").is_file()
        assert is_module or path.name in {each for each, *_ in definitions_in(module)}, name


# A change of code moves exactly the trials whose closure holds it.

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Pow: ast.Mult},
    **{ast.MatMult: ast.Mult, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv, ast.USub: ast.UAdd},
    **{ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}


def operators(node: ast.AST) -> Iterator[Any]:
    """Expressions of a definition whose operator runs for all its trials and can change a number."""
    if is_branch(node) or isinstance(node, ast.Raise | ast.arg):
        return
    if isinstance(node, ast.FunctionDef) and node.name in SENTENCES:
        return
    if isinstance(node, ast.AnnAssign) and ast.unparse(getattr(node.value, "func", ast.Pass())) == "setting":
        return
    if type(getattr(node, "op", None)) in OPERATORS or type(next(iter(getattr(node, "ops", [])), None)) in OPERATORS:
        yield node
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "msg"):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from operators(each)


def mutants(path: Path, every: int = 1, offset: int = 0) -> Iterator[tuple[str, bytes]]:
    """Of each ``every``-th definition of a file: its name, and the file with one of its operators changed.

    A member that was added to its class later is a definition, too.
    """
    tree = ast.parse(path.read_bytes())
    later = {each.key: each.node for node in ast.parse(path.read_bytes()).body for each in later_members(node)}
    lines = {node.lineno: key for key, node in later.items() if any(operators(node))}
    for node in [node for node in tree.body if any(operators(node))][offset % every :: every]:
        names = [name for name, first, last in definitions_in(path) if first <= node.lineno <= last]
        own = [each for each in operators(node) if not any(_within(each, member) for member in later.values())]
        for name in names[:1] if own else []:
            yield name, with_other_operator(tree, own[len(own) // 2])
        for member in (each for each in ast.walk(node) if isinstance(each, ast.stmt) and each.lineno in lines):
            yield lines.pop(member.lineno), with_other_operator(tree, next(operators(member)))


def later_members(node: ast.stmt) -> list[Member]:
    return take_later(node) if isinstance(node, ast.ClassDef) else []


def _within(node: ast.AST, statement: ast.stmt) -> bool:
    return statement.lineno <= node.lineno <= (statement.end_lineno or 0)  # type: ignore[attr-defined]


def with_other_operator(tree: ast.Module, node: Any) -> bytes:
    before = dict(vars(node))
    if hasattr(node, "op"):
        node.op = OPERATORS[type(node.op)]()
    else:
        node.ops = [OPERATORS[type(node.ops[0])](), *node.ops[1:]]
    content = ast.unparse(tree).encode()
    vars(node).update(before)
    return content


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> dict[Path, bytes]:
    """Files that are read with another content than they have."""
    contents: dict[Path, bytes] = {}
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: contents[path] if path in contents else read(path))
    return contents


def sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "testing" not in path.parts]


def check_mutants(paths: list[Path], every: int, rewritten: dict[Path, bytes], trials: list[TrialConfig]) -> int:
    """How many mutants were made of these files. Each moved exactly the trials whose closure holds its definition."""
    before = [code_fingerprint(config) for config in trials]
    closures = [code_closure(config) for config in trials]
    count = 0
    for number, path in enumerate(paths):
        module = module_name(path)
        for name, content in mutants(path, every, number):
            rewritten[path] = content
            forget(module)
            moved = [code_fingerprint(config) != given for config, given in zip(trials, before, strict=True)]
            assert moved == [bool({(module, name), (module, "*")} & closure) for closure in closures], (module, name)
            count += 1
        rewritten.clear()
        forget(module)
    return count


def in_closures(trials: list[TrialConfig]) -> list[Path]:
    modules = {module for config in trials for module, _ in code_closure(config)}
    return [path for path in sources() if module_name(path) in modules]


def test_a_changed_operator_moves_exactly_the_trials_that_run_it(
    rewritten: dict[Path, bytes], trials: list[TrialConfig]
) -> None:
    """One definition in ten of some files, and six trials of different kinds."""
    inside = in_closures(trials)
    outside = [path for path in sources() if path not in inside]
    some = trials[:: max(1, len(trials) // 6)]
    assert check_mutants(inside[::4], 10, rewritten, some) > 5
    assert check_mutants(outside[::40], 10, rewritten, some) > 1


@pytest.mark.long
@pytest.mark.more
def test_every_changed_operator_moves_exactly_the_trials_that_run_it(
    rewritten: dict[Path, bytes], trials: list[TrialConfig]
) -> None:
    """One definition in three of each file of the closures, and trials that name every registered part."""
    inside = in_closures(trials)
    assert check_mutants(inside, 3, rewritten, trials) > 100
    assert check_mutants([path for path in sources() if path not in inside], 20, rewritten, trials) > 15


def of_every_way() -> dict[str, TrialConfig]:
    configs = {}
    for way, width, horizon in ((STATISTICS, 8, 100), (CONVOLUTION, 64, 520), (SEQUENCES, 8, 520)):
        config = shortened(trial(task={"horizon": horizon}, model={"width": width}))
        configs[way] = dataclasses.replace(config, perturbation=PerturbationConfig(balls=(), test_size=4))
        assert way_of(config) == way
    return configs


def test_a_long_trial_executes_what_is_in_its_closure() -> None:
    for config in of_every_way().values():
        ran = executed(functools.partial(run_pack, [config])) - code_closure(config)
        ran = {each for each in ran if ".".join(each) not in CONDITIONAL}  # asked of all, and held by some
        assert {each for each in ran if not each[0].startswith(NOT_OF_A_TRIAL)} == set()


def test_a_branch_moves_the_trials_that_take_it(rewritten: dict[Path, bytes]) -> None:
    configs, path = of_every_way(), PACKAGE / "trial.py"
    before, content = {way: code_fingerprint(config) for way, config in configs.items()}, path.read_bytes()
    for text, other, moved in (
        (b'data["way"] = SEQUENCES', b'data["way"] = "other"', {SEQUENCES}),
        (b'data["way"] = CONVOLUTION', b'data["way"] = "other"', {CONVOLUTION}),
        (b"loss = ConvolvedLoss(", b"loss = ExactLoss(", {CONVOLUTION}),
        (b"if trains_by_convolution(first):", b"if True:", set(configs)),
        (b"model_class: type[Model] =", b"model_class = 1 +", set(configs)),
    ):
        assert content.count(text) == 1
        rewritten[path] = content.replace(text, other)
        forget("memsweep.trial")
        assert {way for way, config in configs.items() if code_fingerprint(config) != before[way]} == moved, text
    rewritten.clear()
    forget("memsweep.trial")


GATED = ("min_gru", "min_lstm", "hgrn", "rg_lru")


def stack_of(unit: str) -> Any:
    return usual_model("residual_stack", unit=usual_unit(unit), width=8, features=8)


def test_a_kernel_moves_all_trials_and_one_that_came_later_those_that_name_it(rewritten: dict[Path, bytes]) -> None:
    models = {name: stack_of(name) for name in ("s6", "ssd", "ssd_selective", "gru", *GATED)}
    models["no encoder"] = dataclasses.replace(models["gru"], encoder__="none")
    configs = {"diagonal": trial()} | {
        name: dataclasses.replace(trial(), model=model) for name, model in models.items()
    }
    before = {name: code_fingerprint(config) for name, config in configs.items()}
    for file, text, moved in (
        ("state_space.cpp", b"TOGETHER = 4;", {"s6", "ssd"}),
        ("selective_layer.cpp", b"MOST_GATES = 3;", set(GATED)),
        ("stack_of_inputs.h", b"layer = 1;", {"no encoder"}),
        ("stack_of_few_inputs.cpp", b"FEW_SEQUENCES", {"no encoder"}),
        ("gated_few.h", b"class FewGated", {"gru", "no encoder"}),
        ("matrix.h", b"TOGETHER = REGISTERS", set(configs)),
    ):
        path = PACKAGE / "recurrence" / "compiled" / "cpp" / file
        rewritten[path] = path.read_bytes().replace(text, b"OTHER")
        forget("memsweep.recurrence.scan")
        assert {name for name, config in configs.items() if code_fingerprint(config) != before[name]} == moved, file
        rewritten.clear()
        forget("memsweep.recurrence.scan")


def test_onednn_moves_the_wide_lstm_of_single_numbers(rewritten: dict[Path, bytes]) -> None:
    configs = {
        (width, dtype): dataclasses.replace(
            trial(training={"dtype": dtype}),
            model=usual_model("residual_stack", unit=usual_unit("lstm"), width=width, features=width),
        )
        for width, dtype in ((128, "float32"), (256, "float32"), (256, "float64"))
    }
    before = {name: code_fingerprint(config) for name, config in configs.items()}
    path = PACKAGE / "recurrence" / "gated" / "onednn.py"
    rewritten[path] = path.read_bytes().replace(b"x_NBTF.numel()", b"len(x_NBTF)")
    forget("memsweep.recurrence.gated.onednn")
    moved = {name for name, config in configs.items() if code_fingerprint(config) != before[name]}
    rewritten.clear()
    forget("memsweep.recurrence.gated.onednn")
    assert moved == {(256, "float32")}


def test_the_call_for_dropout_is_in_the_closure_of_stacks_that_drop_features() -> None:
    fields = {"known": {"dropout": 0.1}, "of torch": {"dropout": 0.1, "pooling": "mean"}, "none": {}}
    unit = usual_unit("gru")
    held = {
        name: code_closure(dataclasses.replace(trial(), model=usual_model("residual_stack", unit=unit, **given)))
        for name, given in fields.items()
    }
    call = ("memsweep.models.deep.fused_stack", "dropped_stack")
    assert {name for name, closure in held.items() if call in closure} == {"known"}


def test_a_users_file_that_has_the_word_of_a_kernel_does_not_call_it(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text("def layer(self):\n    self.state_space = 1\n")
    kernel = tmp_path / "state_space.cpp"
    kernel.write_text("int one;")
    for whole in (True, False):
        graph = SourceGraph(lambda name: tmp_path / f"{name}.py", lambda name, whole=whole: whole)
        lines = graph.lines([("user", WHOLE if whole else "layer")], lambda _: False)
        assert any(kernel.name in line for line in lines) is not whole


def reworded(path: Path) -> bytes:
    """A file with other docstrings, comments, annotations, and messages of errors, of foreign code, too."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(node, clean=False):
            node.body[0] = ast.Expr(ast.Constant("Another sentence."))
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args = [ast.Constant("another message")]
        if isinstance(node, ast.FunctionDef) and node.name == "sentence":
            node.body = [ast.Return(ast.Constant("another message"))]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "foreign_code":
            node.args = [ast.Constant("another message")]
    return ast.unparse(ast.fix_missing_locations(tree)).encode() + b"\n# another comment\n"


@pytest.mark.more
def test_other_words_in_all_files_move_no_trial(rewritten: dict[Path, bytes], trials: list[TrialConfig]) -> None:
    before = [code_fingerprint(config) for config in trials]
    modules = list(map(module_name, in_closures(trials)))
    rewritten |= {path: reworded(path) for path in in_closures(trials)}
    assert len(rewritten) > 60
    forget(*modules)
    after = [code_fingerprint(config) for config in trials]
    rewritten.clear()
    forget(*modules)
    assert after == before
