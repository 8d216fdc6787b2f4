"""The value of an expression over weights and constants, where it is only moved around."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.base.deep import Steps, deep, every
from jq.ir.build import integer, integers
from jq.ir.mlir_context import editing
from jq.ir.program import Program
from jq.ir.types import NARROW, dtype_of, number_kind, shape_of
from jq.ir.values import Op, maker

FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)


@deep
def evaluate(program: Program, value: ir.Value) -> Steps[np.ndarray | None]:
    """The array behind weights, constants and the ops that move them; None for anything else."""
    name = program.weight_name(value)
    if name is not None:
        return np.asarray(program.weights[name])
    owner = maker(value)
    if owner is None:
        return None
    if owner.operation.name == "stablehlo.constant":
        return dense_array(value)
    if owner.operation.name == "stablehlo.concatenate":
        pieces = yield from every((program, v) for v in owner.operands)
        return None if pieces is None else np.concatenate(pieces, integer(owner, "dimension"))
    handler = MOVES.get(owner.operation.name)
    if handler is None:
        return None
    source = yield program, owner.operands[0]
    return None if source is None else handler(source, owner.operation, shape_of(value))


def known_parts(program: Program, parts: Mapping[str, ir.Value]) -> dict[str, np.ndarray] | None:
    """The arrays behind the parts of a stored tensor; None where one is no constant."""
    arrays = {name: evaluate(program, part) for name, part in parts.items()}
    known = {name: array for name, array in arrays.items() if array is not None}
    return known if len(known) == len(arrays) else None


def one_step(program: Program, parts: Mapping[str, ir.Value]) -> tuple[Any, int] | None:
    """Scale and zero point of codes that have one of each; None where they are not constant."""
    step = {k: parts[k] for k in ("scale", "zero_point") if k in parts}
    known = known_parts(program, step)
    if known is None or any(array.size != 1 for array in known.values()):
        return None
    scale, *zero = (array.reshape(-1)[0] for array in known.values())
    return scale, int(zero[0]) if zero else 0


def dense_array(value: ir.Value) -> np.ndarray | None:
    """The array of a dense constant's result; a resource blob is none of ours and stays unknown."""
    attr = value.owner.attributes["value"]
    if not isinstance(attr, ir.DenseElementsAttr):
        return None
    shape, dtype = shape_of(value), dtype_of(value)
    if dtype in NARROW:
        return _bytes_of(attr, shape).astype(dtype)
    try:
        return np.array(attr).astype(dtype, copy=False).reshape(shape)
    except (TypeError, ValueError):  # the bindings' buffers know no bf16 and no fp8
        if attr.is_splat:
            return np.full(shape, attr.get_splat_value().value, dtype)
        text = str(attr)
        if text.startswith('dense<"0x'):  # a byte for each element, also for those of 4 bits
            data = bytes.fromhex(text[len('dense<"0x') : text.index('"', len('dense<"'))])
            return np.frombuffer(data, dtype).reshape(shape)
        return _bits_of(attr, shape, dtype)


def converted(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """An array in another type as XLA converts it: floats become integers towards zero, the nearest
    where none is that large, and 0 for NaN."""
    if number_kind(x.dtype) != "f" or number_kind(dtype) != "i":
        return x.astype(dtype, copy=False)
    info, wide = ml_dtypes.iinfo(dtype), x.astype(np.float64)
    inside = (wide > info.min) & (wide < info.max)
    ends = np.where(wide <= info.min, info.min, np.where(np.isnan(wide), 0, info.max))
    return np.where(inside, np.where(inside, wide, 0).astype(dtype), ends.astype(dtype))


def _bytes_of(attr: ir.DenseElementsAttr, shape: tuple[int, ...]) -> np.ndarray:
    """Integers of less than a byte, which the bindings do not read; their text has whole ones."""
    data, _, _ = str(attr).rpartition(" : ")
    element = "i8" if attr.type.element_type.is_signless else "ui8"
    with editing():
        text = f"{data} : tensor<{'x'.join([*map(str, shape), element])}>"
        return np.array(ir.Attribute.parse(text)).reshape(shape)


def _bits_of(
    attr: ir.DenseElementsAttr, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray:
    """Numbers of a type that the bindings do not read, as the integers that have their bits."""
    width = 4 if dtype == FLOAT4 else 8 * dtype.itemsize
    sizes = "x".join(map(str, (*shape, "")))
    bits, whole = f"tensor<{sizes}i{width}>", f"tensor<{sizes}i{8 * dtype.itemsize}>"
    text = f"""func.func @main() -> {whole} {{
        %0 = stablehlo.constant {attr}
        %1 = stablehlo.bitcast_convert %0 : ({attr.type}) -> {bits}
        %2 = stablehlo.convert %1 : ({bits}) -> {whole}
        return %2 : {whole} }}"""
    with editing():
        (found,) = stablehlo.eval_module(ir.Module.parse(text), [])
    numbers = np.array(found).reshape(shape)
    return (numbers & 15 if dtype == FLOAT4 else numbers).view(dtype)


def broadcast(x: np.ndarray, op: Op, shape: tuple[int, ...]) -> np.ndarray:
    """An array as a `broadcast_in_dim` spreads it."""
    aligned = [1] * len(shape)
    dims = integers(op, "broadcast_dimensions")
    for axis, n in zip(dims, x.shape, strict=True):
        aligned[axis] = n
    order = [int(i) for i in np.argsort(dims)]
    return np.broadcast_to(x.transpose(order).reshape(aligned), shape)


MOVES: dict[str, Any] = {
    "stablehlo.reshape": lambda x, op, shape: x.reshape(shape),
    "stablehlo.transpose": lambda x, op, shape: x.transpose(integers(op, "permutation")),
    "stablehlo.broadcast_in_dim": broadcast,
    "stablehlo.convert": lambda x, op, shape: converted(x, dtype_of(op.results[0])),
    "stablehlo.slice": lambda x, op, shape: x[
        tuple(map(slice, *(integers(op, k) for k in ("start_indices", "limit_indices", "strides"))))
    ],
}
