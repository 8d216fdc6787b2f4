"""The StableHLO reference interpreter: slow, in process, and the definition of every op."""

from collections.abc import Callable
from dataclasses import replace as replaced
from typing import Any

import numpy as np

from jq.base.errors import InternalError
from jq.ir import Program, at, dtype_of, editing, ir, shape_of, stablehlo, tensor_type, to_dtype
from jq.ir.build import like, replace
from jq.ir.ops.layout import Layout
from jq.ir.values import Op, last_of

# Types that the bindings cannot turn into NumPy arrays leave the interpreter as their bits.
_OPAQUE = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}


def interpret(program: Program, *inputs: Any) -> list[np.ndarray]:
    """Evaluates `@main` in StableHLO's reference interpreter; weights are added to the inputs."""
    copy = program.clone()
    for op in list(copy.walk()):
        for mend in _MENDS.get(op.operation.name, ()):
            mend(op)
    dtypes = _bits_instead(copy)
    arrays = [np.asarray(value) for value in (*inputs, *program.weights.values())]
    with editing():
        results = stablehlo.eval_module(copy.module, [_attribute(array) for array in arrays])
    return [_array(attr, dtype) for attr, dtype in zip(results, dtypes, strict=True)]


def _check(op: Op) -> None:
    """The interpreter takes a resource for a dense constant and reads arbitrary memory."""
    try:
        ir.DenseElementsAttr(op.attributes["value"])
    except ValueError:
        raise InternalError("the interpreter reads no resources") from None


def _widen(op: Op) -> None:
    """The interpreter adds up a convolution in the type of its operands (i8 sums wrap around), not
    in that of its result, as it does for products and as the specification has it."""
    wide = dtype_of(op.results[0])
    with at(op):
        for i, value in enumerate(list(op.operands)):
            if dtype_of(value) != wide:
                op.operands[i] = stablehlo.convert(tensor_type(shape_of(value), wide), value)


def _order(op: Op) -> None:
    """The interpreter ends the process where the result's features come in front of its batch."""
    d = Layout.of(op)
    batch, feature = d.output_batch, d.output_feature
    if batch < feature:
        return
    (result,), order = op.results, list(range(len(shape_of(op.results[0]))))
    order[batch], order[feature] = feature, batch
    with at(op):
        shape = [shape_of(result)[a] for a in order]
        numbers = replaced(d, output_batch=feature, output_feature=batch).attribute()
        made = like(op, op.operands, shape, dtype_of(result), dimension_numbers=numbers)
        replace(op, [stablehlo.transpose(made, order)])


def _copy(op: Op) -> None:
    """The interpreter writes what is scattered into the tensor itself, which others may read."""
    with at(op):
        for i, value in enumerate(list(op.inputs)):
            op.operands[i] = stablehlo.reshape(value.type, value)


_MENDS: dict[str, tuple[Callable[[Op], None], ...]] = {
    "stablehlo.constant": (_check,),
    "stablehlo.convolution": (_widen, _order),
    "stablehlo.scatter": (_copy,),
}


def _bits_instead(program: Program) -> list[np.dtype[Any]]:
    """Makes `@main` return opaque types as integers; the dtypes that it returned before."""
    terminator = last_of(program.body)
    dtypes = [dtype_of(value) for value in terminator.operands]
    with at(terminator):
        for i, dtype in enumerate(dtypes):
            if dtype.name in _OPAQUE:
                value = terminator.operands[i]
                kind = tensor_type(shape_of(value), f"i{dtype.itemsize}")
                terminator.operands[i] = stablehlo.bitcast_convert(kind, value)
    program.refresh()
    return dtypes


def _attribute(array: np.ndarray) -> ir.Attribute:
    kind = tensor_type(array.shape, array.dtype)
    if array.dtype.name in _OPAQUE:  # no buffer protocol; the interpreter is for small arrays
        data = np.ascontiguousarray(array).tobytes().hex()
        return ir.Attribute.parse(f'dense<"0x{data}"> : {kind}' if data else f"dense<> : {kind}")
    return ir.DenseElementsAttr.get(np.ascontiguousarray(array).reshape(array.shape), type=kind)


def _array(attr: ir.Attribute, dtype: np.dtype[Any]) -> np.ndarray:
    kind = ir.RankedTensorType(attr.type)
    array = np.array(attr, dtype=to_dtype(kind.element_type)).reshape(kind.shape)
    return array.view(dtype)
