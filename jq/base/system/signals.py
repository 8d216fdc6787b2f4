"""Signals that wait a moment: what was started is known before anything interrupts us, and nothing
interrupts what cannot bear it."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Signals that end the process are handled when the block is done, not within it.

    Between the start of a process and the line that knows of it, an interrupt would leave it
    running. Only the main thread is ever interrupted: in others this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
    try:
        for number in ENDING:
            handler = signal.getsignal(number)
            if callable(handler):  # not where the default or "ignore" stands
                handlers[number] = handler
                signal.signal(number, lambda *what: arrived.append(what))
        yield
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)
        for what, frame in arrived:
            handlers[what](what, frame)


def end_with_parent(parent: int) -> None:
    """Ends this process when that one ends, which may have no time to do it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


PATIENCE = 5.0  # seconds until a signal interrupts whatever runs
_WAIT = 0.02  # seconds until it is tried again
_INSTALLED = ("site-packages", "dist-packages")


def ended_by(error: Callable[[int], BaseException]) -> None:
    """Makes a signal that ends the process raise `error(number)`, once, in the main thread.

    Not while a library is imported: what C++ calls there must not raise, or the process crashes.
    And again where Python drops exceptions (finalizers, callbacks of the garbage collector), after
    which a run would go on as if nobody had asked. Both are a few milliseconds."""
    waiting: list[tuple[int, float]] = []  # the number, and when it arrived

    def arrived(number: int, frame: FrameType | None) -> None:
        since = waiting[0][1] if waiting else time.monotonic()
        waiting.clear()
        if _fragile(frame) and time.monotonic() < since + PATIENCE:
            later(number, since)
        else:
            raise error(number)

    def later(number: int, since: float) -> None:
        waiting[:] = [(number, since)]
        signal.setitimer(signal.ITIMER_REAL, _WAIT)

    def again(_number: int, _frame: FrameType | None) -> None:
        if waiting:
            signal.raise_signal(waiting[0][0])

    def dropped(what: Any) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            later(getattr(what.exc_value, "number", signal.SIGINT), time.monotonic())
        else:
            sys.__unraisablehook__(what)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup jaxq ...` goes on
            signal.signal(number, arrived)
    signal.signal(signal.SIGALRM, again)
    sys.unraisablehook = dropped


def _fragile(frame: FrameType | None) -> bool:
    """True if a library is being imported: an extension, or a module of an installed package."""
    while frame is not None:
        code, loader = frame.f_code, frame.f_locals.get("self")
        if code.co_filename.startswith("<frozen") and isinstance(loader, ExtensionFileLoader):
            return True
        imported = code.co_name == "<module>" and frame.f_globals.get("__name__") != "__main__"
        if imported and any(part in code.co_filename for part in _INSTALLED):
            return True
        frame = frame.f_back
    return False
