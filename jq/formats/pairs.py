"""Tables of the sums and products that ONNX Runtime computes of two tensors of 8-bit codes.

Its sums and products of codes are floats that are rounded, and where such a float is next to the
middle of two codes, its rounding decides. What an operator gives is a table, therefore: the code of
each of the 65,536 pairs, by the same float operations in the same order as ONNX Runtime on x86 (it
has others for Arm)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats.integer_functions import Output

F32, F64 = np.float32, np.float64
INT8 = np.dtype(np.int8)


@dataclass(frozen=True)
class Scaled:
    """A type of 8 bits with its scale and zero point, which are constants."""

    dtype: np.dtype[Any]
    scale: np.float32
    zero: int

    @property
    def _offset(self) -> int:
        return 0 if self.dtype.kind == "i" else 128

    @property
    def numbers(self) -> np.ndarray:
        """All 256, int64 in the order of their signed codes."""
        return np.arange(-128, 128) + self._offset

    @property
    def bounds(self) -> tuple[int, int]:
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    def rounded(self, numbers: np.ndarray) -> np.ndarray:
        """Signed codes of floats that have the zero point in them."""
        return (np.clip(np.rint(numbers), *self.bounds) - self._offset).astype(np.int8)


Table = np.ndarray  # int8 [256, 256], signed codes by those of both sides


def sums(a: Scaled, b: Scaled, y: Scaled) -> Table:
    """Codes of `A a + (B b + C)`, each product and its sum rounded once (`MlasQLinearAdd`, AVX2).

    A and B are the ratios of scales, C is what the zero points amount to."""
    left, right = F32(a.scale / y.scale), F32(b.scale / y.scale)
    fixed = F32(y.zero) - _fma(left, F32(a.zero), right * F32(b.zero))
    inner = _fma(b.numbers, right, fixed)
    return y.rounded(_fma(a.numbers[:, None], left, inner[None, :]))


def products(a: Scaled, b: Scaled, y: Scaled) -> Table:
    """Codes of `(a - zero) (b - zero) R + zero`, each operation rounded; R: the ratio of scales."""
    ratio = F32(F32(a.scale * b.scale) / y.scale)
    whole = (a.numbers - a.zero)[:, None] * (b.numbers - b.zero)
    return y.rounded(whole.astype(F32) * ratio + F32(y.zero))


def _fma(a: Any, b: Any, c: Any) -> Any:
    """Float64 holds such a product exactly, and its sum with a number of like size."""
    return F32(F64(a) * F64(b) + F64(c))


def paired(
    kind: str, scales: Sequence[np.float32], zeros: Sequence[int], bias: Any, out: Output
) -> np.ndarray:
    """Codes of an `add`, `subtract` or `multiply` of int8 codes between Q and DQ: by the operators
    above where ONNX Runtime has one, of floats that are quantized where it has none, or with a bias
    (float32)."""
    a, b = (Scaled(INT8, *side) for side in zip(scales, zeros, strict=True))
    y = Scaled(INT8, F32(out.scale), out.zero_point)
    fused = {"add": sums, "multiply": products}.get(kind)
    if fused is not None and not bias:
        return np.clip(fused(a, b, y), out.low, out.high).astype(np.int32)
    left, right = ((side.numbers - side.zero).astype(F32) * side.scale for side in (a, b))
    function = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}[kind]
    return quantized(function(left[:, None], right[None, :]) + F32(bias), out)


def quantized(real: np.ndarray, out: Output) -> np.ndarray:
    """`QuantizeLinear` of float32 numbers, within the bounds of `out`."""
    steps = np.rint(real / F32(out.scale)).astype(F64)
    return np.clip(steps + out.zero_point, out.low, out.high).astype(np.int32)
