"""Which equality holds: bits on one class of processor, 1e-6 on others; and the report says which."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memsweep.recurrence.compiled import compiler
from memsweep.report.rows.report import equality
from memsweep.sweep.worker import provenance
from paths import python_path

TOLERANCE = 1e-6


def record(processor: dict[str, str], kernels: str = "", **versions: str) -> dict[str, Any]:
    known = {"torch": "2.13", "numpy": "2.4"} | versions
    return {"provenance": {"versions": known, "kernel_build": kernels, "processor": processor}}


ZEN = {"model": "AMD EPYC 25 17 1", "instructions": "avx avx2 avx512f fma", "torch": "AVX512"}
OLD = {"model": "Intel Xeon 6 79 1", "instructions": "avx avx2 fma", "torch": "AVX2"}


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], [""]),
        ([record(ZEN)] * 3, ["bit for bit: all 3", "AMD EPYC", "AVX512", "torch 2.13"]),
        ([record(ZEN), record(ZEN, "k1"), record(ZEN, "k1")], ["bit for bit: all 3"]),
        ([record(ZEN), record(OLD), record(OLD)], ["to 1e-6", "2 classes", "Xeon", "fma, torch 2.13, numpy 2.4: 2"]),
        ([record(ZEN), record(ZEN, torch="2.14")], ["2 classes", "torch 2.13, numpy 2.4: 1", "torch 2.14"]),
        ([record(ZEN), record(ZEN | {"torch": "AVX2"})], ["2 classes"]),
        ([record(ZEN, "k1"), record(ZEN, "k2")], ["2 classes", "kernels k1: 1", "kernels k2: 1"]),
    ],
)  # fmt: skip
def test_the_report_says_which_equality_holds(records: list[dict[str, Any]], words: list[str]) -> None:
    told = equality({str(n): one for n, one in enumerate(records)})
    assert all(word in told for word in words)
    assert bool(told) is bool(records)


def test_what_a_worker_writes_is_a_class() -> None:
    made = {"provenance": provenance.collect("", seconds={}, pack=["a"])}
    told = equality({"a": made, "b": made})
    assert told.startswith("bit for bit: all 2 results")
    assert set(made["provenance"]["processor"]) == {"model", "instructions", "torch"}
    assert made["provenance"]["threads"] >= 1
    json.dumps(made)


def test_other_instructions_or_flags_have_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for instructions that a processor lacks would end the process: a shared cache must tell them apart."""

    def names() -> list[str]:
        return [compiler.library_name("double", level, "c++") for level in ("x86-64-v3", "x86-64-v4", compiler.NATIVE)]

    here = names()
    monkeypatch.setattr(compiler, "cpu_facts", lambda: ["flags : another processor"])
    elsewhere = names()
    assert elsewhere[:2] == here[:2], "a level has the same bits on every processor that has it"
    monkeypatch.setattr(compiler, "_FLAGS", (*compiler._FLAGS, "-O1"))
    assert len({*here, *elsewhere, *names()}) == 7


def found(activation: str, env: Mapping[str, str]) -> dict[str, Any]:
    """A small trial in a process of its own, under an environment that chooses other code paths."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("equality_work.py")), activation, "20", "200"],
        env=os.environ | {"PYTHONPATH": python_path()} | env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def relative(one: Any, two: Any) -> float:
    if isinstance(one, str) or one == two or (math.isnan(one) and math.isnan(two)):
        assert type(one) is type(two)
        return 0.0
    return abs(one - two) / max(abs(one), abs(two))


@pytest.mark.long
@pytest.mark.drill
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_one_class_gives_equal_bits_and_other_code_paths_agree_to_a_millionth(activation: str, tmp_path: Path) -> None:
    """Code for lesser processors, of torch, its matrix library, numpy and our kernels; and no kernels.

    At horizon 20 no replica's training is chaotic. At horizon 100 some are, and a rounding becomes a percent.
    """
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    older = tmp_path / "older-c++"
    older.write_text('#!/bin/sh\nexec c++ "$@" -march=x86-64\n')  # the last -march counts
    older.chmod(stat.S_IRWXU)
    plain = found(activation, {})
    again = found(activation, {})
    assert (again["bits"], again["summary"]) == (plain["bits"], plain["summary"])
    paths: dict[str, dict[str, str]] = {
        "torch default": {"ATEN_CPU_CAPABILITY": "default"},
        "torch avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
        "MKL avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
        "MKL compatible": {"MKL_CBWR": "COMPATIBLE"},
        "OpenBLAS Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
        "older kernels": {"CXX": str(older), "MEMSWEEP_CACHE": str(cache)},
        "no kernels": {"MEMSWEEP_KERNELS": "plain"},
    }
    paths["those at once"] = paths["torch default"] | paths["MKL compatible"] | paths["OpenBLAS Nehalem"]
    paths["all at once"] = paths["those at once"] | paths["older kernels"]
    others = {name: found(activation, env) for name, env in paths.items()}
    for name, other in others.items():
        assert other["summary"].keys() == plain["summary"].keys()
        for key, value in plain["summary"].items():
            assert relative(value, other["summary"][key]) < TOLERANCE, (name, key)
        assert max(map(relative, plain["curve"], other["curve"])) < TOLERANCE, name
    assert others["torch default"]["processor"]["torch"] == "DEFAULT"  # it had an effect
    assert any(other["bits"] != plain["bits"] for other in others.values())
