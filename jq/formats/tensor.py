"""A tensor in a number format: its encoding and its stored parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.formats.base import Encoding, get_format


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A stored tensor that stands for a float array of its logical shape.

    Usable as a leaf of a params pytree: it has the `shape` and `dtype` of what it decodes to,
    and NumPy functions take it as that array. The parts stay as they are (memory-mapped, for
    a tensor from a file).

    Attributes:
        dtype: float type of the array that it stands for: of the weight that was quantized.
    """

    encoding: Encoding
    parts: Mapping[str, np.ndarray]
    name: str = ""
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))

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
