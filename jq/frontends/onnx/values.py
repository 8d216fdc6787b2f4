"""Values that names of the graph stand for while the model is traced.

- a NumPy array: known, and folded with other known ones
- `Weight`: an initializer, known and also an argument of the program
- `Codes`: a quantized tensor
- `Sums`: the 32-bit result of an integer product
- a JAX array: computed
- a list: a sequence; None: an optional input that is absent"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError

Value = Any


@dataclass(frozen=True)
class Weight:
    """An initializer: its data, and what stands for them in the trace (`Codes` where the type is
    unsigned or has less than eight bits)."""

    name: str
    data: np.ndarray
    traced: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype


@dataclass(frozen=True)
class Codes:
    """A quantized tensor: signed codes (i8 or i16) that stand for values of the ONNX type `dtype`.

    An unsigned number u of b bits is the code u - 2^(b-1): no unsigned type enters the program."""

    signed: Any
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.signed.shape)

    @property
    def offset(self) -> int:
        return offset_of(self.dtype)

    def value(self) -> jax.Array:
        """The tensor in its own type."""
        if not self.offset and self.dtype == self.signed.dtype:
            return self.signed
        return (self.signed.astype(np.int32) + self.offset).astype(self.dtype)


@dataclass(frozen=True)
class Sums:
    """The result of an integer product, int32 for whoever reads it as such.

    `floats` is the same product of numbers with scales of 1: what a conversion to float gives, in a
    form that becomes an integer contraction with whatever scales follow."""

    integers: Callable[[], Any]
    floats: Callable[[], Any]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)


def bits_of(dtype: np.dtype[Any]) -> int:
    return {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}.get(dtype.name, dtype.itemsize * 8)


def offset_of(dtype: np.dtype[Any]) -> int:
    """Offset of an integer type: the difference between a number and its signed code."""
    return 1 << (bits_of(dtype) - 1) if dtype.name.startswith("uint") else 0


def signed_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int16 if bits_of(dtype) > 8 else np.int8)


def to_signed(x: Any) -> Any:
    """Signed codes of a tensor of any integer type of up to 16 bits; NumPy stays NumPy."""
    x = traced(x)
    if isinstance(x, Codes):
        return x.signed
    offset, kind = offset_of(np.dtype(x.dtype)), signed_type(np.dtype(x.dtype))
    return x.astype(kind) if not offset else (x.astype(np.int32) - offset).astype(kind)


def is_float(dtype: Any) -> bool:
    """True also of types that NumPy does not know, bfloat16 and those of 8 bits."""
    return bool(jnp.issubdtype(dtype, np.floating))


def limits_of(dtype: Any) -> np.ndarray:
    """The least and the greatest number of a type, infinities where it has them."""
    info = None if is_float(dtype) else jnp.iinfo(dtype)
    return np.asarray([info.min, info.max] if info else [-np.inf, np.inf], dtype)


def known(x: Value) -> np.ndarray | None:
    """The data of a value that does not depend on the model's inputs."""
    if isinstance(x, Weight):
        return x.data
    return x if isinstance(x, np.ndarray) else None


def traced(x: Value) -> Value:
    """A value without what is known of it beside."""
    return x.traced if isinstance(x, Weight) else x


def plain(x: Value) -> Any:
    """A value as an array of its own type."""
    x = traced(x)
    if isinstance(x, Codes):
        return x.value()
    if isinstance(x, Sums):
        return x.integers()
    return [plain(item) for item in x] if isinstance(x, list) else x


def best_known(x: Value) -> Any:
    """The data of a value, where it does not depend on the model's inputs; else as `plain`."""
    data = known(x)
    return plain(x) if data is None else data


def as_jax(x: Value) -> Any:
    if x is None or isinstance(x, list):
        what = "a sequence" if isinstance(x, list) else "an empty optional"
        raise UserError(f"{what} where a tensor is needed")
    return jnp.asarray(plain(x))
