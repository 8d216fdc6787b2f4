"""Building ops that are not in the array protocol: constants, copies with other operands, and
reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.ir.types import dtype_of, shape_of, tensor_type
from jq.ir.values import Op

NAME = "jq.name"  # unique name of an op that can be quantized
SCOPE = "jq.scope"  # its scope in the source, an alias for rules


def string_attr(op: Op, key: str) -> str | None:
    """A string attribute of an op, or None."""
    attrs = op.attributes
    return ir.StringAttr(attrs[key]).value if key in attrs else None


@dataclass(frozen=True)
class Attributes:
    """Attributes in the place where readers of an op's attributes look for them."""

    attributes: Mapping[str, ir.Attribute]

    @property
    def operation(self) -> Attributes:
        return self


def integers(op: Op | Attributes, key: str) -> tuple[int, ...]:
    """A dense i64 array attribute of an op; an absent one is empty."""
    attrs = op.attributes
    return tuple(ir.DenseI64ArrayAttr(attrs[key])) if key in attrs else ()


def integer(op: Op, key: str) -> int:
    """An integer attribute of an op."""
    return int(ir.IntegerAttr(op.attributes[key]).value)


def like(
    op: Op,
    operands: Sequence[ir.Value],
    shape: Sequence[int],
    dtype: Any,
    **attributes: ir.Attribute | None,
) -> ir.Value:
    """The same op on other operands with another result type; None drops an attribute."""
    attrs = attributes_of(op)
    for key, value in attributes.items():
        attrs.pop(key, None)
        if value is not None:
            attrs[key] = value
    return ir.Operation.create(
        op.operation.name,
        results=[tensor_type(shape, dtype)],
        operands=list(operands),
        attributes=attrs,
    ).result


def attributes_of(op: Op | Attributes) -> dict[str, ir.Attribute]:
    """All attributes of an op by name, ready for `Operation.create`."""
    attrs = op.attributes
    if isinstance(attrs, Mapping):
        return dict(attrs)
    named = [attrs[i] for i in range(len(attrs))]
    return {a.name: a.attr for a in named}


def strided_slice(
    x: ir.Value, start: Sequence[int], limit: Sequence[int], strides: Sequence[int]
) -> ir.Value:
    """`x[start:limit:strides]` along every axis; `x` itself where that is all of it."""
    shape = [-(-(b - a) // by) for a, b, by in zip(start, limit, strides, strict=True)]
    if tuple(shape) == shape_of(x):
        return x
    names = {"start_indices": start, "limit_indices": limit, "strides": strides}
    return ir.Operation.create(
        "stablehlo.slice",
        results=[tensor_type(shape, dtype_of(x))],
        operands=[x],
        attributes={k: i64_array(v) for k, v in names.items()},
    ).result


def i64_array(values: Sequence[int]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get(list(values))


def constant(value: np.ndarray) -> ir.Value:
    """A small constant in the text of the module."""
    from jq.ir.arrays import StableHloOps

    return StableHloOps().constant(np.asarray(value))


def reduce_sum(x: ir.Value, axes: Sequence[int], *, keep: bool = False) -> ir.Value:
    """Sum over `axes` in x's own type; `keep` leaves them with size 1."""
    shape, dtype = shape_of(x), dtype_of(x)
    if not axes:
        return x
    left = [n for i, n in enumerate(shape) if i not in axes]
    zero = constant(np.zeros((), dtype))
    op = ir.Operation.create(
        "stablehlo.reduce",
        results=[tensor_type(left, dtype)],
        operands=[x, zero],
        attributes={"dimensions": i64_array(sorted(axes))},
        regions=1,
    )
    scalar = tensor_type((), dtype)
    block = op.regions[0].blocks.append(scalar, scalar)
    with ir.InsertionPoint(block):
        total = ir.Operation.create(
            "stablehlo.add", results=[scalar], operands=list(block.arguments)
        )
        ir.Operation.create("stablehlo.return", operands=[total.result])
    if not keep:
        return op.result
    kept = [1 if i in axes else n for i, n in enumerate(shape)]
    return ir.Operation.create(
        "stablehlo.reshape", results=[tensor_type(kept, dtype)], operands=[op.result]
    ).result


def barrier(value: ir.Value) -> ir.Value:
    """`value` behind an optimization barrier, which the compiler does not look through."""
    return ir.Operation.create(
        "stablehlo.optimization_barrier", results=[value.type], operands=[value]
    ).result


def replace(op: Op, values: Mapping[int, ir.Value] | Sequence[ir.Value]) -> None:
    """Replaces every use of an op's results and erases it."""
    for old, new in zip(op.results, list(values), strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def constant_of(array: np.ndarray) -> ir.Value:
    """`stablehlo.constant` of an array of any type, at the current insertion point.

    Dense, not a resource: XLA and portable artifacts have no resources.
    """
    array = np.ascontiguousarray(array).reshape(array.shape)
    kind = tensor_type(array.shape, array.dtype)
    attr = ir.DenseElementsAttr.get(array, type=kind)
    return ir.Operation.create(
        "stablehlo.constant", results=[kind], attributes={"value": attr}
    ).result
