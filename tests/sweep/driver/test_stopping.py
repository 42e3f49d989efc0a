"""A run says at once that it is being stopped, whoever handles the signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref

import pytest

from memsweep.sweep.signals import announced, interrupts_held, terminate_like_ctrl_c


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
