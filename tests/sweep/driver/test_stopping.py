"""A run says at once that it is being stopped, whoever handles the signal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from memsweep.sweep.driver.progress import LiveView, PlainView, Snapshot
from memsweep.sweep.signals import announced, children_outlive_hangup, interrupts_held, terminate_like_ctrl_c


@pytest.fixture(autouse=True)
def _hangups_end_processes() -> Iterator[None]:
    """As in a terminal; tests under nohup inherit that hangups are ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_is_said_once_while_the_signal_is_still_held_back(number: signal.Signals) -> None:
    said, heard = list[str](), threading.Event()

    def say() -> None:
        said.append("stopping")
        heard.set()

    def interrupt() -> None:
        with interrupts_held():
            os.kill(os.getpid(), number)
            assert heard.wait(30.0)  # the interrupt itself comes at the end of this block

    with terminate_like_ctrl_c(), announced(say), pytest.raises(KeyboardInterrupt):
        interrupt()
    assert said == ["stopping"]
    assert signal.set_wakeup_fd(-1) == -1  # as it was before


def test_other_signals_and_other_threads_say_nothing() -> None:
    said = list[str]()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with announced(lambda: said.append("stopping")):
            os.kill(os.getpid(), signal.SIGUSR1)
            inner = threading.Thread(target=lambda: announced(lambda: said.append("inner")).__enter__())
            inner.start()
            inner.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said == []


class _Cleared:
    """The error in a weak reference's callback; Python drops the errors of such callbacks."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_that_python_drops_comes_again(number: signal.Signals, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        cleared = _Cleared()
        reference = weakref.ref(cleared, lambda _: signal.raise_signal(number))
        del cleared
        assert reference() is None  # the run goes on
        time.sleep(60.0)

    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), terminate_like_ctrl_c():
        run()
    assert sys.unraisablehook is before
    assert "Traceback" not in capsys.readouterr().err


def test_a_dropped_interrupt_also_ends_what_is_nearly_done() -> None:
    def run() -> None:
        cleared = _Cleared()
        reference = weakref.ref(cleared, lambda _: signal.raise_signal(signal.SIGTERM))
        del cleared
        assert reference() is None

    with pytest.raises(KeyboardInterrupt), terminate_like_ctrl_c():
        run()


def test_of_two_hangups_the_second_one_cuts_no_end_short() -> None:
    """A shell and the kernel send one each when a terminal closes."""
    ended = list[bool]()

    def run() -> None:
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGHUP)
            ended.append(True)

    with pytest.raises(KeyboardInterrupt), terminate_like_ctrl_c(), terminate_like_ctrl_c():
        run()
    assert ended
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_a_hangup_that_is_ignored_stays_so() -> None:
    """As nohup does."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminate_like_ctrl_c():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_processes_outlive_a_hangup() -> None:
    with children_outlive_hangup():
        child = subprocess.Popen(["sleep", "60"])
    try:
        child.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.1)
        assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("view", [LiveView, PlainView])
def test_a_view_whose_terminal_is_gone_shows_nothing(view: type[LiveView | PlainView]) -> None:
    terminal, own = pty.openpty()
    snapshot = Snapshot(total=2, finished=1, reused=0, failed=0, running=1, fraction=0.5, eta=None)
    with os.fdopen(own, "w") as stream:
        with view("mine", stream) as shown, shown.during("waiting"):
            shown.update(snapshot)
            os.close(terminal)
            shown.update(snapshot)
            shown.say("stable")
        with pytest.raises(OSError, match="Input/output error"):
            os.write(own, b"x")
        os.dup2(os.open(os.devnull, os.O_WRONLY), own)  # what is buffered
