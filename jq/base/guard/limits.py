"""Limits of time and size."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from jq.base.errors import UserError
from jq.base.system.processor import physical_bytes
from jq.base.tables import size as in_words

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

# Seconds that the system can wait for at once, and bytes that no machine has.
_MOST = {"seconds": 1 << 20, "memory": 1 << 50}


@dataclass(frozen=True)
class Reading:
    """The limits of a reader: `busy` seconds of the processor, whatever else the machine does,
    `waiting` seconds of the clock, for a reader that waits instead, and `memory` in bytes."""

    busy: float
    waiting: float
    memory: int


@dataclass(frozen=True)
class Limits:
    """`seconds` of one run of IREE's compiler or of a reader; `memory` in bytes of either. None:
    an hour and all memory for the compiler; for a reader what follows from the size of its file:
    5 seconds of the processor and one more for each MB."""

    seconds: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and not 0 < value <= most:  # NaN is neither more nor less
                raise UserError(f"{name} {value:g} are no limit: more than 0, at most {most}")

    def reading(self, size: int) -> Reading:
        """The limits for reading a file of `size` bytes."""
        busy = self.seconds or 5 + size / 1e6
        return Reading(busy, self.seconds or 12 * busy, self.memory or (2 << 30) + 16 * size)

    def compiling(self) -> tuple[float, int | None]:
        """Seconds and bytes for a run of the compiler."""
        return self.seconds or 3600.0, self.memory


DEFAULT = Limits()
_CURRENT: ContextVar[Limits] = ContextVar("limits", default=DEFAULT)


def limits() -> Limits:
    return _CURRENT.get()


@contextmanager
def limited(found: Limits) -> Iterator[None]:
    """Holds inside the block, on this thread."""
    token = _CURRENT.set(found)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def parse_size(text: str) -> int:
    """Bytes of `512M`, `4G`, `1000000`; units are powers of 1024."""
    plain = "".join(text.lower().split()).removesuffix("b").removesuffix("i")
    number, unit = (plain[:-1], plain[-1]) if plain[-1:] in _UNITS else (plain, "")
    try:
        size = float(number) * _UNITS.get(unit, 1)
        if not 1 << 20 <= size <= 1 << 50:
            raise ValueError
    except ValueError:
        raise UserError(f"{text!r} is no size of at least 1M", hint="write 512M or 4G") from None
    return int(size)


def require_memory(count: int, what: str) -> None:
    """Refuses, before it is begun, what takes more bytes than the machine has.

    Raises:
        UserError: `what` takes `count` bytes, and that is too much."""
    if count > (most := physical_bytes()):
        reason = f"{what} take {in_words(count)}, and this machine has {in_words(most)} of memory"
        raise UserError(reason, hint="take smaller shapes, or a machine with more memory")
