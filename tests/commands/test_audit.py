"""``memsweep audit``: what it prints, writes and returns; and every command of docs/audit.md."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from memsweep.checks.finding import Finding, Status, not_measured, show
from memsweep.checks.part import checks
from memsweep.checks.run import Audit
from memsweep.checks.subject import Subject
from memsweep.checks.weights.derivatives import derivatives
from memsweep.cli import main
from memsweep.models.base import Signature
from memsweep.models.module.factory import resolve
from memsweep.report.audit import HOLDS, About, error_text, headline
from paths import ROOT, TESTS

PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
KEYS = (ROOT / "docs" / "json_keys.md").read_text(encoding="utf-8")
SMALL = ("--seconds", "600")


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user with the file of the documents and one with faults; the current folder."""
    (tmp_path / "my_nets.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1])  # type: ignore[index]
    (tmp_path / "faulty.py").write_text((TESTS / "support" / "nets" / "audit_contract.py").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.more
def test_every_command_of_the_page_works(nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line)
        words = ["256" if word == "4096" else word for word in words]
        assert main([*words[1:], *SMALL]) == 0, line
        shown = capsys.readouterr()
        assert shown.err == ""
        if "--json" in words:
            assert set(json.loads(shown.out)) == {
                "format",
                "memsweep",
                "verb",
                "exit_code",
                "module",
                "settings",
                "status",
                "findings",
            }
        else:
            assert all(len(row) <= 80 for row in shown.out.splitlines())
            assert "fault" not in shown.out.replace("No fault", "")
    assert {path.name for path in nets.glob("*.html")} == {
        "audit-my_nets-MinGRU.html",
        "my_page.html",
        "audit-diagonal_rnn.html",
    }
    page = (nets / "my_page.html").read_text()
    assert page.count("<figure>") == 2
    assert not re.search(r"https?://|<script", page), "a page needs nothing else"


def test_the_page_names_the_numbers_of_every_check(nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nets / "caches.py").write_text((TESTS / "support" / "nets" / "audit_caches.py").read_text())
    findings = {}
    for module in ("caches:CacheParams", "my_nets:MinGRU"):  # the first has pieces and a mask, the second all others
        assert main(["audit", module, "--width", "4", "--horizon", "32", "--json", *SMALL]) == 0
        told = json.loads(capsys.readouterr().out)["findings"]
        findings |= {each["check"]: each for each in told if each["numbers"]}
    assert [*findings] == [check.name for check in checks()]
    table = KEYS.partition("| numbers of | names |")[2]
    for finding in findings.values():
        row = re.search(rf"^\| {finding['check']} \| (.*) \|$", table, re.M)
        assert row, f"{finding['check']} has no row"
        names, told = set(re.findall(r"`(\w+)`", row[1])), set(finding["numbers"])
        assert told <= names, f"{finding['check']}: the page lacks {told - names}"
        inside = {name for value in finding["numbers"].values() for name in _names(value)}
        only_of_faults = (
            {"measured_share", "declared_share", "states", "outputs"} if finding["check"] == "decay" else set()
        )
        only_of_faults |= set(re.findall(r"`(\w+)`", row[1].partition("list of ")[2]))
        assert names <= told | inside | only_of_faults, f"{finding['check']}: {names - told - inside} are not there"


def _names(value: object) -> set[str]:
    if not isinstance(value, dict):
        return set()
    return set(value) | {name for each in value.values() for name in _names(each)}


def test_the_page_of_the_documents_names_every_check() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE.partition("## What a module may declare")[0], re.M) == [
        check.name for check in checks()
    ]


def test_the_first_line_says_how_long_it_remembers_and_in_which_precision_it_holds(
    nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", "my_nets:MinGRU", "--width", "4", "--horizon", "64", "--page", "page.html", *SMALL]
    assert main([*command, "--json"]) == 0
    found = {one["check"]: one["numbers"] for one in json.loads(capsys.readouterr().out)["findings"]}
    page = (nets / "page.html").read_text()
    said = html.unescape(page.split("<h1>")[1].split("</h1>")[0])
    within, length = show(found["memory"]["time_scale"]), found["memory"]["length"]
    assert said.startswith(f"Untrained, 63 % of its memory lies within {within} steps")
    assert f"(of {length} looked at)" in said
    held, _, lost = said.partition("hold to 1 % in")[2].partition(", not in")
    for name in ("float32", "bfloat16", "float16"):
        error = max(regime["error"][-1] for regime in found["precision"][name].values())
        assert f"{name} ({error_text(error)})" in (held if error <= HOLDS else lost)
    assert page.index("Memory function") < page.index("Error against float64") < page.index("<h2>Findings")
    assert page.count('download="audit-') == page.count("<img") == 2


def test_what_was_not_measured_is_called_that_in_the_first_line() -> None:
    findings = tuple(not_measured(check, "a fault.") for check in ("memory", "gradient", "decay", "precision"))
    said = headline(Audit(findings, {}), About("my_nets:MinGRU", {}))
    assert said == "How long it remembers was not measured. At which precision it holds was not measured."


def test_only_a_module_with_weights_given_is_not_called_untrained() -> None:
    numbers = {"time_scale": 2.2, "horizon_limited": False, "length": 63}
    audit = Audit((Finding("memory", Status.PASS, "", numbers),), {})
    untrained, trained = (headline(audit, About("net", given)) for given in ({}, {"weights": "net.safetensors"}))
    assert untrained.startswith("Untrained, 63 % of its memory lies within 2.2 steps (of 63 looked at).")
    assert trained.startswith("63 % of its memory lies within 2.2 steps (of 63 looked at).")


def test_one_step_tells_no_time_scale() -> None:
    numbers = {"time_scale": 0.63, "horizon_limited": True, "length": 1}
    said = headline(Audit((Finding("memory", Status.PASS, "", numbers),), {}), About("net", {}))
    assert said.startswith("How long it remembers cannot be told from one step.")


@pytest.mark.parametrize(("error", "text"), [(2e-7, "under 0.001 %"), (0.0123, "1.2 %"), (1e-5, "0.001 %")])
def test_errors_are_percentages_as_their_limit_is(error: float, text: str) -> None:
    assert error_text(error) == text


def test_a_fault_is_exit_code_1_and_stands_in_table_page_and_json(
    nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", "faulty:SeesTheNext", "--width", "4", "--horizon", "32", *SMALL]
    assert main(command) == 1
    assert "1 fault (causality)" in capsys.readouterr().out
    assert "It is not causal" in (nets / "audit-faulty-SeesTheNext.html").read_text()
    (nets / "audit-faulty-SeesTheNext.html").unlink()
    assert main([*command, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "fault"
    assert [finding["check"] for finding in told["findings"] if finding["status"] == "fault"] == ["causality"]
    assert not list(nets.glob("*.html")), "with --json no page is written unless one is asked for"


def test_a_module_of_tokens_is_told_how_it_is_audited(nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nets / "tokens.py").write_text((TESTS / "support" / "nets" / "torch_rnn.py").read_text())
    command = ["audit", "tokens:TokenGRU", "--inputs", "5", "--outputs", "5", "--width", "4", "--horizon", "16", *SMALL]
    assert main(command) == 2
    assert "--tokens" in capsys.readouterr().err
    assert main([*command, "--tokens"]) == 0


def test_trained_weights_are_looked_at(nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = resolve("my_nets:MinGRU", [nets]).build(Signature(1, 1, 128), 4)
    torch.nn.init.constant_(module.gate.bias, -7.0)  # keeps for e^7 steps
    save_file(module.state_dict(), nets / "long.safetensors")
    torch.save(module.state_dict(), nets / "long.pt")
    found = []
    for weights in ([], ["--weights", "long.safetensors"], ["--weights", "long.pt"]):
        main(["audit", "my_nets:MinGRU", "--width", "4", "--horizon", "128", "--json", *weights, *SMALL])
        findings = json.loads(capsys.readouterr().out)["findings"]
        found.append(next(one["numbers"]["typical"] for one in findings if one["check"] == "decay"))
    assert found[1] == found[2] > 5 * found[0]


def test_weights_of_half_precision_are_audited_in_double(nets: Path) -> None:
    """They are read while a module is built: what it computes with is float64, with float64's tolerances."""
    module = resolve("my_nets:MinGRU", [nets]).build(Signature(1, 1, 32), 4)
    save_file({name: each.to(torch.bfloat16) for name, each in module.state_dict().items()}, nets / "half.safetensors")

    def build() -> torch.nn.Module:
        made = resolve("my_nets:MinGRU", [nets]).build(Signature(1, 1, 32), 4)
        made.load_state_dict(load_file(nets / "half.safetensors"), assign=True)
        return made

    subject = Subject(build, 1, 32)
    assert subject.inside == torch.float64
    assert derivatives(subject, 60.0).status is Status.PASS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no_such_model"], "Give a module of your own by its import path"),
        (["my_nets:MinGRU"], "width"),
        (["my_nets:MinGRU", "--width", "4", "layers"], "Write layers=VALUE"),
        (["my_nets:MinGRU", "--width", "4", "arguments.layers=2,3"], "one value is expected"),
        (["my_nets:MinGRU", "--width", "4", "layers=2"], "is written arguments.layers=..."),
        (["my_nets:MinGRU", "--width", "4", "arguments.depth=2"], "has no argument 'depth'"),
        (["my_nets:MinGRU"], "needs the argument width: give it as --width N, such as --width 16"),
        (["my_nets:MinGRU", "width_argument=inputs"], "needs the argument inputs: give it as --width N"),
        (["lru", "widht=4"], "widht"),
        (["my_nets:MinGRU", "--width", "4", "--weights", "away.pt"], "there is no such file"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(
    nets: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["audit", *words]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("top", "body", "said"),
    [
        ("import no_such_kernels", "return x", ("No module named 'no_such_kernels'", "line 2")),
        ("", "return None", ("NoneType", "begins with none")),
        ("", "return {'loss': 1.0}", ("no tensor",)),
        ("", "return x.mean(1)", ("gives no outputs [batch, time, outputs]",)),
        ("", "return torch.ops.triton_kernels.scan(x)", ("triton_kernels", "line 11")),
        ("", "raise SystemError('a kernel wants CUDA')", ("a kernel wants CUDA", "line 11")),
    ],
)
def test_a_module_that_cannot_run_or_gives_nonsense_is_refused_in_a_sentence(
    nets: Path, capsys: pytest.CaptureFixture[str], top: str, body: str, said: tuple[str, ...]
) -> None:
    lines = ["import torch", top or "import math", "", "", "class Net(torch.nn.Module):"]
    lines += ["    def __init__(self, inputs, outputs, width):", "        super().__init__()"]
    lines += [
        "        self.readout = torch.nn.Linear(inputs, outputs)",
        "",
        "    def forward(self, x):",
        f"        {body}",
    ]
    (nets / "nonsense.py").write_text("\n".join(lines) + "\n")
    assert main(["audit", "nonsense:Net", "--width", "4", "--horizon", "16", *SMALL]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    for words in said:
        assert words in shown.err
    assert not list(nets.glob("*.html"))


def test_time_that_is_too_short_is_exit_code_3_and_says_what_was_left_out(
    nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["audit", "my_nets:MinGRU", "--width", "4", "--horizon", "64", "--json"]
    assert main([*command, "--seconds", "0.001"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "not enough"
    short = [each for each in told["findings"] if each["status"] == "not enough"]
    assert {"causality", "memory"} <= {each["check"] for each in short}
    for each in short:
        assert each["left_out"]
        assert "Not looked at, for no time was left:" in each["sentence"]


_LOADED = """
import sys
from memsweep.cli import main
code = main(sys.argv[1:])
print(code, *sorted({name.partition(".")[0] for name, module in sys.modules.items() if module is not None}))
"""
_NEEDED = """
import sys, torch, numpy, rich.table, rich.console, yaml, torch._dynamo, torch.fx.experimental.symbolic_shapes
print(0, *sorted({name.partition(".")[0] for name, module in sys.modules.items() if module is not None}))
"""


def test_it_loads_torch_numpy_rich_and_yaml_alone(nets: Path) -> None:
    """Beside the standard library and what these load themselves; jinja2, with its markupsafe, for a page."""

    def loaded(code: str, *words: str) -> tuple[int, set[str]]:
        ended = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=nets
        )
        number, *names = ended.stdout.splitlines()[-1].split()
        return int(number), set(names) - {"memsweep", "my_nets"} - sys.stdlib_module_names

    words = ("audit", "my_nets:MinGRU", "--width", "4", "--horizon", "16", *SMALL)
    _, allowed = loaded(_NEEDED)
    kernels = {"filelock"}  # with which torch builds C++ code, too: one process at a time
    code, names = loaded(_LOADED, *words, "--json")
    assert (code, names - allowed - kernels) == (0, set())
    code, names = loaded(_LOADED, *words)
    assert (code, names - allowed - kernels) == (0, {"jinja2", "markupsafe"})
