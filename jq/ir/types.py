"""Types of elements and tensors: NumPy (with ml_dtypes) on one side, MLIR on the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir

from jq.base.errors import UserError

# MLIR spelling of every element type that a program of ours can hold.
_NAMES: dict[str, Any] = {
    "i1": np.bool_,
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"ui{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    "bf16": ml_dtypes.bfloat16,
    "complex<f32>": np.complex64,
    "complex<f64>": np.complex128,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    **{f"{sign}i{n}": getattr(ml_dtypes, f"{sign}int{n}") for n in (2, 4) for sign in ("", "u")},
}
NARROW = tuple(np.dtype(_NAMES[name]) for name in ("i4", "ui4", "i2", "ui2"))
_DTYPES = {name: np.dtype(dtype) for name, dtype in _NAMES.items()}
_MLIR = {dtype: name for name, dtype in _DTYPES.items()}
_OTHERS = "cast it in the model to float32, bfloat16, float8_e4m3fn or float8_e5m2"


def dtype_name(dtype: Any) -> str:
    """MLIR's spelling of a NumPy dtype (`float32` -> `f32`)."""
    try:
        return _MLIR[np.dtype(dtype)]
    except KeyError:
        raise UserError(f"element type {np.dtype(dtype).name} is not supported") from None


def to_dtype(element: ir.Type) -> np.dtype[Any]:
    """NumPy dtype of an MLIR element type."""
    try:
        return _DTYPES[str(element)]
    except KeyError:
        raise UserError(f"element type {element} is not supported", hint=_OTHERS) from None


def tensor_type(shape: Sequence[int], dtype: Any) -> ir.RankedTensorType:
    """`tensor<shape x dtype>` in the current context."""
    return ir.RankedTensorType.get(list(shape), ir.Type.parse(dtype_name(dtype)))


def shape_of(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def dtype_of(value: ir.Value) -> np.dtype[Any]:
    return to_dtype(ir.RankedTensorType(value.type).element_type)


def is_narrow(value: ir.Value) -> bool:
    """True if a value is a tensor of integers of less than a byte."""
    kind = value.type.element_type if isinstance(value.type, ir.RankedTensorType) else None
    return isinstance(kind, ir.IntegerType) and 1 < kind.width < 8


def number_kind(dtype: np.dtype[Any]) -> str:
    """`f` or `i` (whatever the sign), also of types that NumPy calls void; else NumPy's letter."""
    if dtype.kind == "V":
        return "i" if "int" in dtype.name else "f"
    return "i" if dtype.kind == "u" else dtype.kind


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and NumPy dtype name of an input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}[{','.join(map(str, self.shape))}]"


def signature(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """Inputs and outputs as a signature, for people."""
    return f"({', '.join(map(str, inputs))}) -> ({', '.join(map(str, outputs))})"


def input_names(count: int, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """`arg0`, `arg1`, ... unless the model names its inputs."""
    return tuple(names) if names else tuple(f"arg{i}" for i in range(count))
