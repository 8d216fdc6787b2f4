"""Arrays that are made when needed: a weight in another order, written straight to a file."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Deferred:
    """An array of known shape and type; `np.asarray` makes it, anew each time.

    `pieces` gives it in parts, one after the other in memory.
    """

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
