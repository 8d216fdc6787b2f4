"""Shape and element type of a kernel's operand or result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from jq.base.errors import InternalError

Array = np.ndarray[Any, np.dtype[Any]]

_NAMES = {"bool": "i1", "float16": "f16", "float32": "f32", "bfloat16": "bf16"}
_NAMES |= {f"int{n}": f"i{n}" for n in (8, 16, 32, 64)}
_DTYPES = {name: np.dtype(getattr(ml_dtypes, numpy, numpy)) for numpy, name in _NAMES.items()}


@dataclass(frozen=True)
class TensorType:
    """`shape` and MLIR element name (`i8`, `i16`, `i32`, `f16`, `bf16`, `f32`)."""

    shape: tuple[int, ...]
    element: str

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return _DTYPES[self.element]

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.element}>"


def pad_last(values: Array, size: int) -> Array:
    """Zeros after the last axis, up to so many elements."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, size - values.shape[-1])])


def cut_last(values: Array, parts: int, width: int) -> Array:
    """[..., N] -> [parts, ..., width]: columns side by side; the last part ends where they do."""
    starts = [min(i * width, max(0, values.shape[-1] - width)) for i in range(parts)]
    return np.stack([values[..., start : start + width] for start in starts])


def join_last(parts: Sequence[Array], size: int) -> Array:
    """[..., N] of `size` columns: what `cut_last` cut into these parts."""
    width = parts[0].shape[-1]
    values = np.zeros((*parts[0].shape[:-1], size), parts[0].dtype)
    for i, part in enumerate(parts):
        start = min(i * width, max(0, size - width))
        values[..., start : start + width] = part
    return values


def element_name(dtype: Any) -> str:
    """MLIR's name of a NumPy type that may be in a vector."""
    name = np.dtype(dtype).name
    if name not in _NAMES:
        raise InternalError(f"no vectors of {name}")
    return _NAMES[name]
