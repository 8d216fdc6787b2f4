"""Parts of the calibration data, each observed on a machine of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeVar

from jq.base.errors import UserError, check_type

T = TypeVar("T")
MOST = 1 << 20


@dataclass(frozen=True)
class Shards:
    """The parts that were seen, 1 to `count`; `count` 0: all data at once."""

    count: int = 0
    seen: frozenset[int] = frozenset()

    @staticmethod
    def parse(text: str) -> "Shards":
        """`2/4`: the second of four parts.

        Raises:
            UserError: it is no such thing."""
        check_type("shard", text, str)
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal()):
            raise UserError(f"no shard is {text!r}", hint="I/N: 1/4 is the first of four")
        return _checked(int(count), frozenset({int(number)}))

    @staticmethod
    def of_json(data: Mapping[str, Any] | None) -> "Shards":
        """Reads and checks the shards in a file of ranges, which may say anything."""
        if data is None:
            return NO_SHARDS
        return _checked(index(data["count"]), frozenset(map(index, data["seen"])))

    def part(self, data: Sequence[T]) -> tuple[int, Sequence[T]]:
        """The number of the first sample of this part, and its samples."""
        if not self.count:
            return 0, data
        (number,) = self.seen
        start, end = (len(data) * n // self.count for n in (number - 1, number))
        if start == end:
            what = f"shard {self} has no sample: there are {len(data)}"
            raise UserError(what, hint="take fewer shards")
        return start, data[start:end]

    def merge(self, other: "Shards") -> "Shards":
        """
        Raises:
            UserError: both have seen the same, or parts of another whole."""
        if self.count != other.count:
            raise UserError(f"shards {self} and {other} are not parts of one whole")
        if both := self.seen & other.seen:
            raise UserError(f"shard {min(both)}/{self.count} is there twice")
        seen = self.seen | other.seen
        return NO_SHARDS if len(seen) == self.count else Shards(self.count, seen)

    @property
    def missing(self) -> list[int]:
        return sorted(set(range(1, self.count + 1)) - self.seen)

    def __str__(self) -> str:
        return f"{','.join(map(str, sorted(self.seen)))}/{self.count}" if self.count else "all"


def _checked(count: int, seen: frozenset[int]) -> Shards:
    if not (0 < count <= MOST and seen and min(seen) >= 1 and max(seen) <= count):
        raise UserError(f"no shards are {sorted(seen)[:4]} of {count}", hint="I/N: I from 1 to N")
    return NO_SHARDS if count == 1 else Shards(count, seen)


NO_SHARDS = Shards()
