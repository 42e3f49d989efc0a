"""The parent: starts processes for checks, watches their limits, and writes the file again after each line of theirs.

A check that runs too long, or whose process dies, ends alone: a new process goes on with the next one. An error of
CUDA spoils its process, which ends by itself then.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.card.catalogue import NUMBERS, TIMES, Check

ROOT = Path(__file__).resolve().parents[2]
STARTING = 60.0
"""Seconds that a process may take until its first check begins: imports, and CUDA's start."""


class Lane:
    """Checks that run one after the other in one process, or in the next one after it was lost.

    Attributes:
        found: name -> what the file says of the check.
    """

    def __init__(self, checks: Sequence[Check], device: str, quick: bool, folder: Path) -> None:
        self.todo, self.device, self.quick, self.folder = list(checks), device, quick, folder
        self.found: dict[str, dict[str, Any]] = {}
        self.machine: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.read, self.since, self.count = 0, 0.0, 0
        self.current: Check | None = None

    def start(self) -> None:
        self.count += 1
        self.read, self.since, self.current = 0, time.monotonic(), None
        self.lines = self.folder / f"{id(self)}-{self.count}.jsonl"
        self.errors = self.lines.with_suffix(".txt")
        command = [sys.executable, "-m", "benchmarks.card.child", self.device, str(int(self.quick)), str(self.lines)]
        with self.errors.open("wb") as told:
            self.process = subprocess.Popen([*command, *(each.name for each in self.todo)], cwd=ROOT, stderr=told)

    def watch(self, stop: bool) -> bool:
        """Take what the process wrote; True as long as there is something to do."""
        if not self.todo:
            return False
        if stop:
            return self._stopped()
        if self.process is None:
            self.start()
        assert self.process is not None
        ended = self.process.poll() is not None
        self._take()
        if not self.todo:
            self.process.wait()
            return False
        limit = self.current.limit if self.current else STARTING
        if ended:
            self._lost(f"its process ended with code {self.process.returncode}: {self._last_words()}")
        elif time.monotonic() - self.since > limit:
            self._kill()
            self._lost(f"not done in {limit:g} s")
        return bool(self.todo)

    def _take(self) -> None:
        text = self.lines.read_text(encoding="utf-8") if self.lines.exists() else ""
        *whole, _ = text.split("\n")
        for line in whole[self.read :]:
            self._line(json.loads(line))
        self.read = len(whole)

    def _line(self, said: dict[str, Any]) -> None:
        if "machine" in said:
            self.machine = said["machine"]
        elif "begin" in said:
            self.current, self.since = self.todo[0], time.monotonic()
            self.found[said["begin"]] = {"name": said["begin"], "seconds": None, "error": "cut off", "rows": []}
        elif "row" in said:
            self.found[said["of"]]["rows"].append(said["row"])
        else:
            self.found[said["end"]] |= {"seconds": said["seconds"], "error": said["error"]}
            self.current, self.since = None, time.monotonic()
            del self.todo[0]

    def _lost(self, why: str) -> None:
        """The process is gone: the check that it was at has failed, or the next one, so that there is an end."""
        check = self.todo.pop(0)
        self.found.setdefault(check.name, {"name": check.name, "seconds": None, "rows": []})["error"] = why
        self.process = None

    def _stopped(self) -> bool:
        self._kill()
        for check in self.todo:
            self.found.setdefault(check.name, {"name": check.name, "seconds": None, "rows": []})["error"] = "time is up"
        self.todo = []
        return False

    def _kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self._take()

    def _last_words(self) -> str:
        return self.errors.read_text(encoding="utf-8", errors="replace").strip()[-300:]


class Run:
    """One run of the command.

    Args:
        out: the file.
        device, quick: see ``catalogue.Setting``.
        seconds: after which no check goes on.
    """

    def __init__(self, out: Path, device: str, quick: bool, seconds: float) -> None:
        self.out, self.device, self.quick = out, device, quick
        self.started, self.end = time.monotonic(), time.monotonic() + seconds
        self.lanes: list[Lane] = []
        self.told: set[str] = set()

    def all(self, checks: Sequence[Check], side_by_side: int) -> int:
        """Run them and return how many failed."""
        numbers, times = ([each for each in checks if each.kind == kind] for kind in (NUMBERS, TIMES))
        with tempfile.TemporaryDirectory() as folder:
            for shares in ([numbers[start::side_by_side] for start in range(side_by_side)], [times]):
                lanes = [Lane(share, self.device, self.quick, Path(folder)) for share in shares if share]
                self.lanes += lanes
                while [lane for lane in lanes if lane.watch(time.monotonic() > self.end)]:
                    self.write()
                    time.sleep(0.1)
                self.write()
        return sum(each["error"] is not None for each in self.found())

    def found(self) -> list[dict[str, Any]]:
        return [each for lane in self.lanes for each in lane.found.values()]

    def write(self) -> None:
        """The whole file once more, and a line for each check that ended since."""
        machine = next((lane.machine for lane in self.lanes if lane.machine), {})
        settings = {"device": self.device, "quick": self.quick, "seconds": round(time.monotonic() - self.started, 1)}
        whole = {"machine": machine, "settings": settings, "checks": self.found()}
        partial = self.out.with_name(f"{self.out.name}.part")
        partial.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.out)
        for each in whole["checks"]:
            if each["error"] != "cut off" and each["name"] not in self.told:
                self.told.add(each["name"])
                took = f"{each['seconds']:.1f} s" if each["seconds"] is not None else "-"
                print(f"{each['name']}: {each['error'] or 'ok'} ({len(each['rows'])} rows, {took})", flush=True)
