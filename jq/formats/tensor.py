"""A tensor in a number format (its encoding and stored parts); arrays that are made when needed."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from jq.formats.base import Encoding, get_format

Parts = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A stored tensor that stands for a float array of its logical shape.

    A leaf of a params pytree: it has the `shape` and `dtype` of what it decodes to, and NumPy
    functions take it as that array. Parts stay as they are (of a file, memory-mapped).

    Attributes:
        dtype: float type of the array that it stands for: of the weight that was quantized."""

    encoding: Encoding
    parts: Parts
    name: str = ""
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))

    @classmethod
    def made(cls, encoding: Encoding, make: Callable[[], Parts], name: str) -> "QuantizedTensor":
        """One whose parts are made when first read: a compiled model is loaded without them."""
        names = tuple(get_format(encoding.format).storage(encoding))
        return cls(encoding, _Made(names, make), name)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.encoding.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored parts, not of the decoded array."""
        return sum(part.nbytes for part in self.parts.values())

    def decode(self) -> np.ndarray:
        """The float array: float32 by the format's own definition, then rounded to `dtype`."""
        array = get_format(self.encoding.format).to_numpy(self.parts, self.encoding)
        return array.astype(self.dtype, copy=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a quantized tensor has to be decoded: no array without a copy")
        return self.decode().astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"QuantizedTensor({self.name!r}, {self.encoding.format}, {self.shape})"


class _Made(Parts):
    """Parts that are made, all at once, when one is first read."""

    def __init__(self, names: tuple[str, ...], make: Callable[[], Parts]) -> None:
        self._names, self._made = names, cache(make)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._made()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


Leaf = np.ndarray | QuantizedTensor  # a tensor of a file


@dataclass(frozen=True, eq=False)
class Deferred:
    """An array of known shape and type; `np.asarray` makes it, anew each time.

    So a weight in another order is written straight to a file. `pieces` gives it in parts, one
    after the other in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterator[np.ndarray]]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the array has to be made: none without a copy")
        out, first = np.empty(self.size, self.dtype), 0
        for piece in self.pieces():
            out[first : first + piece.size] = piece.reshape(-1)
            first += piece.size
        assert first == self.size
        return out.reshape(self.shape).astype(dtype or self.dtype, copy=False)


def bytes_of(array: np.ndarray | Deferred) -> Iterator[np.ndarray]:
    """The bytes u8[n] of an array; of a deferred one piece by piece."""
    for piece in array.pieces() if isinstance(array, Deferred) else (array,):
        yield np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
