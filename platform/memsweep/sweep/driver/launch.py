"""Where packs run, and how much one run may do; imports nothing of what runs them."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

_LOOK_INTERVAL, _SHORTEST_INTERVAL = 5.0, 0.1  # seconds between two looks at what nodes or packs have used


@dataclass(frozen=True)
class NodeRequest:
    """The nodes that a run asks its cluster for.

    Attributes:
        count: how many; None: as many as its packs can use.
        price: of an hour of one, in any currency; 0 where nobody said.
        node: its cores and cards, for a cluster that does not tell which nodes may come; None where nobody said.
    """

    count: int | None = None
    price: float = 0.0
    node: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Launch:
    """Where packs run.

    Attributes:
        inline: in this process, one after another, without Ray; None: as ``placement`` says, once it is
            known what is left to run.
        address: a running Ray cluster (``auto`` or ``host:port``); None starts Ray on this machine.
        nodes: the most of its nodes that packs may fill at once, and that are asked for; None: as many as there can be.
        request: the nodes that were asked for by number; None: as many as packs can use, and nothing is said of it.
    """

    inline: bool | None = None
    address: str | None = None
    nodes: int | None = None
    request: NodeRequest | None = None


@dataclass(frozen=True)
class Limits:
    """How much one run may do; None for no limit. They belong to the run, never to the study.

    Attributes:
        hours: wall-clock hours, the start of Ray included.
        trials: trials that get a result.
        failures: trials that fail for good.
        core_hours, gpu_hours: of the packs, those that run now counted as far as they are: the clock's hours of each
            times the cores, or the share of GPUs, that it asks for.
        node_hours: hours of all nodes with cores, idle ones included, from when the run has joined or started Ray.
        cost: such hours, too: those that the sum of ``--max-cost`` pays for. The smaller of the two counts.
    """

    hours: float | None = None
    trials: int | None = None
    failures: int | None = None
    core_hours: float | None = None
    gpu_hours: float | None = None
    node_hours: float | None = None
    cost: float | None = None

    @property
    def paid_hours(self) -> tuple[float | None, str]:
        """The smaller of the limits of nodes, and its flag in words."""
        if self.cost is not None and (self.node_hours is None or self.cost < self.node_hours):
            return self.cost, f"--max-cost, which pays for {self.cost:g} hours of nodes"
        return self.node_hours, f"--max-node-hours {self.node_hours or 0.0:g}"

    @property
    def core_seconds(self) -> float:
        """Seconds of cores that a run may use; infinite without a limit of them.

        A limit by the clock counts as that of one core: how many will run side by side is not known before.
        """
        given = (hours for hours in (self.core_hours, self.hours) if hours is not None)
        return 3600.0 * min(given, default=math.inf)


@dataclass(frozen=True)
class ByClock:
    """The core seconds that a limit by the clock allows, on the cores that packs can fill side by side.

    Attributes:
        left: from now on; infinite without such a limit, and where it is not known how many packs there is room for.
        whole: of the whole limit; infinite also where there may be room for more packs in another run.
    """

    left: float = math.inf
    whole: float = math.inf


LIMITS = tuple(field.name for field in fields(Limits))
"""Their names: ``--max-hours``, ``--max-core-hours`` and so on."""


class ActiveLimits:
    """The limits of a run that has started.

    Args:
        limits: what it may do.
        clock: monotonic seconds.

    Attributes:
        reached: the limit that ended the run, in words; empty while none has.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.reached = ""
        self._limits, self._clock = limits, clock
        self._began: dict[str, tuple[float, float, float]] = {}
        self._worked, self._is_told = (0.0, 0.0), False
        self._end = None if limits.hours is None else clock() + 3600.0 * limits.hours

    def by_clock(self, cores: int, *, in_process: bool) -> ByClock:
        """The core seconds that the limit by the clock allows on so many cores, or on those of this process."""
        if self._end is None or not cores:
            return ByClock()
        whole = cores * 3600.0 * (self._limits.hours or 0.0)
        return ByClock(cores * max(0.0, self._end - self._clock()), whole if in_process else math.inf)

    def room(self, results: int) -> int | None:
        """How many more trials may get a result; None for any number."""
        return None if self._limits.trials is None else max(0, self._limits.trials - results)

    def started(self, pack: str, cores: float = 1.0, gpus: float = 0.0) -> None:
        """A pack has started, which asks for so many cores and so large a share of GPUs."""
        self._began[pack] = self._clock(), cores, gpus

    def ended(self, pack: str) -> None:
        """A pack has ended, in whatever way."""
        if pack in self._began:
            self._worked = self._with(self._worked, [self._began.pop(pack)])

    def _with(self, worked: tuple[float, float], packs: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
        """Core and GPU seconds of the packs that have ended, and of these up to now."""
        now, (cores, gpus) = self._clock(), worked
        return (
            cores + sum((now - began) * share for began, share, _ in packs),
            gpus + sum((now - began) * share for began, _, share in packs),
        )

    @property
    def hours(self) -> tuple[float, float]:
        """Core hours and GPU hours of all packs so far."""
        # in this order: a pack that ends meanwhile, while another thread looks, is left out and not counted twice
        worked, running = self._worked, [*self._began.values()]
        cores, gpus = self._with(worked, running)
        return cores / 3600.0, gpus / 3600.0

    def worked_out(self) -> bool:
        """Whether the core hours or the GPU hours are used up; ``reached`` then says so."""
        limits = (("core", self._limits.core_hours), ("gpu", self._limits.gpu_hours))
        over = [
            (name, limit)
            for (name, limit), used in zip(limits, self.hours, strict=True)
            if limit is not None and used >= limit
        ]
        for name, limit in over:
            self.reached = self.reached or f"--max-{name}-hours {limit:g}: so much was used in this run"
        return bool(over)

    def over(self, results: int, failures: int) -> bool:
        """Whether no more may be started after so many results and failures; ``reached`` then says why."""
        limits = self._limits
        self.worked_out()
        if self._end is not None and self._clock() >= self._end:
            self.reached = self.reached or _hours(limits.hours or 0.0)
        elif limits.trials is not None and results >= limits.trials:
            self.reached = self.reached or f"--max-trials {limits.trials}: so many trials got a result in this run"
        elif limits.failures is not None and failures >= limits.failures:
            self.reached = self.reached or f"--max-failures {limits.failures}: {failures} failed for good in this run"
        return bool(self.reached)

    def stop(self) -> None:
        """Stops the run, as Ctrl-C would; to be called inside ``watch``.

        Raises:
            KeyboardInterrupt: at once in a thread other than the main one; else in the main thread, by a signal.
        """
        if threading.current_thread() is not threading.main_thread():
            raise KeyboardInterrupt
        self._signal()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Stops the body in the main thread when the hours are over, as Ctrl-C would.

        In another thread only ``over`` reports it. SIGTERM must be handled (``terminate_like_ctrl_c``).
        """
        if self._end is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        timer = threading.Timer(min(max(0.0, self._end - self._clock()), threading.TIMEOUT_MAX), self._out_of_time)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # so that its signal comes while the handler is installed

    @contextmanager
    def watch_nodes(self, node_hours: Callable[[], float]) -> Iterator[None]:
        """Stops the body in the main thread when its nodes have cost what they may; else as ``watch``.

        Args:
            node_hours: so far.
        """
        limit, words = self._limits.paid_hours

        def used_up() -> bool:
            if limit is None or node_hours() < limit:
                return False
            self.reached = self.reached or f"{words}: so many hours of nodes were used"
            return True

        with self._looking(used_up, limit):
            yield

    @contextmanager
    def watch_packs(self) -> Iterator[None]:
        """Stops the body in the main thread when packs that run have used what they may; else as ``watch``.

        A pack tells of its progress where it trains, and not where it measures.
        """
        limits = (each for each in (self._limits.core_hours, self._limits.gpu_hours) if each is not None)
        with self._looking(lambda: bool(self._began) and self.worked_out(), min(limits, default=None)):
            yield

    @contextmanager
    def _looking(self, used_up: Callable[[], bool], limit: float | None) -> Iterator[None]:
        """Stops the body in the main thread once this holds; ``limit`` in hours says how often to look, if at all."""
        ended = threading.Event()
        if limit is None or threading.current_thread() is not threading.main_thread():
            yield
            return

        def look() -> None:
            while not ended.wait(max(_SHORTEST_INTERVAL, min(_LOOK_INTERVAL, 3600.0 * limit))):
                if used_up():
                    self._signal()
                    return

        thread = threading.Thread(target=look, name="memsweep-limits", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()  # so that its signal comes while the handler is installed

    def _out_of_time(self) -> None:
        self.reached = self.reached or _hours(self._limits.hours or 0.0)
        self._signal()

    def _signal(self) -> None:
        """Once, whatever limits are reached: a second signal would cut short Ray's graceful end."""
        if not self._is_told:
            self._is_told = True
            os.kill(os.getpid(), signal.SIGTERM)  # not SIGINT, which a shell's background job ignores


def _hours(hours: float) -> str:
    return f"--max-hours {hours:g}: the time of this run is over"
