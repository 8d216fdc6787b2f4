"""Building ops that are not in the array protocol, and reading what ops say of themselves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from jq.ir.mlir_context import editing
from jq.ir.types import shape_of, tensor_type
from jq.ir.values import Op, last_of, walk

NAME = "jq.name"  # unique name of an op that can be quantized
SCOPE = "jq.scope"  # its scope in the source, an alias for rules


def string_attr(op: Op, key: str) -> str | None:
    """A string attribute of an op, or None."""
    attrs = op.attributes
    return ir.StringAttr(attrs[key]).value if key in attrs else None


def attribute(value: Any) -> ir.Attribute:
    """A text, number, array or dictionary as an attribute, or a sequence: of whole numbers, or of
    anything else. An attribute stays what it is."""
    match value:
        case ir.Attribute():
            return value
        case str():
            return ir.StringAttr.get(value)
        case int() | np.integer():
            return i64_attr(int(value))
        case float() | np.floating():
            return ir.FloatAttr.get(ir.F64Type.get(), float(value))
        case np.ndarray():
            return ir.DenseElementsAttr.get(np.array(value, order="C"))
        case Mapping():
            return ir.DictAttr.get({key: attribute(v) for key, v in value.items()})
    whole = all(isinstance(v, int | np.integer) for v in value)
    return i64_array(value) if whole else ir.ArrayAttr.get([attribute(v) for v in value])


def plain(attr: ir.Attribute) -> Any:
    """The value of which `attribute` makes this."""
    match attr:
        case ir.StringAttr() | ir.IntegerAttr() | ir.FloatAttr():
            return attr.value
        case ir.DenseElementsAttr():
            return np.array(attr)
        case ir.DictAttr():
            return {a.name: plain(a.attr) for a in attr}
        case ir.DenseI64ArrayAttr():
            return tuple(attr)
        case ir.DenseI32ArrayAttr():
            return np.array(attr, np.int32)
        case ir.ArrayAttr():
            return tuple(map(plain, attr))
    return attr


class Described(Protocol):
    """An op, or what was read of one and has its attributes."""

    @property
    def attributes(self) -> Any: ...


def integers(op: Described, key: str) -> tuple[int, ...]:
    """A dense i64 array attribute of an op; an absent one is empty."""
    attrs = op.attributes
    return tuple(ir.DenseI64ArrayAttr(attrs[key])) if key in attrs else ()


def integer(op: Op, key: str) -> int:
    """An integer attribute of an op."""
    return int(ir.IntegerAttr(op.attributes[key]).value)


def padding_pairs(op: Described, axes: int) -> list[tuple[int, int]]:
    """Low and high padding of each axis of a window, in elements; negative padding cuts."""
    padding = attributes_of(op).get("padding")
    if padding is None:
        return [(0, 0)] * axes
    return [(int(low), int(high)) for low, high in np.array(padding).reshape(axes, 2)]


def reversed_axes(op: Described, axes: int) -> list[bool]:
    """True for each axis of a convolution's window that is reversed."""
    flags = attributes_of(op).get("window_reversal")
    return [False] * axes if flags is None else [bool(b) for b in ir.DenseBoolArrayAttr(flags)]


def direction_of(compare: Op) -> str:
    """`EQ`, `NE`, `LT`, `LE`, `GT` or `GE`."""
    return str(compare.attributes["comparison_direction"]).split()[-1].rstrip(">")


def settle_type(function: func.FuncOp) -> None:
    """Makes the type of a function that of its block."""
    block = function.entry_block
    with editing():
        given, made = block.arguments, last_of(block).operands
        kind = ir.FunctionType.get([v.type for v in given], [v.type for v in made])
        function.attributes["function_type"] = ir.TypeAttr.get(kind)


def create(
    name: str, kind: ir.Type, /, *operands: ir.Value, regions: int = 0, **attributes: ir.Attribute
) -> ir.Value:
    """The result of a new op that has one, at the current insertion point."""
    return ir.Operation.create(name, [kind], operands, attributes, regions=regions).result


def fill(op: ir.Operation, kind: ir.Type, body: Callable[..., ir.Value]) -> None:
    """Gives the op of a reduction, a scatter or a sort its function of two scalars."""
    block = op.regions[0].blocks.append(kind, kind)
    with ir.InsertionPoint(block):
        stablehlo.return_([body(*block.arguments)])


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
    return create(op.operation.name, tensor_type(shape, dtype), *operands, **attrs)


def copied(op: Op, operands: Sequence[ir.Value]) -> ir.Operation:
    """A copy of an op that reads other values, at the current insertion point."""
    copy = op.operation.clone()
    for i, value in enumerate(operands):
        copy.operands[i] = value
    return copy


def inlined(block: ir.Block, values: Sequence[ir.Value], suffix: str = "") -> list[ir.Value]:
    """Copies of the block's ops on `values`, at the current insertion point; what it returns.
    `suffix` is added to the names of ops."""
    known: dict[ir.Value, ir.Value] = dict(zip(block.arguments, values, strict=True))
    *ops, last = list(block.operations)
    for op in ops:
        copy = op.operation.clone()
        blocks = [inner for region in copy.regions for inner in region.blocks]
        for each in (copy, *(inner.operation for own in blocks for inner in walk(own))):
            for index, value in enumerate(each.operands):
                each.operands[index] = known.get(value, value)
            if (name := string_attr(each, NAME)) is not None:
                each.attributes[NAME] = ir.StringAttr.get(name + suffix)
        known.update(zip(op.results, copy.results, strict=True))
    return [known.get(v, v) for v in last.operands]


def attributes_of(op: Described) -> dict[str, ir.Attribute]:
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
    return stablehlo.slice(x, list(start), list(limit), list(strides))


def i64_array(values: Sequence[int]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get(list(values))


def i64_attr(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def recast(x: ir.Value, dtype: Any, shape: Sequence[int] | None = None) -> ir.Value:
    """The same bits as any other type, of its width or, with another shape, of another one."""
    kind = tensor_type(shape_of(x) if shape is None else shape, dtype)
    return x if x.type == kind else stablehlo.bitcast_convert(kind, x)


def picked(x: ir.Value, index: ir.Value, axis: int) -> ir.Value:
    """The parts of `x` at indices i32[n, 1] of an axis."""
    others = [a for a in range(len(shape_of(x))) if a != axis]
    sizes = [1 if a == axis else n for a, n in enumerate(shape_of(x))]
    numbers = stablehlo.GatherDimensionNumbers.get(others, [axis], [], [], [axis], 1)
    return stablehlo.gather(x, index, numbers, sizes)


def barrier(value: ir.Value) -> ir.Value:
    """`value` behind an optimization barrier, which the compiler does not look through."""
    return create("stablehlo.optimization_barrier", value.type, value)


def replace(op: Op, values: Mapping[int, ir.Value] | Sequence[ir.Value]) -> None:
    """Replaces every use of an op's results and erases it."""
    for old, new in zip(op.results, list(values), strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def constant_of(array: np.ndarray) -> ir.Value:
    """`stablehlo.constant` of an array of any type, at the current insertion point.

    Dense, not a resource: XLA and portable artifacts have no resources."""
    kind = tensor_type(array.shape, array.dtype)
    return create("stablehlo.constant", kind, value=dense_of(array))


def dense_of(array: np.ndarray) -> ir.Attribute:
    """The attribute that a constant has."""
    kind = tensor_type(array.shape, array.dtype)
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array).reshape(array.shape), type=kind)
