"""Signals that wait a moment: what was started is known before anything interrupts us."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held_back() -> Iterator[None]:
    """Signals that end the process are handled when the block is done, not within it.

    Between the start of a process and the line that knows of it, an interrupt would leave it
    running. Only the main thread is ever interrupted: in others this does nothing.
    """
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
