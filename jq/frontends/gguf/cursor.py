"""Reading values from a buffer that may lie: nothing is read, or allocated, past its end."""

import struct
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from jq.base.errors import UserError

# A header may hold this many keys, tensors, strings and array elements that become Python
# objects. The largest vocabularies have about 2^18 tokens and as many merges.
MAX_ITEMS = 1 << 22
MAX_DEPTH = 4  # of arrays in arrays

_SCALARS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "u1"} | {
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_BOOL, _STRING, _ARRAY = 7, 8, 9


class Cursor:
    """Walks over the little-endian header of a GGUF file, `data`, of which `path` is the name."""

    def __init__(self, data: Any, path: str) -> None:
        self.data, self.path, self.size = data, path, len(data)
        self.offset = 0
        self.items = 0

    def refuse(self, message: str, offset: int | None = None) -> NoReturn:
        at = self.offset if offset is None else offset
        raise UserError(f"not a valid GGUF file: {message}", location=f"{self.path}, byte {at}")

    def need(self, count: int, what: str) -> None:
        """Refuses when fewer than `count` bytes are left."""
        if count > self.size - self.offset:
            self.refuse(f"{what} needs {count} bytes, {self.size - self.offset} are left")

    def count_items(self, count: int, what: str) -> None:
        self.items += count
        if self.items > MAX_ITEMS:
            self.refuse(f"{what} makes more than {MAX_ITEMS} header entries")

    def number(self, kind: str, what: str) -> Any:
        """One value of `struct` type `kind`."""
        size = struct.calcsize(kind)
        self.need(size, what)
        (value,) = struct.unpack_from("<" + kind, self.data, self.offset)
        self.offset += size
        return value

    def string(self, what: str) -> str:
        start = self.offset
        length = self.number("Q", f"length of {what}")
        self.need(length, what)
        raw = bytes(self.data[self.offset : self.offset + length])
        self.offset += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.refuse(f"{what} is not UTF-8", start)

    def value(self, kind: int, what: str) -> Any:
        """A metadata value: str, bool, int, float, a NumPy array of numbers, or a list."""
        if kind == _ARRAY:
            return self._array(what, 1)
        if kind == _STRING:
            return self.string(what)
        if kind not in _SCALARS:
            self.refuse(f"{what} has unknown value type {kind}")
        value = self._numbers(kind, 1, what)[0]
        return value.item()

    def _numbers(self, kind: int, count: int, what: str) -> np.ndarray:
        dtype = np.dtype(_SCALARS[kind])
        self.need(count * dtype.itemsize, what)
        values = (
            np.frombuffer(self.data, dtype, count, self.offset) if count else np.empty(0, dtype)
        )
        self.offset += count * dtype.itemsize
        return values != 0 if kind == _BOOL else values.copy()

    def _array(self, what: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.refuse(f"{what} nests arrays more than {MAX_DEPTH} deep")
        kind = self.number("I", f"element type of {what}")
        count = self.number("Q", f"length of {what}")
        if kind in _SCALARS:
            return self._numbers(kind, count, what)
        if kind not in (_STRING, _ARRAY):
            self.refuse(f"{what} has unknown element type {kind}")
        self.need(count * (8 if kind == _STRING else 12), what)
        self.count_items(count, what)
        read: Callable[[], Any] = (
            (lambda: self.string(what))
            if kind == _STRING
            else (lambda: self._array(what, depth + 1))
        )
        return [read() for _ in range(count)]
